"""Running a Task from Python: the same way as ``groupwise run``, with its progress printed."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import Say
from groupwise.flow.distributed import help_first, join_launched
from groupwise.flow.settings import RunConfig
from groupwise.flow.task import Task
from groupwise.pipeline import find_recipe, run_recipe


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


def find_address(task: Callable[..., Any]) -> str | None:
    """Return ``module:name`` by which another process can import a class, or None."""
    module = sys.modules.get(task.__module__)
    if task.__module__ == "__main__" or getattr(module, task.__name__, None) is not task:
        return None
    return f"{task.__module__}:{task.__qualname__}"
