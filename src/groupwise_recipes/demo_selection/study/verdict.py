"""What may be recommended: a β only by several seeds, a model only where an interval allows it.

One comparison is made, chosen before any result: the last epoch that all arms finished, all test
items, the mean over the shots that all arms ran. Trying every cell would find a winner by chance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from groupwise.evaluation import SIGNIFICANCE, Items, adjust_holm, compare_items, compare_methods
from groupwise_recipes.demo_selection.study.arms import Arm, StudyRun
from groupwise_recipes.demo_selection.study.values import Study, has_run, has_same_items

MIN_SEEDS = 3
START = "start"
"""Name of what the GRPO of an arm started from."""
Outcome = Literal["unlike", "unfinished", "two_seeds", "tied", "checkpoint", "recommended", "alone"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two arms, or an arm and what its GRPO started from, in the one comparison.

    Attributes:
        first: name of the arm.
        second: name of the other.
        value: mean accuracy of the first minus that of the second.
        ends: 95 % interval; None with two seeds, or where nothing spreads.
        p_value: of no difference, by Holm's method for all pairs of arms; None without an interval.
        of_method: whether the interval draws seeds beside items, so that it speaks of β; else it
            speaks of these checkpoints.
        num_items: of the run with fewest.
        num_seeds: of each side.
        limit: why there is no interval, as ``MethodDifference`` says it; else empty.
    """

    first: str
    second: str
    value: float
    ends: tuple[float, float] | None
    p_value: float | None
    of_method: bool
    num_items: int
    num_seeds: int
    limit: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether the interval, and the adjusted p, leave 0 out."""
        if self.ends is None or self.p_value is None:
            return False
        return not self.ends[0] <= 0 <= self.ends[1] and self.p_value < SIGNIFICANCE


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the study recommends, and by which comparison.

    Attributes:
        outcome: ``unlike``: arms differ in more than β; ``unfinished``: the comparison's cells have
            not run; ``two_seeds``: too few for an interval of β; ``tied``: 0 is not left out;
            ``checkpoint``: of these checkpoints one is better; ``recommended``; ``alone``: one arm.
        arm: name of the arm that is better, where one is.
        epoch: of the comparison; None: no epoch that all arms finished was run.
        shots: of the comparison.
        differences: of all pairs of arms.
        against_start: of each arm's GRPO and what it started from.
    """

    outcome: Outcome
    arm: str | None
    epoch: int | None
    shots: tuple[int, ...]
    differences: tuple[Difference, ...]
    against_start: tuple[Difference, ...]


def judge(study: Study, *, is_alike: bool) -> Verdict:
    """Return what may be recommended.

    Args:
        study: all arms.
        is_alike: whether nothing but β differs.
    """
    epoch = max(study.epochs, default=None)
    shots = () if epoch is None else find_shared_shots(study, study.arms, (epoch,))
    if epoch is None or not shots:
        outcome = "unfinished" if is_alike else "unlike"
        return Verdict(outcome, None, epoch, (), (), ())
    compared = [pair for pair in study.pairs if has_same_items(*pair)]
    differences = _adjust(
        [
            _compare(study, _Side(one.name, one, epoch), _Side(two.name, two, epoch), shots)
            for one, two in compared
        ]
    )
    starts = _adjust([one for arm in study.arms for one in _compare_start(study, arm, epoch)])
    best = max(study.arms, key=lambda arm: _average(study, arm, epoch, shots))
    outcome = _choose_outcome(study, best, differences, is_alike=is_alike)
    is_chosen = outcome in ("recommended", "checkpoint")
    return Verdict(outcome, best.name if is_chosen else None, epoch, shots, differences, starts)


def _choose_outcome(
    study: Study, best: Arm, differences: Sequence[Difference], *, is_alike: bool
) -> Outcome:
    if not is_alike:
        return "unlike"
    if len(study.arms) == 1:
        return "alone"
    num_seeds = len(best.runs)
    if 1 < num_seeds < MIN_SEEDS:
        return "two_seeds"
    own = [one for one in differences if best.name in (one.first, one.second)]
    if len(own) < len(study.arms) - 1 or not all(one.is_clear for one in own):
        return "tied"
    return "recommended" if num_seeds >= MIN_SEEDS else "checkpoint"


