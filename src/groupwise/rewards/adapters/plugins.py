"""A RewardSet as a plug-in of verl and of ms-swift."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.core import Completion, Example, RewardError
from groupwise.rewards.adapters.rows import (
    EXAMPLE_ID,
    build_example,
    find_example,
    select_columns,
)
from groupwise.rewards.fields import read_list
from groupwise.rewards.reward_set import RewardSet
from groupwise.rewards.soft_overlong import SoftOverlong


class VerlScore:
    """A RewardSet as verl's ``compute_score``; it may be called from several threads.

    verl loads it from a file by ``reward.custom_reward_function.path`` and ``.name``; there stands
    ``compute_score = VerlScore(RewardSet(...))``.

    The result is a dict with ``score``, ``invalid`` and one ``reward/NAME`` per part (NaN where a
    part has no value), always with the same keys, as verl needs.

    verl has no "unscored": a number is needed. Because that number is a reward like any
    other, it must be chosen, and without a choice such an answer is an error.

    Args:
        rewards: what scores.
        unscored: what verl gets for an answer that is unscored; None: a RewardError.
        examples: what is asked about, by id; a row names its own as ``example_id`` in its
            ``extra_info``. None: an example is made of each row.

    Raises:
        RewardError: if ``unscored`` is outside [0, 1], or a reward counts tokens, of which verl
            says nothing.
    """

    __name__ = "compute_score"

    def __init__(
        self,
        rewards: RewardSet,
        *,
        unscored: float | None = None,
        examples: Mapping[str, Example] | None = None,
    ) -> None:
        if unscored is not None and not 0.0 <= unscored <= 1.0:
            raise RewardError("unscored is out of range", got=unscored, expected="[0, 1]")
        counting = [n for n, part in rewards.rewards.items() if isinstance(part, SoftOverlong)]
        if counting:
            raise RewardError(
                f"the reward {counting[0]!r} counts tokens, and verl gives texts alone",
                fix="leave it out",
            )
        self.rewards = rewards
        self.unscored = unscored
        self.examples = examples

    def __call__(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: object,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> dict[str, float]:
        """Return the score and its parts.

        Where no examples are given, the ground truth becomes the label, what stands in
        ``extra_info`` the fields, and its ``question`` the prompt.

        Raises:
            RewardError: if the answer is unscored and no number was chosen for that, or the row is
                not that of an example that is known.
        """
        example = self._find_example(data_source, ground_truth, dict(extra_info or {}))
        score = self.rewards.score(example, Completion(solution_str))
        value = self.unscored if score.value is None else score.value
        if value is None:
            raise RewardError(
                f"an answer to {data_source} is unscored ({score.reason})",
                fix="verl needs a number: choose one with VerlScore(..., unscored=)",
            )
        parts = {
            f"reward/{name}": math.nan if part is None else part
            for name, part in score.breakdown.items()
        }
        return {"score": value, "invalid": float(score.invalid), **parts}

    def _find_example(self, source: str, truth: object, given: Mapping[str, Any]) -> Example:
        if self.examples is not None:
            return find_example(self.examples, given.get(EXAMPLE_ID), label=truth)
        return build_example(
            given.get("prompt", given.get("question", "")),
            label=truth,
            fields={"data_source": source, **given},
        )


def make_swift_orm(
    rewards: RewardSet,
    *,
    label: str = "solution",
    name: str = "Groupwise",
    examples: Mapping[str, Example] | None = None,
) -> type:
    """Return an outcome reward (ORM) class of ms-swift around a RewardSet.

    Swift looks the class up in ``swift.rewards.orms`` and makes one object with ``args``; a plug-in
    file registers it: ``orms["groupwise"] = make_swift_orm(RewardSet(...))``.

    Args:
        rewards: what scores; what is unscored is None, which swift leaves out.
        label: column with the reference answer; the other columns become fields.
        name: of the class, which is the name in swift's metrics.
        examples: what is asked about, by id, which rows have in the column ``example_id``; None:
            an example is made of each row.
    """

    def start(self: object, args: object = None, **_: Any) -> None:
        """Take swift's arguments and need none of them."""

    def score(self: object, completions: Sequence[str], **columns: Any) -> list[float | None]:
        """Return one value in [0, 1] or None per completion."""
        kept = select_columns(columns, num_rows=len(completions))
        rows = [
            {column: values[row] for column, values in kept.items()}
            for row in range(len(completions))
        ]
        asked = [_read_row(row, label, examples) for row in rows]
        ids = kept.get("response_token_ids", [()] * len(completions))
        cut = kept.get("is_truncated", [False] * len(completions))
        wrapped = [
            Completion(
                text, _read_ids(ids[row]), finish_reason="length" if cut[row] is True else "stop"
            )
            for row, text in enumerate(completions)
        ]
        return [result.value for result in rewards.score_batch(asked, wrapped)]

    return type(name, (), {"__init__": start, "__call__": score, "__doc__": make_swift_orm.__doc__})


def _read_row(
    row: Mapping[str, Any], label: str, examples: Mapping[str, Example] | None
) -> Example:
    """Return the example that a row of swift names, or one that is made of it."""
    if examples is not None:
        return find_example(examples, row.get(EXAMPLE_ID), label=row.get(label))
    fields = {name: value for name, value in row.items() if name not in ("messages", label)}
    return build_example(row.get("messages", ""), label=row.get(label), fields=fields)


def _read_ids(ids: object) -> tuple[int, ...]:
    """Return token ids; swift may nest them by turn."""
    flat: list[int] = []
    for item in read_list(ids) or ():
        flat.extend([item] if isinstance(item, int) else _read_ids(item))
    return tuple(flat)
