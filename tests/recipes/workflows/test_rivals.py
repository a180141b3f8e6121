"""Fixed programs: all of them pass the checks, the best are chosen on validation, answers vote."""

import random

import pytest
from workflow_problems import CHOICE, CODE, SUM

from groupwise.data import Problem
from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.report.phrases import Phrases
from groupwise_recipes.workflows.forms import FAULTY_SHARE, draw_form, list_sound_forms
from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.programs import check_program
from groupwise_recipes.workflows.rivals import (
    DIRECT,
    RIVALS,
    SELF_CONSISTENCY,
    Tried,
    list_rivals,
    vote,
)
from groupwise_recipes.workflows.sections import PHRASES, weigh_need

NAMES = signatures(OPERATORS)


@pytest.mark.parametrize("program", [*list_sound_forms(), DIRECT, SELF_CONSISTENCY])
def test_fixed_programs_pass_the_checks(program: str) -> None:
    assert check_program(program, NAMES).refusal is None


def test_the_warm_up_has_its_share_of_mistakes() -> None:
    drawn = [draw_form(random.Random(seed), kind="code") for seed in range(600)]
    reasons = [found.reason for one in drawn if (found := check_program(one, NAMES).refusal)]
    assert set(reasons) == {"not_awaited", "unassigned"}
    assert abs(len(reasons) / len(drawn) - FAULTY_SHARE) < 0.04
    assert "#" not in draw_form(random.Random(0))


def test_a_type_is_said_with_words_of_its_own_and_changes_nothing_else() -> None:
    plans: dict[str, set[str]] = {"math": set(), "code": set(), "qa": set()}
    for seed in range(300):
        plain = draw_form(random.Random(seed))
        for kind, found in plans.items():
            head, said, *body = draw_form(random.Random(seed), kind=kind).split("\n")
            assert [head, *body] == plain.split("\n")
            mark, told, plan, _ = said.split()
            assert (mark, told) == ("#", kind)
            found.add(plan)
    assert {len(found) for found in plans.values()} == {8}
    assert len(set.union(*plans.values())) == 24


def choose(problem: Problem, **tried: tuple[str, str, float, int]) -> dict[str, list[str]]:
    rows = [Tried(kind, text, right, 10, tokens) for kind, text, right, tokens in tried.values()]
    return {one.name: list(one.choose(problem)) for one in list_rivals(rows, top_k=2)}


def test_the_best_by_type_and_the_best_for_all() -> None:
    tried = {
        "a": ("math", "A", 9.0, 50),
        "b": ("code", "A", 0.0, 50),
        "c": ("math", "B", 6.0, 10),
        "d": ("code", "B", 6.0, 10),
        "e": ("math", "C", 9.0, 20),
        "f": ("code", "C", 1.0, 90),
    }
    found = choose(SUM, **tried)
    assert set(found) == set(RIVALS)
    assert found["best_by_type"] == ["C"]  # as good as A, and cheaper
    assert found["top_by_type"] == ["C", "A"]
    assert found["best_single"] == ["B"]
    assert choose(CODE, **tried)["best_by_type"] == ["B"]
    assert choose(CHOICE, **tried)["best_by_type"] == ["B"]  # a type that was never tried


def test_the_best_operator_is_one_call() -> None:
    one = "async def workflow(problem):\n    a = await custom(problem, 'x')\n    return a.response"
    two = f"{one}\n    b = await format(problem, 'x')"
    many = one.replace("    a =", "    for i in range(3):\n        a =")
    tried = {"a": ("math", two, 9, 5), "b": ("math", many, 9, 5), "c": ("math", one, 1, 5)}
    assert choose(SUM, **tried)["best_operator"] == [one]
    assert choose(CODE, **tried)["best_operator"] == [DIRECT]


def test_answers_vote_and_the_first_of_equals_wins() -> None:
    assert vote({"A": "7", "B": "8", "C": "The answer is 8."}) == "B"
    assert vote({"A": "7", "B": "8"}) == "A"
    assert vote({"A": None, "B": "8"}) == "B"
    assert vote({"A": None}) is None


def predict(policy: str, rights: str, tokens: int) -> list[Prediction]:
    return [
        Prediction(
            example_id=str(n),
            cluster=str(n),
            split="test",
            policy=policy,
            label="x",
            predicted="x" if right == "1" else "y",
            fields={"tokens": tokens},
        )
        for n, right in enumerate(rights)
    ]


def weigh(ours: str, theirs: str, *, tokens: int = 10, name: str = "best_by_type") -> str:
    found = {"grpo": predict("grpo", ours, 10), name: predict(name, theirs, tokens)}
    return weigh_need(found, Phrases("en", own=PHRASES))


def test_a_policy_is_needed_where_it_beats_what_costs_no_more() -> None:
    assert "is needed here" in weigh("1" * 20, "0" * 12 + "1" * 8)
    assert "not shown to be needed" in weigh("1" * 20, "1" * 20)
    assert "not shown to be needed" in weigh("0" * 12 + "1" * 8, "1" * 20)
    assert "not shown to be needed" in weigh("1" * 20, "0" * 3 + "1" * 17)
    assert "only grpo is right on 12 problems" in weigh("1" * 20, "0" * 12 + "1" * 8)


def test_a_policy_that_only_chooses_by_type_is_not_needed() -> None:
    found = {
        "grpo": predict("grpo", "1" * 20, 10),
        "direct": predict("direct", "0" * 12 + "1" * 8, 5),
        "own_by_type": predict("own_by_type", "1" * 19 + "0", 11),
    }
    said = weigh_need(found, Phrases("en", own=PHRASES))
    assert "own_by_type is the best" in said
    assert "not shown to be needed" in said


def test_a_dearer_program_is_not_compared() -> None:
    assert "none is compared" in weigh("1" * 20, "0" * 20, tokens=11)
    assert "none is compared" in weigh("1" * 20, "0" * 20, name="prompt")
