"""Accuracies of a study's cells and their differences.

Nothing is computed from a cell that has not run. An item whose evaluation failed in one arm is left
out of that cell in all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from statistics import fmean

from groupwise_recipes.demo_selection.cells import Cell
from groupwise_recipes.demo_selection.study.arms import Answers, Arm, StudyRun

SAME = 1e-12
Scored = Mapping[str, float]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where in the grid: an epoch of GRPO (0: what it starts from), test items, shots."""

    epoch: int
    size: int
    shots: int


@dataclass(frozen=True, slots=True)
class Gap:
    """A difference of accuracy at a place; None where a side has not run or has other items."""

    place: Place
    value: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Differences of several cells.

    Attributes:
        num_cells: in all.
        num_known: of them, those that both arms ran.
        mean: over these; None: there are none.
        best: the greatest difference with its place.
        worst: the least.
        num_up: cells in which the first arm is better.
        num_down: those in which it is worse.
    """

    num_cells: int
    num_known: int
    mean: float | None
    best: Gap | None
    worst: Gap | None
    num_up: int
    num_down: int


@dataclass(frozen=True)
class Study:
    """Arms that are compared seed by seed.

    Attributes:
        arms: by β, each with the same seeds wherever the arms have a seed in common.
        left_out: seeds that not every arm has, by the name of the arm.
    """

    arms: tuple[Arm, ...]
    left_out: Mapping[str, tuple[int, ...]]

    @cached_property
    def has_shared_seeds(self) -> bool:
        """Whether the arms have the same seeds."""
        return len({arm.seeds for arm in self.arms}) == 1

    @cached_property
    def epochs(self) -> tuple[int, ...]:
        """Epochs of GRPO that all arms finished."""
        return tuple(sorted(set.intersection(*(arm.list_epochs() for arm in self.arms))))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of test items that all runs have a subset of."""
        runs = [run for arm in self.arms for run in arm.runs]
        return tuple(sorted(set.intersection(*(run.sizes for run in runs))))

    @cached_property
    def shots(self) -> tuple[int, ...]:
        """Numbers of shots: 1 to 4, and what else was run."""
        runs = [run for arm in self.arms for run in arm.runs]
        cells = {cell for run in runs for cell in run.cells if cell.epoch is not None}
        return tuple(sorted({1, 2, 3, 4} | {cell.shots for cell in cells}))

    @property
    def pairs(self) -> list[tuple[Arm, Arm]]:
        """Every arm with each of a smaller β."""
        return [(b, a) for i, a in enumerate(self.arms) for b in self.arms[i + 1 :]]

    def list_own_epochs(self, arm: Arm) -> tuple[int, ...]:
        """Return the epochs that this arm finished and not every other one did."""
        return tuple(sorted(arm.list_epochs() - set(self.epochs)))

    def measure(self, arm: Arm, place: Place) -> float | None:
        """Return the accuracy at a place in [0, 1], mean over seeds; None if one has not run."""
        if (arm.beta, place) not in self._measured:
            found = [(run, run.find_trained(place.epoch, place.shots)) for run in arm.runs]
            values = [self._average(run, asked, place) for run, asked in found]
            self._measured[arm.beta, place] = _average_known(values)
        return self._measured[arm.beta, place]

    @cached_property
    def _measured(self) -> dict[tuple[float, Place], float | None]:
        return {}

    def _average(self, run: StudyRun, asked: Answers | None, place: Place) -> float | None:
        if not has_run(run, asked, place.size):
            return None
        scored = self.read_scored(run, place.epoch, place.shots)
        values = [scored[one] for one in run.list_items(place.size) if one in scored]
        return fmean(values) if values else None

    def measure_system(
        self, arm: Arm, system: str, *, size: int, shots: int, epoch: int | None = None
    ) -> float | None:
        """Return the accuracy of any system; that without demonstrations has no shots."""
        cell = Cell(system, 0 if system == "none" else shots, epoch)
        values: list[float | None] = []
        for run in arm.runs:
            asked = run.cells.get(cell, {})
            rows = [asked[one] for one in run.list_items(size)] if has_run(run, asked, size) else []
            scored = [row.accuracy for row in rows if row.accuracy is not None]
            values.append(fmean(scored) if scored else None)
        return _average_known(values)

    def read_scored(self, run: StudyRun, epoch: int, shots: int) -> Scored:
        """Return the accuracies of the items that were asked, without what failed in an arm."""
        key = (run.beta, run.seed, epoch, shots)
        if key not in self._scored:
            own, *others = (
                one.find_trained(epoch, shots) or {} for one in (run, *self.list_runs(run.seed))
            )
            failed = {item for cell in others for item in list_failed(cell)}
            self._scored[key] = {
                item: row.accuracy
                for item, row in own.items()
                if item not in failed and row.accuracy is not None
            }
        return self._scored[key]

    @cached_property
    def _scored(self) -> dict[tuple[float, int, int, int], Scored]:
        return {}

    def list_runs(self, seed: int) -> list[StudyRun]:
        """Return the runs of all arms with a seed."""
        return [run for arm in self.arms for run in arm.runs if run.seed == seed]

    def subtract(self, first: Arm, second: Arm, place: Place) -> Gap:
        """Return first minus second at a place."""
        if not has_same_items(first, second):
            return Gap(place, None)
        values = self.measure(first, place), self.measure(second, place)
        if values[0] is None or values[1] is None:
            return Gap(place, None)
        gap = values[0] - values[1]
        return Gap(place, 0.0 if abs(gap) < SAME else gap)

    def list_places(
        self,
        epochs: Sequence[int],
        *,
        sizes: Sequence[int] | None = None,
        shots: Sequence[int] | None = None,
    ) -> list[Place]:
        """Return the cells of these epochs, sizes and shots; None: all."""
        axes = (epochs, self.sizes if sizes is None else sizes, shots or self.shots)
        return [Place(*one) for one in product(*axes)]

    def summarize(self, first: Arm, second: Arm, places: Sequence[Place]) -> Summary:
        """Return what the differences of some cells come to."""
        known = [
            (gap, gap.value)
            for gap in (self.subtract(first, second, place) for place in places)
            if gap.value is not None
        ]
        values = [value for _, value in known]
        return Summary(
            num_cells=len(places),
            num_known=len(known),
            mean=fmean(values) if values else None,
            best=max(known, key=lambda one: one[1])[0] if known else None,
            worst=min(known, key=lambda one: one[1])[0] if known else None,
            num_up=sum(value > 0 for value in values),
            num_down=sum(value < 0 for value in values),
        )


