"""Running a Task from Python: the same way as ``groupwise run``, with its progress printed."""

import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import Config, RunError, Say
from groupwise.flow.distributed import find_team, introduce, join_launched
from groupwise.flow.settings import RunConfig
from groupwise.flow.stages import make_step
from groupwise.flow.task import Task
from groupwise.pipeline import Planner, Recipe, StepContext, find_recipe, run_recipe


def run(
    task: type[Task[Any]],
    config: RunConfig,
    *,
    out: Path | str,
    until: str | None = None,
    accepted: Sequence[str] = (),
    say: Say = print,
) -> Path:
    """Run a task into ``out``, or continue the run that is there; return the folder.

    Where ``torchrun`` has started the program several times, all call this, and train together.
    Numbers are in ``evaluate/metrics.json``, the report in ``report.html``. Other processes
    (``groupwise serve``, workers) find the task again by its import path; one that has none, as
    in a notebook, is known to this process alone, and ``say`` is told so.
    """
    address = find_address(task)
    recipe = find_recipe(address) if address else task.make_recipe(task.__name__)
    with join_launched():
        if help_first(recipe, config, out=Path(out)):
            return Path(out)
        if address is None:
            say(
                f"{task.__name__} has no import path, so only this process can ask or serve its "
                "run; put it into a module"
            )
        run_recipe(
            recipe,
            config,
            out=Path(out),
            until=until,
            accepted=accepted,
            report_progress=lambda progress: say(progress.describe()),
            say=lambda line: say(f"  {line}"),
        )
    return Path(out)


def help_first(recipe: Recipe[Any], config: Config, *, out: Path) -> bool:
    """Train with the first process whenever it does, until it has ended; False: this is the first.

    All find the run folder ``out``. A RunError if this process was started with other settings or
    packages than the first one, or that is gone.
    """
    team = find_team()
    if team is None or team.rank == 0:
        return False
    while told := team.hear():
        assert recipe.task is not None
        task = recipe.task()
        planner = Planner(config, facts=task.facts(config, out), inputs=told["inputs"])
        stage = next((one for one in task.stages(config) if one.name == told["step"]), None)
        step = None if stage is None else make_step(stage, task, planner)
        own = {} if step is None else introduce(config, step.inputs)
        if step is None or (others := [name for name in own if own[name] != told[name]]):
            raise RunError(
                f"process {team.rank} on {socket.gethostname()} was started with other "
                f"{' and '.join(others) if step else 'settings'} than the first one",
                fix="start the same command everywhere, from the same installation",
            )
        step.run(
            StepContext(
                run=out,
                folder=out / step.name,
                name=step.name,
                is_resumed=told["is_resumed"],
                uses=step.uses,
                config=step.config,
                inputs=step.inputs,
            )
        )
    return True


def find_address(task: Callable[..., Any]) -> str | None:
    """Return ``module:name`` by which another process can import a class, or None."""
    module = sys.modules.get(task.__module__)
    if task.__module__ == "__main__" or getattr(module, task.__name__, None) is not task:
        return None
    return f"{task.__module__}:{task.__qualname__}"
