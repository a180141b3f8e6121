"""The runs of a β study as tables of results: arms, epochs, accuracies and equal lists.

Nothing is computed from a cell that has not run. An item whose evaluation failed in one arm is left
out of that cell in all of them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import groupby, product
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np

from groupwise.core import (
    EvaluationError,
    RunFolder,
    check_records,
    digest_json,
    flatten_settings,
    read_json,
    read_jsonl,
)
from groupwise.evaluation.predictions import Items
from groupwise.evaluation.result_table import GridAxis, Result, ResultTable
from groupwise_recipes.demo_selection.cells import (
    FACTS,
    Cell,
    CellRow,
    EvaluationFacts,
    Subsets,
    list_cells,
    read_cell,
    read_facts,
    read_subsets,
)

BETA, SEED, EPOCHS = "grpo.beta", "seed", "grpo.epochs"
START = "start"
"""What the GRPO of an arm started from."""
LOSS_TOLERANCE = 5e-6
"""So far a logged loss may be from PPO + β · KL: five digits after the point agree."""
Phase = Literal["rce", "grpo"]
PHASES: tuple[Phase, ...] = ("rce", "grpo")
Answers = Mapping[str, CellRow]
MIN_SEEDS = 3
_OF_LAST_ROW = ("eval_loss", "advantage_std", "advantage_max", "beta")


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a training logged in one finished epoch; None where something was not logged.

    ``eval_loss`` is RCE at τ = 1 with raw rewards, ``ppo_loss`` the clipped surrogate without the
    penalty, ``kl`` the mean of ρ - 1 - log ρ over the recorded lists. Dead are the groups whose
    lists all earned the same.
    """

    number: int
    loss: float | None = None
    eval_loss: float | None = None
    ppo_loss: float | None = None
    kl: float | None = None
    beta: float | None = None
    advantage_std: float | None = None
    advantage_max: float | None = None
    num_groups: float = 0
    num_dead_groups: float = 0

    @property
    def expected_loss(self) -> float | None:
        """PPO + β · KL; None where one of them is not known."""
        if self.ppo_loss is None or self.kl is None or self.beta is None:
            return None
        return self.ppo_loss + self.beta * self.kl

    @property
    def adds_up(self) -> bool:
        """Whether the loss is PPO + β · KL to five digits, as far as they are known."""
        if self.loss is None or self.expected_loss is None:
            return True
        return abs(self.loss - self.expected_loss) <= LOSS_TOLERANCE


def read_epochs(path: Path) -> tuple[Epoch, ...]:
    """Return the finished epochs of a ``metrics.jsonl``; none without the file.

    Rows within an epoch are means of its steps and are averaged by their queries. An epoch without
    its last row was interrupted and is left out.

    Raises:
        DataError: if a line is damaged.
    """
    rows = [row for row in (read_jsonl(path) if path.is_file() else ()) if "epoch" in row]
    found: list[Epoch] = []
    for number, group in groupby(rows, key=lambda row: max(1, math.ceil(row["epoch"]))):
        own, values = list(group), dict[str, float]()
        if own[-1]["epoch"] != number:
            continue
        weights = [row.get("num_groups", 1) for row in own]
        for name in (one.name for one in fields(Epoch) if one.name != "number"):
            if not all(name in row for row in own) and name not in own[-1]:
                continue
            if name in _OF_LAST_ROW:
                values[name] = own[-1][name]
            elif name.startswith("num_"):
                values[name] = sum(row[name] for row in own)
            else:
                total = sum(row[name] * weight for row, weight in zip(own, weights, strict=True))
                values[name] = total / sum(weights)
        found.append(Epoch(number, **values))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class StudyRun:
    """One training with one β and one seed.

    ``settings`` are all others that can change a result, by dotted key; of what comes from outside,
    and of code, the digest. ``first_gap`` is the greatest log ratio or KL before the first update
    of GRPO and what rounding explains; None: the check was not recorded.
    """

    folder: Path
    beta: float
    seed: int
    settings: Mapping[str, Any]
    evaluated: EvaluationFacts
    subsets: Subsets
    training: Mapping[Phase, tuple[Epoch, ...]]
    cells: Mapping[Cell, Answers]
    first_gap: tuple[float, float] | None

    @cached_property
    def start(self) -> int:
        """Number of the epoch of RCE that GRPO starts from; 0: not known."""
        last = max((one.number for one in self.training["rce"]), default=0)
        return int(self.settings.get("grpo_from_epoch") or last)

    def list_items(self, size: int) -> Sequence[str]:
        """Return the test items of a subset."""
        return self.subsets.subsets[str(size)]

    def find_trained(self, epoch: int, shots: int) -> Answers | None:
        """Return the answers of an epoch of GRPO, of epoch 0 those of the selector it starts from.

        None: the cell has not run.
        """
        at = ("grpo", shots, epoch) if epoch else ("rce", shots, self.start)
        return self.cells.get(Cell(*at))


