"""A RewardSet in the call shapes of verl and ms-swift; neither library is imported here.

Rows name the example that they were made of, as ``groupwise export RUN --format verl|swift`` writes
them. Functions of TRL's shape are a FunctionReward.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupwise.core import Completion, Example, RewardError
from groupwise.rewards.reward import read_list
from groupwise.rewards.reward_set import RewardSet

EXAMPLE_ID = "example_id"
"""What rows call the id of the example that they were made of."""


@dataclass(eq=False, repr=False)
class VerlScore:
    """A RewardSet as verl's ``compute_score``; it may be called from several threads.

    verl loads it from a file by ``reward.custom_reward_function.path`` and ``.name``. It returns a
    dict with ``score``, ``invalid`` and one ``reward/NAME`` per part (NaN where a part has no
    value), always with the same keys.

    Args:
        rewards: what scores.
        examples: what is asked about, by id; a row names its own in its ``extra_info``.
        unscored: what verl gets for an answer that is unscored, as it has no such thing and needs
            a number, which is a reward like any other; None: a RewardError.

    Raises:
        RewardError: if ``unscored`` is outside [0, 1], or a function asks for ``completion_ids``:
            verl says nothing of tokens.
    """

    __name__ = "compute_score"
    rewards: RewardSet
    examples: Mapping[str, Example]
    unscored: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.unscored is not None and not 0.0 <= self.unscored <= 1.0:
            raise RewardError("unscored is out of range", got=self.unscored, expected="[0, 1]")
        for name, reward in self.rewards.rewards.items():
            parts = getattr(reward, "parts", [reward])
            if any(getattr(part, "takes_tokens", False) for part in parts):
                raise RewardError(
                    f"the reward {name!r} asks for tokens, and verl gives texts alone",
                    fix="leave it out",
                )

    def __call__(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: object,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> dict[str, float]:
        """Return the score and its parts.

        Raises:
            RewardError: if the answer is unscored and no number was chosen for that, or the row is
                not that of an example that is known.
        """
        example = _find_example(self.examples, (extra_info or {}).get(EXAMPLE_ID), ground_truth)
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


def make_swift_orm(rewards: RewardSet, examples: Mapping[str, Example]) -> type[Any]:
    """Return an outcome reward (ORM) class of ms-swift around a RewardSet.

    Swift looks the class up in ``swift.rewards.orms`` and makes one object with ``args``; a plug-in
    file registers it: ``orms["groupwise"] = make_swift_orm(rewards, examples)``. It returns a value
    in [0, 1] per completion, or None for what is unscored, which swift leaves out.

    Args:
        rewards: what scores.
        examples: what is asked about, by id, which rows have in the column ``example_id``; their
            column ``solution`` has the label.
    """

    class Groupwise:
        def __init__(self, args: object = None, **_: Any) -> None:
            """Take swift's arguments and need none of them."""

        def __call__(self, completions: Sequence[str], **columns: Any) -> list[float | None]:
            none = [None] * len(completions)
            names = (EXAMPLE_ID, "solution", "response_token_ids", "is_truncated")
            rows = zip(*(read_list(columns.get(name)) or none for name in names), strict=True)
            asked: list[Example] = []
            said: list[Completion] = []
            for text, (name, label, ids, is_cut) in zip(completions, rows, strict=True):
                asked.append(_find_example(examples, name, label))
                reason = "length" if is_cut is True else "stop"
                said.append(Completion(text, tuple(_flatten(ids)), finish_reason=reason))
            return [result.value for result in rewards.score_batch(asked, said)]

    return Groupwise


def _find_example(examples: Mapping[str, Example], name: object, label: object) -> Example:
    known = examples.get(name) if isinstance(name, str) else None
    if known is None:
        raise RewardError(f"a row has no {EXAMPLE_ID} of an example that is known", got=repr(name))
    if label != known.label:
        raise RewardError(
            f"the row of example {known.id} has another reference answer",
            got=repr(label),
            expected=repr(known.label),
            fix="export the rows again, or correct the labels where the run takes them from",
        )
    return known


def _flatten(ids: object) -> list[int]:
    """Return token ids; swift may nest them by turn."""
    items = read_list(ids) or ()
    return [n for item in items for n in ([item] if isinstance(item, int) else _flatten(item))]
