"""Launch arguments of another trainer, and which settings of the run they stand for."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupwise.core import dump_config, find_effect, flatten_settings, list_effects
from groupwise.flow.settings import FlowConfig
from groupwise.training import GrpoSettings

_NOTHING = (None, False, 0, 0.0, [], "none")
"""Values of settings that ask for nothing."""


@dataclass(slots=True)
class Launch:
    """What starts a training, filled setting by setting so that none is lost in silence.

    Attributes:
        command: that the arguments follow.
        arguments: by name, as they are typed.
        environment: variables that are set before.
        told: settings that an argument stands for.
        remarks: clauses about what is not as in the run.
    """

    command: str
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    told: set[str] = field(default_factory=set[str])
    remarks: list[str] = field(default_factory=list[str])

    def tell(self, settings: str, arguments: Mapping[str, str]) -> None:
        """Add arguments for settings, whose paths have spaces between them."""
        self.arguments |= arguments
        self.told |= set(settings.split())

    def remark(self, settings: str, clause: str) -> None:
        """Say of settings how they differ there."""
        self.remarks.append(clause)
        self.told |= set(settings.split())

    def list_untold(self, config: FlowConfig) -> list[str]:
        """Return what is not as in the run: the remarks, and settings without a counterpart."""
        lost = [
            f"grpo.{path} {value}"
            for path, value in _list_meant(config.grpo)
            if f"grpo.{path}" not in self.told
        ]
        return [*self.remarks, *lost]


def count_updates(grpo: GrpoSettings) -> int:
    """Return the updates on the completions of one round."""
    micro_batches = grpo.steps_per_generation or grpo.gradient_accumulation
    return micro_batches // grpo.gradient_accumulation * grpo.num_iterations


def find_look_steps(grpo: GrpoSettings) -> int | None:
    """Return after how many updates validation is looked at each time; None: never."""
    return grpo.validation.every_steps if grpo.validation else grpo.heldout_every_steps


def write_script(launch: Launch, *, trainer: str, model: str, untold: Sequence[str]) -> str:
    """Return a shell script that starts the training; further arguments go behind the others.

    Args:
        launch: what is started.
        trainer: its name.
        model: hub id or folder, as seen from the script's folder, of what GRPO starts from; empty:
            whoever starts it has to say.
        untold: what is not as in the run.
    """
    lacking = "what GRPO starts from: a model folder or a hub id"
    chosen = f"${{MODEL:-{shlex.quote(model)}}}" if model else f'"${{MODEL:?{lacking}}}"'
    head = ["#!/bin/sh", f"# GRPO of a Groupwise run with {trainer}, on one GPU."]
    if untold:
        head += ["# Not as in the run:", *(f"# - {' '.join(clause.split())}" for clause in untold)]
    exports = [f"export {name}={shlex.quote(value)}" for name, value in launch.environment.items()]
    lines = [launch.command, *(f"  {argument}" for argument in launch.arguments.values()), '  "$@"']
    start = ["set -eu", 'cd "$(dirname "$0")"', f"MODEL={chosen}", *exports]
    return "\n".join([*head, *start, " \\\n".join(lines), ""])


def _list_meant(grpo: GrpoSettings) -> Iterator[tuple[str, Any]]:
    """Yield the settings of GRPO that ask for something and may change a result."""
    effects = list_effects(GrpoSettings)
    unused = {"lora", "prompt"} - {grpo.trainable.method}
    skipped = tuple(f"trainable.{name}." for name in unused)
    for path, value in flatten_settings(dump_config(grpo)):
        is_harmless = find_effect(effects, path).kind == "harmless"
        if not is_harmless and value not in _NOTHING and not path.startswith(skipped):
            yield path, value