def find_shared_shots(study: Study, arms: Sequence[Arm], epochs: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of shots at which all of these arms have all of these epochs.

    A cell counts if every test item of the largest subset was asked.
    """
    if not study.sizes:
        return ()
    size = study.sizes[-1]
    return tuple(
        shots
        for shots in study.shots
        if all(
            has_run(run, run.find_trained(epoch, shots), size)
            and study.read_scored(run, epoch, shots)
            for arm in arms
            for run in arm.runs
            for epoch in epochs
        )
    )


def _compare_start(study: Study, arm: Arm, epoch: int) -> list[Difference]:
    shots = find_shared_shots(study, [arm], (0, epoch))
    if not shots:
        return []
    return [_compare(study, _Side(arm.name, arm, epoch), _Side(START, arm, 0), shots)]


@dataclass(frozen=True, slots=True)
class _Side:
    name: str
    arm: Arm
    epoch: int


def _compare(study: Study, first: _Side, second: _Side, shots: Sequence[int]) -> Difference:
    pairs = [
        _pair_items(study, (first, run), (second, rival), shots)
        for run, rival in zip(first.arm.runs, second.arm.runs, strict=True)
    ]
    ours, theirs = [one for one, _ in pairs], [two for _, two in pairs]
    names = {"first": first.name, "second": second.name, "num_seeds": len(pairs)}
    if len(pairs) == 1:
        found = compare_items(theirs[0], ours[0])
        return Difference(
            value=found.difference,
            ends=(found.low, found.high),
            p_value=found.p_value_clustered,
            of_method=False,
            num_items=found.n,
            **names,
        )
    method = compare_methods(theirs, ours, is_paired=True)
    return Difference(
        value=method.estimate,
        ends=None if method.low is None or method.high is None else (method.low, method.high),
        p_value=method.p_value,
        of_method=True,
        num_items=method.num_items,
        limit=method.limit,
        **names,
    )


def _pair_items(
    study: Study, one: tuple[_Side, StudyRun], two: tuple[_Side, StudyRun], shots: Sequence[int]
) -> tuple[Items, Items]:
    """Return the items of both sides that could be scored on both."""
    values = [_average_items(study, run, side.epoch, shots) for side, run in (one, two)]
    ids = sorted(set.intersection(*map(set, values)))
    rows = one[1].find_trained(one[0].epoch, shots[0]) or {}
    clusters = tuple(rows[item].cluster for item in ids)
    first, second = (
        Items(
            measure="accuracy",
            split="test",
            policy=side.name,
            ids=tuple(ids),
            clusters=clusters,
            values=np.array([own[item] for item in ids]),
            is_binary=False,
            split_digest="",
        )
        for (side, _), own in zip((one, two), values, strict=True)
    )
    return first, second


def _average_items(
    study: Study, run: StudyRun, epoch: int, shots: Sequence[int]
) -> Mapping[str, float]:
    """Return the mean over shots by item, of the items that could be scored at all of them."""
    cells = [study.read_scored(run, epoch, one) for one in shots]
    shared = set.intersection(*(set(cell) for cell in cells))
    return {item: float(np.mean([cell[item] for cell in cells])) for item in shared}


def _adjust(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    known = [one for one in differences if one.p_value is not None]
    values = adjust_holm([one.p_value or 0.0 for one in known]) if known else []
    adjusted = dict(zip(map(id, known), values, strict=True))
    return tuple(replace(one, p_value=adjusted.get(id(one))) for one in differences)


def _average(study: Study, arm: Arm, epoch: int, shots: Sequence[int]) -> float:
    """Return the mean over seeds, shots and all items that could be scored."""
    means = [
        float(np.mean(list(_average_items(study, run, epoch, shots).values()))) for run in arm.runs
    ]
    return float(np.mean(means))
