"""A step: one folder of outputs, and everything those outputs depend on.

This module only describes steps; ``runner.py`` decides which of them run.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.core import Say

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step is told when it runs.

    Attributes:
        run: the run folder.
        folder: where this step writes, ``run/<name>``; it exists.
        name: the step's name.
        is_resumed: an earlier attempt with the same key was interrupted and its files are still
            in ``folder``; otherwise ``folder`` is empty.
        uses: names of the steps whose outputs may be read.
        say: tells people how far the step is.
        config: the settings that the step declares; reading any other one raises.
        inputs: the digests of what it reads from outside.
    """

    run: Path
    folder: Path
    name: str
    is_resumed: bool
    uses: tuple[str, ...] = ()
    say: Say = lambda _: None
    config: Any = None
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])

    def output_of(self, step: str) -> Path:
        """Return the folder of a step listed in ``uses``.

        Raises:
            ValueError: if it is not listed, because its changes would then go unnoticed.
        """
        if step not in self.uses:
            raise ValueError(f"step {self.name!r} reads {step!r} but does not list it in uses")
        return self.run / step


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a recipe.

    Attributes:
        name: lower case letters, digits and underscores; also the name of its folder.
        run: does the work; called with the folder empty, or as an interrupted attempt left it.
        uses: names of earlier steps whose outputs it reads.
        settings: the JSON value of the settings it depends on.
        config: what its work is given of the config: the same settings and no others.
        reads: paths of the config that it depends on.
        inputs: what it reads from outside, known by content: digests of files and of source code,
            commits of models, by the setting or module that names them.
        summary: what it does, a clause for people.
        files: names of files it also writes into the run folder itself (a report).
    """

    name: str
    run: Callable[[StepContext], None]
    uses: tuple[str, ...] = ()
    settings: Any = None
    config: Any = None
    reads: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    summary: str = ""
    files: tuple[str, ...] = ()


def describe_plan(steps: Sequence[Step]) -> dict[str, dict[str, list[str]]]:
    """Return what each step depends on: settings it ``reads``, steps it ``uses``, ``inputs``."""
    return {
        step.name: {"reads": [*step.reads], "uses": [*step.uses], "inputs": sorted(step.inputs)}
        for step in steps
    }


def check_plan(steps: Sequence[Step]) -> None:
    """Refuse a plan that cannot be run in its order."""
    seen: set[str] = set()
    for step in steps:
        if not _NAME.fullmatch(step.name) or step.name in seen:
            raise ValueError(f"step name {step.name!r} is malformed or appears twice")
        unknown = sorted(set(step.uses) - seen)
        if unknown:
            raise ValueError(f"step {step.name!r} uses {unknown}, which do not stand before it")
        seen.add(step.name)
