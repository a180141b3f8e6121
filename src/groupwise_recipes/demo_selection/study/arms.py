"""The arms of a β study, as the files of their runs say it; nothing is computed here."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from groupwise.core import (
    DataError,
    EvaluationError,
    RunFolder,
    flatten_settings,
    read_json,
    read_jsonl,
)
from groupwise_recipes.demo_selection.study.epochs import Epoch, read_epochs

BETA, SEED, EPOCHS = "grpo.beta", "seed", "grpo.epochs"
Phase = Literal["rce", "grpo"]
_CELL = re.compile(r"(?P<system>[a-z_]+?)(-epoch-(?P<epoch>\d+))?-shots-(?P<shots>\d+)")
_exact = with_config(ConfigDict(extra="forbid"))


@_exact
@dataclass(frozen=True, slots=True)
class Answered:
    """One test item of a cell.

    Attributes:
        id: of the item.
        cluster: what it is clustered by.
        demos: ids of its demonstrations in the order of the prompt.
        answer: what the answerer said.
        accuracy: VQA accuracy in [0, 1]; None: the evaluation failed.
    """

    id: str
    cluster: str
    demos: tuple[str, ...]
    answer: str | None
    accuracy: float | None


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Which answers: of a system, of a selector's epoch (0: no selector), with so many shots."""

    system: str
    epoch: int
    shots: int


@_exact
@dataclass(frozen=True, slots=True)
class Base:
    """The selector that GRPO starts from: its name and the digest of its weights."""

    name: str
    digest: str


@_exact
@dataclass(frozen=True, slots=True)
class Evaluated:
    """What a run says of its evaluation.

    Attributes:
        conditions: as ``find_differences`` compares them.
        base: what GRPO starts from; None: not known.
        trained_shots: length of the lists it was trained on.
        planned_epochs: by phase.
    """

    conditions: Mapping[str, str | None]
    base: Base | None
    trained_shots: int
    planned_epochs: Mapping[Phase, int]


@_exact
@dataclass(frozen=True, slots=True)
class Subsets:
    """Test items by size; ``nested``: a smaller subset is a part of each greater one."""

    nested: bool
    seed: int
    subsets: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class StudyRun:
    """One training with one β and one seed.

    Attributes:
        folder: the run.
        beta: as configured.
        seed: as configured.
        settings: all others that can change a result, by dotted key.
        evaluated: conditions of its evaluation.
        subsets: of the test items.
        training: finished epochs by phase.
        cells: answers by item; a cell that is missing or not whole is not there.
        first_gap: greatest log ratio (absolute) or KL before the first update of GRPO, and what
            rounding explains; None: the check was not recorded.
    """

    folder: Path
    beta: float
    seed: int
    settings: Mapping[str, Any]
    evaluated: Evaluated
    subsets: Subsets
    training: Mapping[Phase, tuple[Epoch, ...]]
    cells: Mapping[Cell, Mapping[str, Answered]]
    first_gap: tuple[float, float] | None

    @cached_property
    def last_rce(self) -> int:
        """Number of the last epoch of RCE, from which GRPO starts; 0: not known."""
        return max((one.number for one in self.training["rce"]), default=0)

    def find(self, system: str, epoch: int, shots: int) -> Mapping[str, Answered] | None:
        """Return the answers of a cell; None where it has not run."""
        return self.cells.get(Cell(system, epoch, shots))

    def find_trained(self, epoch: int, shots: int) -> Mapping[str, Answered] | None:
        """Return the answers of an epoch of GRPO; epoch 0 is the selector it starts from."""
        return self.find("grpo", epoch, shots) if epoch else self.find("rce", self.last_rce, shots)


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

    def list_epochs(self) -> set[int]:
        """Return the epochs of GRPO that all of its runs finished."""
        return set.intersection(*({e.number for e in run.training["grpo"]} for run in self.runs))

    def keep(self, seeds: Iterable[int]) -> "Arm":
        """Return the arm with these seeds only."""
        return replace(self, runs=tuple(run for run in self.runs if run.seed in set(seeds)))


def read_arms(folders: Sequence[Path]) -> tuple[Arm, ...]:
    """Return the arms of runs, by β.

    Raises:
        EvaluationError: if there are no runs, one was not evaluated, or two have the same β and
            seed.
        DataError: if a file is damaged.
    """
    runs = sorted(map(read_run, folders), key=lambda run: (run.beta, run.seed))
    places = [(run.beta, run.seed) for run in runs]
    if not runs or len(set(places)) < len(places):
        raise EvaluationError(
            "a study takes runs that differ in β or seed",
            got="no run" if not runs else "two with the same β and seed",
            fix="name the folder of each run once",
        )
    betas = dict.fromkeys(run.beta for run in runs)
    return tuple(Arm(beta, tuple(run for run in runs if run.beta == beta)) for beta in betas)


def read_run(folder: Path) -> StudyRun:
    """Return what the files of a run say.

    Raises:
        EvaluationError: if it was not evaluated.
        DataError: if a file is damaged.
    """
    manifest = RunFolder(folder).read_manifest()
    kinds = {path: effect["kind"] for path, effect in manifest.get("effects", {}).items()}
    settings = dict(flatten_settings(manifest["config"]))
    if BETA not in settings or SEED not in settings:
        raise EvaluationError(f"{folder} is no run of a selector", expected=f"{BETA} and {SEED}")
    if not (folder / "evaluate" / "conditions.json").is_file():
        raise EvaluationError(f"{folder} was not evaluated", fix="run it to its end")
    left_out = (BETA, SEED, EPOCHS)
    subsets = _read(folder / "evaluate" / "subsets.json", TypeAdapter(Subsets))
    return StudyRun(
        folder=folder,
        beta=float(settings[BETA]),
        seed=int(settings[SEED]),
        settings={
            key: value
            for key, value in settings.items()
            if key not in left_out and kinds.get(key) != "harmless"
        },
        evaluated=_read(folder / "evaluate" / "conditions.json", TypeAdapter(Evaluated)),
        subsets=subsets,
        training={
            "rce": read_epochs(folder / "rce" / "metrics.jsonl"),
            "grpo": read_epochs(folder / "grpo" / "metrics.jsonl"),
        },
        cells=_read_cells(folder / "evaluate" / "cells", subsets),
        first_gap=_read_first_gap(folder / "grpo" / "on_policy.json"),
    )


def _read(path: Path, shape: TypeAdapter[Any]) -> Any:
    try:
        return shape.validate_python(read_json(path, dict))
    except ValidationError as error:
        first = error.errors()[0]
        got = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise DataError(f"{path} is damaged", got=got, fix="evaluate the run again") from error


def _read_first_gap(path: Path) -> tuple[float, float] | None:
    if not path.is_file():
        return None
    found = read_json(path, dict)
    return max(found["max_log_ratio"], found["max_kl"] or 0.0), found["tolerance"]


def _read_cells(folder: Path, subsets: Subsets) -> dict[Cell, dict[str, Answered]]:
    expected = {item for ids in subsets.subsets.values() for item in ids}
    found: dict[Cell, dict[str, Answered]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        name = _CELL.fullmatch(path.stem)
        if name is None:
            raise DataError(f"{path} is not named like a cell", expected="SYSTEM-shots-N.jsonl")
        rows = TypeAdapter(list[Answered]).validate_python(read_jsonl(path))
        if {row.id for row in rows} == expected and len(rows) == len(expected):
            cell = Cell(name["system"], int(name["epoch"] or 0), int(name["shots"]))
            found[cell] = {row.id: row for row in rows}
    return found
