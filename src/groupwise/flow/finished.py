"""A run that has policies, as it is asked, evaluated on other data and exported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import (
    ConfigError,
    RunError,
    RunFolder,
    check_folder,
    check_records,
    describe_unknown,
    load_config,
)
from groupwise.evaluation.predictions import RunPolicy, read_policies
from groupwise.pipeline import Recipe, find_recipe
from groupwise.serving import Predictor
from groupwise.training.checkpoints import check_checkpoint

if TYPE_CHECKING:
    from groupwise.flow.task import Task


BASE = "prompt"
"""The name of the untrained policy."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run with at least one policy."""

    folder: Path
    recipe: Recipe[Any]
    task: Task[Any]
    config: Any

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that are done."""
        return tuple(sorted(path.parent.name for path in self.folder.glob("*/step.json")))

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that can be asked."""
        trained = [name for name in self.steps if (self.folder / name / "policy").is_dir()]
        return (*trained, BASE)

    def choose_policy(self, name: str | None = None) -> str:
        """Return the name of a policy, or ``STEP/checkpoint-N``; None: the main one.

        The main one is the last that the run's evaluation describes.

        Raises:
            RunError: if there is no such policy (yet).
        """
        if name is None:
            described = read_policies(self.folder)
            main = described.choose_last([one.name for one in described.listed] or [BASE])
            if main == BASE or main not in self.policies:
                raise RunError(
                    f"{self.folder} has no main policy yet",
                    fix=f"finish it (run --resume --out {self.folder}), "
                    f"or name one: {', '.join(f'RUN:{name}' for name in self.policies)}",
                )
            return main
        is_checkpoint = "/checkpoint-" in name and (self.folder / name / "complete").is_file()
        if name not in self.policies and not is_checkpoint:
            raise RunError(describe_unknown(f"policy of {self.folder}", name, self.policies))
        return name

    def find_policy(self, name: str | None = None) -> str | Path:
        """Return the folder or hub id of a policy; as ``choose_policy``.

        Raises:
            RunError: if a file of it is not what its training wrote, too.
        """
        chosen = self.choose_policy(name)
        if chosen == BASE:
            return self.task.find_base(self.config, self.folder)
        if "/" in chosen:
            check_checkpoint(self.folder / chosen)
            return self.folder / chosen
        check_folder(self.folder, f"{chosen}/policy")
        return self.folder / chosen / "policy"

    def describe_policy(self, name: str | None = None) -> tuple[RunPolicy, ...]:
        """Return what the run says of a policy, behind those that it was trained from.

        A checkpoint has the name ``STEP-checkpoint-N`` and no other budget than its steps.
        """
        chosen = self.choose_policy(name)
        step, _, checkpoint = chosen.partition("/")
        *before, found = read_policies(self.folder).list_ancestors(step)
        if checkpoint:
            num_steps = int(checkpoint.rpartition("-")[2])
            found = replace(
                found,
                name=f"{step}-{checkpoint}",
                title=f"{found.title}, step {num_steps:,}",
                title_zh=f"{found.title_zh}，第 {num_steps:,} 步",
                budget={"num_steps": num_steps},
            )
        chain = [*before, found]
        return tuple(
            replace(one, weights=one.weights and str((self.folder / one.weights).absolute()))
            for one in chain
        )

    def open_predictor(self, policy: str | None = None) -> Predictor:
        """Return what answers requests with a policy; None: the main one.

        Raises:
            RunError: if there is no such policy, or rows would be asked otherwise than the run's.
        """
        self.task.check_tools(self.config, self.folder)
        return self.task.open_predictor(self.config, self.find_policy(policy), self.folder)


def open_run(run: Path) -> FinishedRun:
    """Return a run, to be asked.

    Raises:
        ConfigError: if its recipe answers no new rows.
        RunError: if there is no run, or it is not what its steps wrote.
    """
    manifest = RunFolder(run).read_manifest()
    check_records(run)
    recipe = find_recipe(manifest["recipe"], run=run)
    if recipe.task is None:
        raise ConfigError(f"the recipe {recipe.name} answers no new rows: it is not made of a Task")
    config = load_config(recipe.load_config_type(), manifest.get("config", {}))
    return FinishedRun(run, recipe, recipe.task(), config)
