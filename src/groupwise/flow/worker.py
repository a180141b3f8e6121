"""One of the processes that train together: ``python -m groupwise.flow.worker JOB``.

It finds recipe, config and stage in the run folder, as the process that started it does, and does
the same work on its part of each step.
"""

import os
import re
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import TypeAdapter

from groupwise.core import (
    GroupwiseError,
    RunError,
    RunFolder,
    describe_disk,
    load_config,
    write_text,
)
from groupwise.flow.stages import find_work, make_step
from groupwise.pipeline import Planner, StepContext, find_recipe
from groupwise.training import count_processes, find_local_rank, find_rank

WAITED = 75
"""Exit code of a process that has waited for another in vain (EX_TEMPFAIL of sysexits.h)."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a process is to do.

    Attributes:
        run: the run folder.
        step: whose work it is.
        is_resumed: as for a ``StepContext``.
        inputs: the digests that the step was planned with.
        backend: of the process group.
        meeting: a folder in which the processes find each other, empty when they start.
        timeout_s: how long one waits for the others: the first one asks for scores and looks at
            validation meanwhile.
    """

    run: str
    step: str
    is_resumed: bool
    inputs: dict[str, str]
    backend: str
    meeting: str
    timeout_s: float

    def to_json(self) -> str:
        """Return it as one argument of a command."""
        return _JOB.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Return the job that ``to_json`` gave."""
        return _JOB.validate_json(text)

    def refuse(self, sentence: str) -> None:
        """Say, before this process ends, what a user has to change."""
        write_text(Path(self.meeting) / f"refused-{find_rank()}.txt", sentence)

    def read_refusal(self) -> str | None:
        """Return what the first process that said so refuses; None: none does."""
        found = sorted(Path(self.meeting).glob("refused-*.txt"))
        return found[0].read_text(encoding="utf-8") if found else None


_JOB = TypeAdapter(Job)
_TIMED_OUT = re.compile("timed out|timeout", re.IGNORECASE)
"""What collectives of gloo and of the store say; torch has no kind of error for it."""


def do_part(job: Job) -> None:
    """Do this process's part of a step.

    Raises:
        RunError: if code that the step depends on is not that which it was planned with.
    """
    run = Path(job.run)
    manifest = RunFolder(run).read_manifest()
    recipe = find_recipe(manifest["recipe"])
    config = load_config(recipe.load_config_type(), manifest["config"])
    assert recipe.task is not None
    task = recipe.task()
    planner = Planner(config, facts=task.facts(config, run), inputs=job.inputs)
    stage = next(one for one in task.stages(config) if one.name == job.step)
    step = make_step(stage, task, planner)
    if dict(step.inputs) != job.inputs:
        raise RunError(
            f"what {job.step} depends on has changed since the run was started",
            got=", ".join(sorted(n for n, _ in step.inputs.items() ^ job.inputs.items())),
            fix="start it again with --resume",
        )
    context = StepContext(
        run=run,
        folder=run / step.name,
        name=step.name,
        is_resumed=job.is_resumed,
        uses=step.uses,
        say=_say,
        config=step.config,
        inputs=step.inputs,
    )
    find_work(stage)(task, context)


def _say(line: str) -> None:
    sys.stderr.write(f"  {line}\n")


def find_refusal(job: Job) -> str | None:
    """Do this process's part; return what a user has to change for that, or None: it is done."""
    try:
        do_part(job)
    except GroupwiseError as error:
        return str(error)
    except OSError as error:
        refused = describe_disk(error, Path(job.run))
        if refused is None:
            raise
        return f"{refused}."
    return None


def main(given: str) -> int:
    """Join the other processes and work; return the exit code."""
    job = Job.from_json(given)
    try:
        _join(job)
        refused = find_refusal(job)
    except RuntimeError as error:
        if not _TIMED_OUT.search(str(error)):
            raise
        traceback.print_exc()
        return WAITED
    if refused is not None:
        job.refuse(refused)
        return 2
    return 0


def _join(job: Job) -> None:
    import torch

    if job.backend == "nccl":
        torch.cuda.set_device(find_local_rank())
    torch.distributed.init_process_group(
        job.backend,
        init_method=(Path(job.meeting) / "store").as_uri(),
        rank=find_rank(),
        world_size=count_processes(),
        timeout=timedelta(seconds=job.timeout_s),
    )


if __name__ == "__main__":
    code = 1
    try:
        code = main(sys.argv[1])
    except Exception:  # noqa: BLE001 (the outermost boundary)
        traceback.print_exc()
    # What still holds the process group is taken apart with the interpreter, and threads of the
    # group that then run abort a process whose work is done.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
