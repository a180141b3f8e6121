"""Drawn problems: their references are right, and no split holds a sentence of another."""

import re
from collections import Counter
from itertools import combinations
from typing import Any

import pytest

from groupwise.core import DataError
from groupwise.data.splits import find_near_texts
from groupwise_drawn.problems import SPLITS, draw_problems, drawing
from groupwise_drawn.problems.phrases import ENGLISH, MONTHS, WEEKDAYS
from groupwise_recipes.workflows.problem_sets import Problem

ASKS = {"water": "ask_water", "name": "ask_mayor", "year": "ask_year"}


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[Problem]]:
    counts = {"train": 1500, "validation": 150, "test": 300}
    return {
        split: [Problem(**one) for one in draw_problems(counts[split], seed=3, split=split)]
        for split in SPLITS
    }


def list_all(drawn: dict[str, list[Problem]]) -> list[Problem]:
    return [problem for problems in drawn.values() for problem in problems]


def test_problems_differ_and_types_come_in_turn(drawn: dict[str, list[Problem]]):
    for problems in drawn.values():
        assert len({problem.problem for problem in problems}) == len(problems)
        assert Counter(p.problem_type for p in problems).most_common(3)[2][1] == len(problems) // 3
        chinese = [p for p in problems if re.search("[\u4e00-\u9fff]", p.problem)]
        assert 0.05 < len(chinese) / len(problems) < 0.25
    assert len({problem.id for problem in list_all(drawn)}) == 1950


def test_no_split_holds_nearly_the_same_problem_as_another(drawn: dict[str, list[Problem]]):
    texts = {split: [p.problem for p in problems] for split, problems in drawn.items()}
    for one, other in combinations(SPLITS, 2):
        assert find_near_texts(texts[other], texts[one], least=0.7) == []


def test_the_seed_decides_and_fewer_problems_are_the_first_of_more():
    first = draw_problems(40, seed=1, split="test")
    assert draw_problems(20, seed=1, split="test") == first[:20]
    assert draw_problems(20, seed=2, split="test") != first[:20]


def test_more_problems_than_there_are_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(drawing, "_DRAW", {"qa": lambda pen: pen.ask_choice("?", "a", "bcd")})
    with pytest.raises(DataError, match="there are no 25 different problems for test"):
        draw_problems(25, seed=1, split="test", types=["qa"])


def test_references_pass_all_tests_and_another_program_does_not(drawn: dict[str, list[Problem]]):
    for problem in list_all(drawn):
        if problem.problem_type != "code":
            continue
        names: dict[str, Any] = {}
        exec(problem.ground_truth, names)
        for test in (*problem.public_tests, *problem.hidden_tests):
            exec(test, names)
        assert problem.public_tests[0] in problem.problem
        assert not any(test in problem.problem for test in problem.hidden_tests)
        names[str(problem.entry_point)] = lambda given: given
        with pytest.raises(AssertionError):
            exec("\n".join(problem.hidden_tests), names)


def match(slot: str, text: str) -> dict[str, str] | None:
    """Return the values in a text that one of the wordings fills."""
    for wording in ENGLISH[slot]:
        seen: set[str] = set()
        pattern = ""
        for part in re.split(r"(\{\w+\})", wording):
            name = part[1:-1]
            if not part.startswith("{"):
                pattern += re.escape(part)
            elif name in seen:
                pattern += f"(?P={name})"
            else:
                pattern += rf"(?P<{name}>\w+)"
                seen.add(name)
        if found := re.match(pattern, text):
            return {**found.groupdict(), "end": str(found.end())}
    return None


def solve_story(text: str) -> int | None:
    start = match("story_start", text)
    if start is None:
        return None
    number, text = int(start["x"]), text[int(start["end"]) :].strip()
    steps = {
        "gain": lambda n: number + n,
        "lose": lambda n: number - n,
        "times": lambda n: number * n,
        "share": lambda n: number // n if number % n == 0 else None,
    }
    while match("story_end", text) is None:
        slot, values = next((s, v) for s in steps if (v := match(f"story_{s}", text)))
        after = steps[slot](int(values["n"]))
        assert after is not None
        number, text = after, text[int(values["end"]) :].strip()
    return number


def test_the_answers_of_word_problems_follow_from_their_texts(drawn: dict[str, list[Problem]]):
    solved = Counter[str]()
    forms = {
        "change": lambda p, n, m: m - n * p,
        "distance": lambda v, t, d: v * t + d,
        "fence": lambda a, b: 2 * a + 2 * b,
        "mean": lambda a, b, c: (a + b + c) / 3,
    }
    for problem in (one for one in list_all(drawn) if one.problem_type == "math"):
        answer: Any = solve_story(problem.problem)
        solved["story"] += answer is not None
        for slot, solve in forms.items():
            if values := match(slot, problem.problem):
                numbers = {k: int(v) for k, v in values.items() if k in "pnmvtdabc"}
                answer = solve(**numbers)
                solved[slot] += 1
        if answer is not None:
            assert float(problem.ground_truth) == answer > 0
    assert min(solved[name] for name in ("story", *forms)) > 30


def test_the_answers_about_the_calendar_are_right(drawn: dict[str, list[Problem]]):
    names = {"weekday": list(WEEKDAYS["en"]), "month": list(MONTHS)}
    solved = Counter[str]()
    for problem in (one for one in list_all(drawn) if one.options):
        assert len(set(problem.options)) == 4
        right = problem.options["ABCD".index(problem.ground_truth)]
        for slot, key in (("weekday", "day"), ("month", "month")):
            if values := match(slot, problem.problem):
                at = names[slot].index(values[key]) + int(values["k"])
                assert right == names[slot][at % len(names[slot])]
                solved[slot] += 1
    assert min(solved["weekday"], solved["month"]) > 30


def test_the_northmost_town_lies_south_of_none(drawn: dict[str, list[Problem]]):
    count = 0
    for problem in list_all(drawn):
        text, pairs = problem.problem, list[dict[str, str]]()
        while values := match("north", text):
            pairs.append(values)
            text = text[int(values["end"]) :].strip()
        if pairs:
            count += 1
            souths = {pair["b"] for pair in pairs}
            (top,) = {pair["a"] for pair in pairs} - souths
            assert problem.options["ABCD".index(problem.ground_truth)] == top
    assert count > 30


def test_answers_in_words_stand_in_the_article_of_the_town(drawn: dict[str, list[Problem]]):
    articles = [p for p in list_all(drawn) if p.problem_type == "qa" and not p.options]
    assert len(articles) > 60
    for problem in articles:
        *parts, question = problem.problem.split("\n\n")
        question = question.removeprefix("Question: ")
        asked = {key: match(slot, question) for key, slot in ASKS.items()}
        key, values = next((key, values) for key, values in asked.items() if values)
        told = [found for part in parts if (found := match("article", part))]
        (facts,) = (found for found in told if found["town"] == values["town"])
        assert problem.ground_truth == facts[key]
