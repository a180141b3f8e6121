"""verl's reward functions: ``compute_score(data_source, solution_str, ground_truth, extra_info)``.

verl loads one from a file by ``reward.custom_reward_function.path`` and ``.name``; such a file is
``compute_score = VerlScore(RewardSet(...))``.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.adapters.imports import load_function
from groupwise.rewards.adapters.rows import ScoreRange, build_example
from groupwise.rewards.fields import read_mapping
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.reward_set import RewardSet


class VerlScore:
    """A RewardSet as verl's ``compute_score``; it may be called from several threads.

    The result is a dict with ``score``, ``invalid`` and one ``reward/NAME`` per part (NaN where a
    part has no value), always with the same keys, as verl needs.

    verl has no "unscored": a number is needed. Because that number is a reward like any
    other, it must be chosen, and without a choice such an answer is an error.

    Args:
        rewards: what scores.
        unscored: what verl gets for an answer that is unscored; None: a RewardError.

    Raises:
        RewardError: if ``unscored`` is outside [0, 1].
    """

    __name__ = "compute_score"

    def __init__(self, rewards: RewardSet, *, unscored: float | None = None) -> None:
        if unscored is not None and not 0.0 <= unscored <= 1.0:
            raise RewardError("unscored is out of range", got=unscored, expected="[0, 1]")
        self.rewards = rewards
        self.unscored = unscored

    def __call__(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: object,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> dict[str, float]:
        """Return the score and its parts.

        The ground truth becomes the label, what stands in ``extra_info`` the fields, and its
        ``question`` the prompt.

        Raises:
            RewardError: if the answer is unscored and no number was chosen for that.
        """
        given = dict(extra_info or {})
        example = build_example(
            given.get("prompt", given.get("question", "")),
            label=ground_truth,
            fields={"data_source": data_source} | given,
        )
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


class VerlReward:
    """verl's ``compute_score`` as a Reward.

    Args:
        function: the function, or its dotted path such as
            ``verl.utils.reward_score.default_compute_score``.
        kind: what its value rests on.
        name: in metrics.
        data_source: given to the function; None: the example's field of that name, or "".
        values: the range of its values, mapped to [0, 1].

    Raises:
        RewardError: if the path leads nowhere or to nothing that can be called.
    """

    def __init__(
        self,
        function: Callable[..., Any] | str,
        *,
        kind: RewardKind = "other",
        name: str = "compute_score",
        data_source: str | None = None,
        values: ScoreRange | None = None,
    ) -> None:
        self._function = load_function(function)
        self.kind: RewardKind = kind
        self.name = name
        self.data_source = data_source
        self.values = values or ScoreRange()

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has a label."""
        return example.label is not None or "label" in example.fields

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if the function returns no number in its range.
        """
        if not self.applies_to(example):
            return Score(None, "no label")
        own = self.data_source
        result: object = self._function(
            data_source=str(example.fields.get("data_source", "")) if own is None else own,
            solution_str=completion.text,
            ground_truth=example.fields.get("label") if example.label is None else example.label,
            extra_info=dict(example.fields),
        )
        parts = read_mapping(result)
        return self.values.read(self.name, result if parts is None else parts.get("score"))
