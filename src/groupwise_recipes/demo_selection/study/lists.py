"""How many chosen lists are the same: where all are, training or another β changed nothing."""

from collections.abc import Iterable
from dataclasses import dataclass

from groupwise_recipes.demo_selection.study.arms import Answers, Arm
from groupwise_recipes.demo_selection.study.values import Study, pair_runs


@dataclass(frozen=True, slots=True)
class SameLists:
    """How many chosen lists two cells have in common, order included.

    Attributes:
        num_same: lists that are the same.
        num_lists: in all.
        num_other_answers: same lists to which the answers differ, which should not be.
    """

    num_same: int
    num_lists: int
    num_other_answers: int = 0

    @property
    def share(self) -> float | None:
        """In [0, 1]; None without lists."""
        return self.num_same / self.num_lists if self.num_lists else None

    @property
    def are_all(self) -> bool:
        """Whether there are lists and all of them are the same."""
        return 0 < self.num_lists == self.num_same


def compare_epochs(study: Study, arm: Arm, before: int, after: int) -> SameLists:
    """Return how many lists two epochs of an arm have in common, over its seeds and all shots."""
    return _count_same(
        (run.find_trained(before, shots), run.find_trained(after, shots))
        for run in arm.runs
        for shots in study.shots
    )


def compare_arms(study: Study, first: Arm, second: Arm, epoch: int) -> SameLists:
    """Return how many lists two arms have in common at an epoch, seed by seed."""
    return _count_same(
        (one.find_trained(epoch, shots), two.find_trained(epoch, shots))
        for one, two in pair_runs(first, second)
        for shots in study.shots
    )


def _count_same(pairs: Iterable[tuple[Answers | None, Answers | None]]) -> SameLists:
    num_same = num_lists = num_other = 0
    for one, two in pairs:
        if one is None or two is None:
            continue
        rows = [(one[item], two[item]) for item in one.keys() & two.keys()]
        same = [(a, b) for a, b in rows if a.demos == b.demos]
        num_lists += len(rows)
        num_same += len(same)
        num_other += sum((a.answer, a.accuracy) != (b.answer, b.accuracy) for a, b in same)
    return SameLists(num_same, num_lists, num_other)