def make_study(arms: Sequence[Arm]) -> Study:
    """Return a study of the seeds that all arms have; of all seeds where there are none."""
    shared = set.intersection(*(set(arm.seeds) for arm in arms))
    if not shared:
        return Study(tuple(arms), {})
    left = {arm.name: tuple(seed for seed in arm.seeds if seed not in shared) for arm in arms}
    kept = tuple(arm.keep(shared) for arm in arms)
    return Study(kept, {name: seeds for name, seeds in left.items() if seeds})


def pair_runs(first: Arm, second: Arm) -> Iterator[tuple[StudyRun, StudyRun]]:
    """Yield the runs of two arms that have the same seed."""
    others = {run.seed: run for run in second.runs}
    yield from ((run, others[run.seed]) for run in first.runs if run.seed in others)


def has_same_items(first: Arm, second: Arm) -> bool:
    """Whether the arms have the same seeds and, seed by seed, the same test items."""
    return first.seeds == second.seeds and all(
        one.subsets.subsets == two.subsets.subsets for one, two in pair_runs(first, second)
    )


def list_failed(cell: Answers) -> Iterator[str]:
    """Yield the items whose evaluation failed."""
    yield from (item for item, row in cell.items() if row.accuracy is None)


def has_run(run: StudyRun, asked: Answers | None, size: int) -> bool:
    """Whether every item of a subset was asked."""
    return asked is not None and all(item in asked for item in run.list_items(size))


def _average_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the seeds' values; None if one is not known."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None
