"""Rewards as verl and ms-swift call them; the real packages are in tests/flow/trainers."""

import inspect
import math

import pytest

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import FunctionReward, LabelMatch, LabelParser, Lowest, RewardKind, RewardSet
from groupwise.rewards.adapters import VerlScore, make_swift_orm

PARSER = LabelParser(labels=("on-task", "off-task"))
SEEN: list[tuple[Example, Completion]] = []


class Judge:
    """Pays what the field says, and keeps what it was given."""

    name = "judge"
    kind: RewardKind = "judgement"

    def __call__(self, example: Example, completion: Completion) -> Score:
        SEEN.append((example, completion))
        return Score(example.fields["judged"], "so")


def ask(label: str | None, judged: float | None = None) -> Example:
    return make_example(
        [Message("user", "Is it?")], cluster=str(label), label=label, fields={"judged": judged}
    )


REWARDS = RewardSet({"label": (LabelMatch(PARSER), 0.6), "judge": (Judge(), 0.4)})
RIGHT, OTHER, NONE = ask("on-task", 0.5), ask("off-task"), ask(None, None)
EXAMPLES = {one.id: one for one in (RIGHT, OTHER, NONE)}


def test_a_set_is_called_as_swift_calls() -> None:
    orm_class = make_swift_orm(REWARDS, EXAMPLES)
    orm = orm_class(args=object())
    assert (orm_class.__name__, inspect.iscoroutinefunction(orm.__call__)) == ("Groupwise", False)
    SEEN.clear()
    values = orm(
        ["on-task", "what", "on-task"],
        trainer_state=object(),
        example_id=[RIGHT.id, RIGHT.id, NONE.id],
        solution=["on-task", "on-task", None],
        level=[1, 2, 3],
        is_truncated=[False, True, False],
        response_token_ids=[[1, 2], [[3], [4]], []],
        prompt_id=["a", "b", "c"],
    )
    assert values == [pytest.approx(0.8), 0.0, None]
    assert [example for example, _ in SEEN] == [RIGHT, RIGHT, NONE]
    assert [c.finish_reason for _, c in SEEN] == ["stop", "length", "stop"]
    assert [c.token_ids for _, c in SEEN] == [(1, 2), (3, 4), ()]
    # Without the columns of tokens, as texts alone.
    assert orm(["on-task"], example_id=[RIGHT.id], solution=["on-task"])[0] == pytest.approx(0.8)


def test_a_set_is_called_as_verl_calls() -> None:
    compute = VerlScore(REWARDS, EXAMPLES)
    assert not inspect.iscoroutinefunction(compute)
    got = compute(
        data_source="on_task",
        solution_str="on-task",
        ground_truth="on-task",
        extra_info={"example_id": RIGHT.id, "num_turns": None},
        reward_router_address="ignored",
    )
    assert got == pytest.approx(
        {"score": 0.8, "invalid": 0.0, "reward/label": 1.0, "reward/judge": 0.5}
    )
    # A part without a value keeps its key.
    got = compute("on_task", "what", "off-task", {"example_id": OTHER.id})
    assert list(got) == ["score", "invalid", "reward/label", "reward/judge"]
    assert (got["score"], got["invalid"]) == (0.0, 1.0)
    assert math.isnan(got["reward/judge"])


def test_a_function_that_asks_for_tokens_is_refused_by_verl(tmp_path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def short(completion_ids, **_): return [1.0 for _ in completion_ids]\n")
    own = FunctionReward(f"{file}:short", kind="other", messages=False, values=(0, 1))
    for reward in (own, Lowest("both", [own, LabelMatch(PARSER)], kind="other")):
        with pytest.raises(RewardError, match="'short' asks for tokens, and verl gives texts"):
            VerlScore(RewardSet({"short": (reward, 1.0)}), EXAMPLES)


def test_an_answer_that_cannot_be_scored_is_an_error_or_a_chosen_number() -> None:
    row = ("on_task", "on-task", None, {"example_id": NONE.id})
    with pytest.raises(RewardError, match=r"is unscored .*unscored="):
        VerlScore(REWARDS, EXAMPLES)(*row)
    got = VerlScore(REWARDS, EXAMPLES, unscored=0.25)(*row)
    assert got["score"] == 0.25
    assert math.isnan(got["reward/label"])
    with pytest.raises(RewardError, match="out of range"):
        VerlScore(REWARDS, EXAMPLES, unscored=-1.0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("x", "on-task", "on-task", None), "a row has no example_id of an example that is known"),
        (("x", "on-task", "on-task", {"example_id": "?"}), "has no example_id"),
        (("x", "on-task", "off-task", {"example_id": RIGHT.id}), "another reference answer"),
    ],
)
def test_a_row_of_no_example_is_an_error(row, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        VerlScore(REWARDS, EXAMPLES)(*row)
    (_, text, label, extra) = row
    with pytest.raises(RewardError, match=message):
        make_swift_orm(REWARDS, EXAMPLES)()(
            [text], example_id=[(extra or {}).get("example_id")], solution=[label]
        )
