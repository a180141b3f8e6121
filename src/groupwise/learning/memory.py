"""A rival without a model: near what people spoke of it says their label again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from groupwise.core import Example
from groupwise.evaluation import Prediction
from groupwise.evaluation.sights import Numbers
from groupwise.learning.nearness import Nearness
from groupwise.learning.rival_results import USED


@dataclass(frozen=True, slots=True)
class Trial:
    """What it would change to answer questions by their nearest learned item.

    Attributes:
        gaps: (n,) distance of each question to that item; inf: there is none.
        is_near_right: (n,) whether its label is right.
        is_served_right: (n,) whether the served version is right.
    """

    gaps: Numbers
    is_near_right: NDArray[np.bool_]
    is_served_right: NDArray[np.bool_]

    def count_gain(self, threshold: float) -> int:
        """Return how many more are right if the item answers up to a distance."""
        changes = self.is_near_right.astype(int) - self.is_served_right
        return int(changes[self.gaps <= threshold].sum())


def choose_threshold(said: Trial, others: Trial, *, margin: float) -> float:
    """Return the distance up to which the nearest item is to answer; -inf: never.

    It is a distance of a learned item: the least at which most of these are answered right, of
    those that cost others no more than the margin.

    Args:
        said: learned items, each by the nearest of another session.
        others: questions that nobody spoke of.
        margin: how much less often these may be right, in (0, 1).
    """
    levels = [-np.inf, *np.unique(said.gaps[np.isfinite(said.gaps)])]
    least = -margin * len(others.gaps)
    allowed = [level for level in levels if others.count_gain(level) >= least]
    return float(max(allowed, key=said.count_gain))


class Memory:
    """Says the label of the nearest learned item where it is near, else the served answer.

    Args:
        learned: with labels.
        others: questions with labels that nobody spoke of.
        said: what the served version answers to both, in this order; None: nothing.
        margin: how much less often others may be answered right, in (0, 1).
    """

    def __init__(
        self,
        learned: Sequence[Example],
        others: Sequence[Example],
        said: Sequence[str | None],
        *,
        margin: float,
    ) -> None:
        self._nearness = Nearness(learned)
        self._labels = np.asarray([str(one.label) for one in learned])
        distances = self._nearness.measure([*learned, *others])
        sessions = np.asarray([one.cluster for one in learned])
        own = distances[: len(learned)]
        own[sessions[:, None] == sessions] = np.inf
        truth = np.asarray([str(one.label) for one in (*learned, *others)])
        found = Trial(
            gaps=distances.min(axis=1),
            is_near_right=self._labels[distances.argmin(axis=1)] == truth,
            is_served_right=np.asarray([a == b for a, b in zip(said, truth, strict=True)]),
        )
        self.threshold = choose_threshold(
            _take(found, slice(len(learned))),
            _take(found, slice(len(learned), None)),
            margin=margin,
        )

    def answer(self, examples: Sequence[Example], served: Sequence[Prediction]) -> list[Prediction]:
        """Return what it answers.

        Args:
            examples: that are asked.
            served: what the served version answers to them, in the same order.
        """
        return [self._answer(*both) for both in zip(examples, served, strict=True)]

    def _answer(self, example: Example, served: Prediction) -> Prediction:
        started = time.perf_counter()
        [distances] = self._nearness.measure([example])
        place = int(distances.argmin())
        is_near = bool(distances[place] <= self.threshold)
        looked_up_s = time.perf_counter() - started
        told = replace(served, policy="memory", fields={**served.fields, USED: int(is_near)})
        if served.latency_s is not None:  # others were asked at once with more
            told = replace(told, latency_s=looked_up_s + (0.0 if is_near else served.latency_s))
        if not is_near:
            return told
        label = str(self._labels[place])
        return replace(told, predicted=label, text=label, reason="", probabilities=None, scores={})


def _take(trial: Trial, rows: slice) -> Trial:
    return Trial(trial.gaps[rows], trial.is_near_right[rows], trial.is_served_right[rows])
