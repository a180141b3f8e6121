"""A run by several machines: the first does it, the others start processes when they are told."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from groupwise.core import Config, RunError, Say
from groupwise.flow.channels import Channel, LostError, enter
from groupwise.flow.crew import introduce, lead
from groupwise.flow.machines import find_machine, forget_launcher
from groupwise.flow.settings import FlowConfig
from groupwise.flow.worker import Job
from groupwise.flow.workers import Codes, Layout, Workers

_POLL_S = 0.1


def share_run(
    work: Callable[[], object], config: Config, *, recipe: str, out: Path, say: Say
) -> bool:
    """Do a run on the first of its machines; on another, help that one until it has ended.

    Args:
        work: the run.
        config: its config; one without the section ``compute`` has one machine.
        recipe: its name.
        out: the run folder.
        say: told a line about the machines.

    Returns:
        Whether this machine is the first.

    Raises:
        ConfigError: if the environment does not say which machine this is, or a launcher has
            started this command more often than once on each.
        RunError: if the machines do not find each other, or the first has ended with an error.
    """
    flow = config if isinstance(config, FlowConfig) else None
    machine = find_machine(1 if flow is None else flow.compute.nodes, os.environ)
    forget_launcher()
    if flow is None or machine.num == 1:
        work()
    elif machine.rank == 0:
        with lead(machine, flow, recipe=recipe, out=out, say=say):
            work()
    else:
        say(f"machine {machine.rank} of {machine.num} looks for the first in {out}")
        help_first(enter(out), introduce(machine, flow, recipe=recipe), say=say)
    return machine.rank == 0


def help_first(channel: Channel, introduction: dict[str, Any], *, say: Say) -> None:
    """Do what the first machine says until it has ended.

    Raises:
        RunError: if it has ended with an error, or is gone.
    """
    try:
        channel.send(**introduction)
        while "end" not in (told := channel.receive() or {}):
            job, layout = Job.from_json(told["job"]), Layout(**told["layout"])
            say(f"{job.step}: {layout.per_node} of {layout.processes} processes are here")
            workers = Workers(
                job,
                layout,
                logs=Path(told["logs"]),
                node=introduction["rank"],
                address=channel.address,
                cwd=told["cwd"],
            )
            _follow(workers, channel)
    except LostError as error:
        raise RunError(
            f"the first machine is gone ({error}), and what was started here has ended",
            fix="start the command on all machines again: it goes on where it was",
        ) from error
    if told["end"] is not None:
        raise RunError(f"the first machine has ended: {told['end']}")


def _follow(workers: Workers, channel: Channel) -> None:
    """Tell how processes stand until the first machine says that they are to end."""
    said: Codes | None = None
    try:
        while channel.receive(_POLL_S) is None:
            codes = workers.look()
            if codes != said:
                _tell(codes, workers, channel)
                said = codes
    finally:
        codes = workers.stop()
    _tell(codes, workers, channel, is_stopped=True)


def _tell(codes: Codes, workers: Workers, channel: Channel, *, is_stopped: bool = False) -> None:
    refusal = workers.read_refusal()
    channel.send(codes=list(codes.items()), refusal=refusal, is_stopped=is_stopped)
