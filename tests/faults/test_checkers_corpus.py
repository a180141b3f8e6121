"""The corpus of reward functions does what its labels say."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
from corpora import read_corpus

HERE = Path(__file__).parent
FULL = 0.99


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


CHECKERS = read_corpus("checkers")


def load_function(checker):
    spec = importlib.util.spec_from_file_location(checker["name"], HERE / checker["file"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, checker["function"])


def render(prompt, row):
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: str(row[match[1]]), prompt)


def score_all(function, checker, rows, answers):
    """Score one answer per row, with the columns a trainer would pass."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    prompts = [render(checker["prompt"], row) for row in rows]
    scores = function(completions=answers, prompts=prompts, **columns)
    assert len(scores) == len(rows)
    assert all(isinstance(score, float) and 0.0 <= score <= 1.0 for score in scores)
    return scores


def lazy_answers(checker, row):
    prompt = render(checker["prompt"], row)
    values = [str(value) for value in row.values()]
    every_value = ", ".join(values)
    shell = {key: "" for key in re.findall(r'"(\w+)"', checker["prompt"])}
    return [
        "",
        "   \n",
        prompt,
        re.split(r"(?<=[.!?])\s", prompt)[0],
        "Yes",
        "Yes.",
        "[]",
        "{}",
        json.dumps(shell),
        json.dumps(row),
        every_value,
        every_value + ".",
        *values,
        *(value + "." for value in values),
        *(" ".join([value] * count) + "." for value in values for count in range(2, 20)),
        "The " + " ".join([values[0]] * 9) + ".",
        "The of and " + " the of and a to ".join(values) + ".",
    ]


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker["name"])
def test_checker_keeps_its_label(checker):
    function = load_function(checker)
    rows = read_lines(HERE / checker["rows"])
    assert len(rows) >= 12
    assert len(checker["good"]) >= 2

    for good in checker["good"]:
        score = score_all(function, checker, [rows[good["row"]]], [good["answer"]])[0]
        if checker["expected"] == "sound":
            assert score >= FULL, good

    if checker["expected"] == "sound":
        for row in rows:
            for answer in lazy_answers(checker, row):
                assert score_all(function, checker, [row], [answer])[0] < FULL, (row, answer)
        for good in checker["good"]:
            scores = score_all(function, checker, rows, [good["answer"]] * len(rows))
            assert sum(score >= FULL for score in scores) <= 0.2 * len(rows), good
        return

    assert checker["expected"] == "hackable"
    exploited = set()
    for exploit in checker["exploits"]:
        if isinstance(exploit, str):
            scores = score_all(function, checker, rows, [exploit] * len(rows))
            exploited |= {index for index, score in enumerate(scores) if score >= FULL}
        else:
            row = rows[exploit["row"]]
            if score_all(function, checker, [row], [exploit["answer"]])[0] >= FULL:
                exploited.add(exploit["row"])
    assert len(exploited) >= 0.8 * len(rows)


def test_corpus_has_five_sound_and_eight_hackable_checkers():
    labels = [checker["expected"] for checker in CHECKERS]
    assert (labels.count("sound"), labels.count("hackable")) == (5, 8)
    assert len({checker["name"] for checker in CHECKERS}) == 13