@dataclass(frozen=True, eq=False)
class Arm:
    """All runs with one β, by seed."""

    beta: float
    runs: tuple[StudyRun, ...]

    @property
    def name(self) -> str:
        """Such as ``β = 0.12``, in any language."""
        return f"β = {self.beta:g}"

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of its runs."""
        return tuple(run.seed for run in self.runs)

    @property
    def epochs(self) -> set[int]:
        """The epochs of GRPO that all of its runs finished."""
        return set.intersection(*({e.number for e in run.training["grpo"]} for run in self.runs))

    def average_training(self, phase: Phase = "grpo") -> list[Epoch]:
        """Return the means over runs of the epochs that all finished; None of what one lacks."""
        by_number = [{one.number: one for one in run.training[phase]} for run in self.runs]
        found: list[Epoch] = []
        for number in sorted(set.intersection(*map(set, by_number))):
            means: dict[str, Any] = {}
            for name in (one.name for one in fields(Epoch) if one.name != "number"):
                values = [getattr(one[number], name) for one in by_number]
                means[name] = None if None in values else fmean(values)
            found.append(Epoch(number, **means))
        return found


def read_arms(folders: Sequence[Path]) -> tuple[Arm, ...]:
    """Return the arms of runs, by β.

    Raises:
        EvaluationError: if there are no runs, one was not evaluated, or two have the same β and
            seed.
        DataError: if a file is damaged.
    """
    runs = sorted(map(_read_run, folders), key=lambda run: (run.beta, run.seed))
    if not runs or len({(run.beta, run.seed) for run in runs}) < len(runs):
        raise EvaluationError(
            "a study takes runs that differ in β or seed",
            got="no run" if not runs else "two with the same β and seed",
            fix="name the folder of each run once",
        )
    return tuple(Arm(beta, tuple(own)) for beta, own in groupby(runs, key=lambda run: run.beta))


def _read_run(folder: Path) -> StudyRun:
    manifest = RunFolder(folder).read_manifest()
    check_records(folder)
    kinds = {path: effect["kind"] for path, effect in manifest.get("effects", {}).items()}
    settings = {**dict(flatten_settings(manifest["config"])), **manifest.get("inputs", {})}
    evaluation, checked = folder / "evaluate", folder / "grpo" / "on_policy.json"
    if BETA not in settings or SEED not in settings:
        raise EvaluationError(f"{folder} is no run of a selector", expected=f"{BETA} and {SEED}")
    if not (evaluation / FACTS).is_file():
        raise EvaluationError(f"{folder} was not evaluated", fix="run it to its end")
    found = read_json(checked, dict) if checked.is_file() else {}
    gap = (
        (max(found["max_log_ratio"], found["max_kl"] or 0.0), found["tolerance"]) if found else None
    )
    return StudyRun(
        folder=folder,
        beta=float(settings[BETA]),
        seed=int(settings[SEED]),
        settings={
            key: value
            for key, value in settings.items()
            if key not in (BETA, SEED, EPOCHS) and kinds.get(key) != "harmless"
        },
        evaluated=read_facts(evaluation),
        subsets=read_subsets(evaluation),
        training={
            "rce": read_epochs(folder / "rce" / "metrics.jsonl"),
            "grpo": read_epochs(folder / "grpo" / "metrics.jsonl"),
        },
        cells={
            cell: {row.id: row for row in read_cell(evaluation, cell)}
            for cell in list_cells(evaluation)
        },
        first_gap=gap,
    )


class SameLists(NamedTuple):
    """How many chosen lists two cells share, order included, and how many have other answers."""

    num_same: int
    num_lists: int
    num_other_answers: int = 0


@dataclass(frozen=True)
class Study:
    """Arms by β that are compared seed by seed; ``left_out`` are seeds that not every arm has."""

    arms: tuple[Arm, ...]
    left_out: Mapping[str, tuple[int, ...]]

    @cached_property
    def runs(self) -> list[StudyRun]:
        """Those of all arms."""
        return [run for arm in self.arms for run in arm.runs]

    @cached_property
    def epochs(self) -> tuple[int, ...]:
        """Epochs of GRPO that all arms finished."""
        return tuple(sorted(set.intersection(*(arm.epochs for arm in self.arms))))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of test items that all runs have a subset of."""
        return tuple(
            sorted(set.intersection(*(set(map(int, x.subsets.subsets)) for x in self.runs)))
        )

    @cached_property
    def shots(self) -> tuple[int, ...]:
        """Numbers of shots: 1 to 4, and what else was run."""
        cells = {cell for run in self.runs for cell in run.cells if cell.epoch is not None}
        return tuple(sorted({1, 2, 3, 4} | {cell.shots for cell in cells}))

    @property
    def pairs(self) -> list[tuple[Arm, Arm]]:
        """Every arm with each of a smaller β."""
        return [(b, a) for i, a in enumerate(self.arms) for b in self.arms[i + 1 :]]

    def tabulate(self, epochs: Iterable[int]) -> ResultTable:
        """Return the accuracies by arm, epoch of GRPO (0: what it starts from), items and shots.

        A cell has run if all seeds of its arm have.
        """
        axes = {"epoch": sorted(epochs), "items": self.sizes, "shots": self.shots}
        results: list[Result] = []
        places = [(x, y, z) for x in axes["epoch"] for y in self.sizes for z in self.shots]
        for arm, (epoch, size, shots) in product(self.arms, places):
            values: list[float | None] = []
            for run in arm.runs:
                scored = self.read_scored(run, epoch, shots)
                known = [scored[x] for x in run.list_items(size) if x in scored]
                is_whole = has_run(run, run.find_trained(epoch, shots), size)
                values.append(fmean(known) if known and is_whole else None)
            for run, value in zip(arm.runs, values, strict=True):
                named: dict[str, Any] = {"state": "waiting"}
                if None not in values:
                    digest = digest_json([arm.seeds, run.subsets.subsets])
                    named = {"value": value, "digest": digest}
                cell = str(epoch), str(size), str(shots)
                results.append(Result(arm.name, cell, run.seed, folder=str(run.folder), **named))
        nested = len(self.sizes) > 1 and any(run.subsets.nested for run in self.runs)
        shown = (
            GridAxis(key=key, values=tuple(map(str, values)), nested=key == "items" and nested)
            for key, values in axes.items()
            if values
        )
        return ResultTable(results=tuple(results), axes=tuple(shown))

    def measure_system(
        self, arm: Arm, system: str, *, size: int, shots: int, epoch: int | None = None
    ) -> float | None:
        """Return the accuracy of any system; that without demonstrations has no shots."""
        cell = Cell(system, 0 if system == "none" else shots, epoch)
        values: list[float] = []
        for run in arm.runs:
            asked = run.cells.get(cell, {})
            rows = [asked[one] for one in run.list_items(size)] if has_run(run, asked, size) else []
            scored = [row.accuracy for row in rows if row.accuracy is not None]
            values += [fmean(scored)] if scored else []
        return fmean(values) if len(values) == len(arm.runs) else None

    def read_scored(self, run: StudyRun, epoch: int, shots: int) -> Mapping[str, float]:
        """Return the accuracies of the items that were asked, without what failed in an arm."""
        cells = [x.find_trained(epoch, shots) or {} for x in self.runs if x.seed == run.seed]
        failed = {item for cell in cells for item, row in cell.items() if row.accuracy is None}
        own = run.find_trained(epoch, shots) or {}
        known = {item: row.accuracy for item, row in own.items() if item not in failed}
        return {item: value for item, value in known.items() if value is not None}

    def find_shared_shots(self, arms: Sequence[Arm], epochs: Sequence[int]) -> tuple[int, ...]:
        """Return the shots at which arms ran all items of the largest subset in all epochs."""
        runs = [run for arm in arms for run in arm.runs]

        def is_there(run: StudyRun, epoch: int, shots: int) -> bool:
            is_whole = has_run(run, run.find_trained(epoch, shots), self.sizes[-1])
            return is_whole and bool(self.read_scored(run, epoch, shots))

        return tuple(
            shots
            for shots in (self.shots if self.sizes else ())
            if all(is_there(run, epoch, shots) for run in runs for epoch in epochs)
        )

    def average_items(self, run: StudyRun, epoch: int, shots: Sequence[int]) -> dict[str, float]:
        """Return the mean over shots of the items that could be scored at all of them."""
        cells = [self.read_scored(run, epoch, one) for one in shots]
        shared = set.intersection(*(set(cell) for cell in cells))
        return {item: float(np.mean([cell[item] for cell in cells])) for item in shared}

    def tabulate_sides(
        self,
        sides: Sequence[tuple[str, Arm, int]],
        shots: Sequence[int],
        cell: tuple[str, ...] = (),
    ) -> list[Result]:
        """Return the results of names, each an arm at an epoch, on items that all could score."""
        results: list[Result] = []
        for seed in sides[0][1].seeds:
            runs = [next(run for run in arm.runs if run.seed == seed) for _, arm, _ in sides]
            both = list(zip(runs, sides, strict=True))
            values = [self.average_items(run, epoch, shots) for run, (_, _, epoch) in both]
            ids = sorted(set.intersection(*map(set, values)))
            rows = runs[0].find_trained(sides[0][2], shots[0]) or {}
            shared = {"ids": tuple(ids), "clusters": tuple(rows[item].cluster for item in ids)}
            for own, (name, _, _) in zip(values, sides, strict=True):
                kept = np.array([own[item] for item in ids])
                named = {"split": "test", "policy": name, "values": kept, "split_digest": ""}
                items = Items(measure="accuracy", is_binary=False, **shared, **named)
                results.append(Result.of_items(name, items, cell=cell, seed=seed))
        return results

    def compare_epochs(self, arm: Arm, before: int, after: int) -> SameLists:
        """Return how many lists two epochs of an arm share, over its seeds and all shots."""
        return self._count_same([((run, before), (run, after)) for run in arm.runs])

    def compare_arms(self, first: Arm, second: Arm, epoch: int) -> SameLists:
        """Return how many lists two arms share at an epoch, seed by seed."""
        return self._count_same([((a, epoch), (b, epoch)) for a, b in pair_runs(first, second)])

    def _count_same(
        self, pairs: Sequence[tuple[tuple[StudyRun, int], tuple[StudyRun, int]]]
    ) -> SameLists:
        num_same = num_lists = num_other = 0
        for pair, shots in product(pairs, self.shots):
            one, two = (run.find_trained(epoch, shots) or {} for run, epoch in pair)
            rows = [(one[item], two[item]) for item in one.keys() & two.keys()]
            same = [(a, b) for a, b in rows if a.demos == b.demos]
            num_lists, num_same = num_lists + len(rows), num_same + len(same)
            num_other += sum((a.answer, a.accuracy) != (b.answer, b.accuracy) for a, b in same)
        return SameLists(num_same, num_lists, num_other)


def make_study(arms: Sequence[Arm]) -> Study:
    """Return a study of the seeds that all arms have; of all seeds where there are none."""
    shared = set.intersection(*(set(arm.seeds) for arm in arms))
    if not shared:
        return Study(tuple(arms), {})
    left = {arm.name: tuple(seed for seed in arm.seeds if seed not in shared) for arm in arms}
    kept = (replace(arm, runs=tuple(run for run in arm.runs if run.seed in shared)) for arm in arms)
    return Study(tuple(kept), {name: seeds for name, seeds in left.items() if seeds})


def pair_runs(first: Arm, second: Arm) -> Iterator[tuple[StudyRun, StudyRun]]:
    """Yield the runs of two arms that have the same seed."""
    others = {run.seed: run for run in second.runs}
    yield from ((run, others[run.seed]) for run in first.runs if run.seed in others)


def has_run(run: StudyRun, asked: Answers | None, size: int) -> bool:
    """Whether every item of a subset was asked."""
    return asked is not None and all(item in asked for item in run.list_items(size))
