"""The arms of a β study, as the files of their runs say it; nothing is computed here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from groupwise.core import (
    EvaluationError,
    RunFolder,
    check_records,
    flatten_settings,
    read_json,
)
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
from groupwise_recipes.demo_selection.study.epochs import Epoch, read_epochs

BETA, SEED, EPOCHS = "grpo.beta", "seed", "grpo.epochs"
Phase = Literal["rce", "grpo"]
Answers = Mapping[str, CellRow]
"""What came of each test item that was asked."""


@dataclass(frozen=True, eq=False)
class StudyRun:
    """One training with one β and one seed.

    Attributes:
        folder: the run.
        beta: as configured.
        seed: as configured.
        settings: all others that can change a result, by dotted key; of what comes from outside,
            and of code, the digest.
        evaluated: what its cells share.
        subsets: of the test items.
        training: finished epochs by phase.
        cells: what came of the items that were asked.
        first_gap: greatest log ratio (absolute) or KL before the first update of GRPO, and what
            rounding explains; None: the check was not recorded.
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

    @property
    def sizes(self) -> set[int]:
        """Numbers of items of its subsets."""
        return set(map(int, self.subsets.subsets))

    def list_items(self, size: int) -> Sequence[str]:
        """Return the test items of a subset."""
        return self.subsets.subsets[str(size)]

    def find_trained(self, epoch: int, shots: int) -> Answers | None:
        """Return the answers of an epoch of GRPO; epoch 0 is the selector it starts from.

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
    check_records(folder)
    kinds = {path: effect["kind"] for path, effect in manifest.get("effects", {}).items()}
    settings = dict(flatten_settings(manifest["config"]))
    if BETA not in settings or SEED not in settings:
        raise EvaluationError(f"{folder} is no run of a selector", expected=f"{BETA} and {SEED}")
    if not (folder / "evaluate" / FACTS).is_file():
        raise EvaluationError(f"{folder} was not evaluated", fix="run it to its end")
    evaluation = folder / "evaluate"
    return StudyRun(
        folder=folder,
        beta=float(settings[BETA]),
        seed=int(settings[SEED]),
        settings={
            key: value
            for key, value in {**settings, **manifest.get("inputs", {})}.items()
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
        first_gap=_read_first_gap(folder / "grpo" / "on_policy.json"),
    )


def _read_first_gap(path: Path) -> tuple[float, float] | None:
    if not path.is_file():
        return None
    found = read_json(path, dict)
    return max(found["max_log_ratio"], found["max_kl"] or 0.0), found["tolerance"]
