"""A run handed to another trainer: a folder with rows, pictures, rewards and a script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol

from groupwise.core import ConfigError, Example, RunError, write_text
from groupwise.data import DropLog
from groupwise.flow.finished import FinishedRun
from groupwise.flow.settings import FlowConfig
from groupwise.flow.task import read_splits
from groupwise.flow.trainers.launch import Launch, write_script
from groupwise.flow.trainers.rewards import write_record
from groupwise.flow.trainers.swift import SwiftTrainer
from groupwise.flow.trainers.turns import copy_pictures
from groupwise.flow.trainers.verl import VerlTrainer
from groupwise.models import find_place
from groupwise.rewards import RewardSet

TrainerName = Literal["verl", "swift"]

_SPLITS = ("train", "validation")
_PLUGIN = "plugin.py"
_SCRIPT = "launch.sh"


class OtherTrainer(Protocol):
    """How rows, rewards and settings are told to a trainer."""

    name: str
    plugin: str
    ending: str

    def find_problem(self, example: Example) -> str | None:
        """Return why a prompt cannot be a row; None if it can."""
        ...

    def write_rows(
        self, path: Path, examples: Sequence[Example], config: FlowConfig, *, recipe: str
    ) -> None:
        """Write one row per example, whose pictures are below the file's folder."""
        ...

    def make_launch(self, config: FlowConfig, *, num_validation: int) -> Launch:
        """Return what starts the training."""
        ...


_TRAINERS: Mapping[TrainerName, OtherTrainer] = {"verl": VerlTrainer(), "swift": SwiftTrainer()}


@dataclass(frozen=True, slots=True)
class HandedOver:
    """What was written for another trainer.

    Attributes:
        num_rows: by split.
        drops: rows that were left out.
        files: in order; the pictures are beside them.
        untold: clauses about what the trainer does not do as the run does.
        is_from_warmup: whether GRPO starts from the run's warm-up, whose weights are not written.
    """

    num_rows: Mapping[str, int]
    drops: DropLog
    files: tuple[Path, ...]
    untold: tuple[str, ...]
    is_from_warmup: bool


def export_for_trainer(run: FinishedRun, out: Path, trainer: TrainerName) -> HandedOver:
    """Write rows, pictures, the plug-in file with the rewards, and a script that starts it all.

    Everything is below ``out``, and nothing in it names a path outside but the run's own config.

    Args:
        run: of which at least the data are ready.
        out: a new or empty folder.
        trainer: whom it is for.

    Raises:
        ConfigError: if ``out`` has files, the recipe does not train a model with GRPO, its rewards
            cannot be built again, it trains what the trainer cannot, or no row is left.
        RunError: if the data are not ready.
        DataError: if a picture cannot be read, or is not what the run wrote.
    """
    told = _TRAINERS[trainer]
    _check_trainable(run, told)
    rewards = _rebuild(run, told)
    _check_empty(out)
    drops = DropLog()
    chosen = {name: _choose(rows, told, rewards, drops) for name, rows in _read(run).items()}
    if not chosen["train"]:
        why = ", ".join(f"{count} x {reason}" for reason, count in drops.counts.items())
        raise ConfigError(f"no row of {run.folder} can be one of {told.name}", got=why or "no rows")
    launch = told.make_launch(run.config, num_validation=len(chosen["validation"]))
    untold = launch.list_untold(run.config)
    script = write_script(launch, trainer=told.name, model=_find_start(run), untold=untold)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as made:
        folder = Path(made) / out.name
        splits = {
            name: [copy_pictures(one, folder) for one in rows] for name, rows in chosen.items()
        }
        files = _write_rows(run, folder, told, splits)
        files += write_record(run, [*splits["train"], *splits["validation"]], folder, final=out)
        for name, text in ((_PLUGIN, told.plugin), (_SCRIPT, script)):
            write_text(folder / name, text)
            files.append(folder / name)
        folder.replace(out)
    counts = {name: len(rows) for name, rows in chosen.items()}
    written = tuple(out / path.name for path in files)
    return HandedOver(counts, drops, written, tuple(untold), run.config.sft is not None)


def _check_trainable(run: FinishedRun, trainer: OtherTrainer) -> None:
    recipe, config = run.recipe.name, run.config
    if not isinstance(config, FlowConfig):
        raise ConfigError(
            f"the recipe {recipe} trains no model with GRPO that {trainer.name} could"
        )
    if config.grpo.trainable.method == "prompt":
        raise ConfigError(f"{trainer.name} trains no virtual tokens", got="grpo.trainable.method")
    if config.model.quantization is not None:
        raise ConfigError(
            f"{trainer.name} is not told of weights in 4 bits", got="model.quantization"
        )
    problem = run.task.explain_bound_rewards(config)
    if problem:
        raise ConfigError(f"the rewards of this run cannot be built again elsewhere: {problem}")


def _rebuild(run: FinishedRun, trainer: OtherTrainer) -> RewardSet:
    """Return the rewards without their judge; the plug-in file will open it."""
    from groupwise.rewards.adapters import VerlScore

    rewards: RewardSet = run.task.rewards(run.config)
    if trainer.name == "verl":
        VerlScore(rewards)
    return rewards


def _check_empty(out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out} is in use", expected="a new or empty folder")


def _read(run: FinishedRun) -> dict[str, list[Example]]:
    stage = run.task.data_stage
    if stage not in run.steps:
        fix = f"finish it (run --resume --out {run.folder})"
        raise RunError(f"{run.folder} has no data yet", got=f"no {stage}", fix=fix)
    return read_splits(run.folder / stage, *_SPLITS)


def _choose(
    examples: Sequence[Example], trainer: OtherTrainer, rewards: RewardSet, drops: DropLog
) -> list[Example]:
    """Return the examples that can be rows and whose answers can be scored; log the others."""
    kept: list[Example] = []
    for example in examples:
        problem = trainer.find_problem(example)
        unusable = rewards.explain_unusable(example)
        if problem:
            drops.add(problem, example.id)
        elif unusable:
            drops.add("no reward can score its answers", f"{example.id} ({unusable})")
        else:
            kept.append(example)
    return kept


def _write_rows(
    run: FinishedRun, out: Path, trainer: OtherTrainer, splits: Mapping[str, list[Example]]
) -> list[Path]:
    written: list[Path] = []
    for name, rows in splits.items():
        if rows:
            path = out / f"{name}{trainer.ending}"
            trainer.write_rows(path, rows, run.config, recipe=run.recipe.name)
            written.append(path)
    return written


def _find_start(run: FinishedRun) -> str:
    """Return where the script looks for what GRPO starts from; empty if that is not known."""
    model: Any = run.config.model
    if run.config.sft is not None:
        return "model/merged"
    place = find_place(model.base)
    return "" if model.is_tiny or Path(place).exists() else str(place)
