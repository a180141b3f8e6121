"""The other machines of a run, as the first one sees them: let in, checked, told what to do."""

import socket
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from groupwise.core import (
    GroupwiseError,
    RunError,
    Say,
    TrainingError,
    digest_json,
    dump_config,
    is_locked,
    list_gpus,
    list_packages,
)
from groupwise.flow import channels
from groupwise.flow.channels import Channel, LostError, open_door
from groupwise.flow.machines import Machine
from groupwise.flow.settings import FlowConfig
from groupwise.flow.worker import Job
from groupwise.flow.workers import PATIENCE_S, Codes, Layout

_STOP_S = 6 * PATIENCE_S
"""For a machine to end its processes, on a busy one."""


@dataclass(slots=True)
class Other:
    """Another machine.

    Attributes:
        rank: its number.
        host: its name.
        channel: to it.
    """

    rank: int
    host: str
    channel: Channel


@dataclass(frozen=True, slots=True)
class Crew:
    """The machines of a run.

    Attributes:
        address: of this one, the first, as the others reach it; "": it is alone.
        others: the others, by their numbers.
    """

    address: str = ""
    others: Sequence[Other] = ()

    def list_hosts(self) -> list[str]:
        """Return the names of all machines, by their numbers."""
        return [socket.gethostname(), *(other.host for other in self.others)]


_ALONE = Crew()
CREW: ContextVar[Crew] = ContextVar("CREW", default=_ALONE)
"""Of the run that this process does."""


@dataclass(slots=True)
class OtherWorkers:
    """Processes that another machine has started.

    Attributes:
        other: the machine.
        codes: how each process stood when it was last said.
        refusal: what one of them refuses.
    """

    other: Other
    codes: dict[int, int | None]
    refusal: str | None = None
    is_stopped: bool = field(default=False)

    def look(self) -> Codes:
        """Return how each stands.

        Raises:
            TrainingError: if the machine is gone.
        """
        while self._hear(0):
            pass
        return self.codes

    def stop(self) -> Codes:
        """Let the machine end all; return how each stood before.

        Raises:
            TrainingError: if the machine is gone.
        """
        deadline_s = time.monotonic() + _STOP_S
        with _name_lost(self.other):
            self.other.channel.send(stop=True)
            while not self.is_stopped:
                if not self._hear(deadline_s - time.monotonic()):
                    raise LostError("it does not end its processes")
        return self.codes

    def read_refusal(self) -> str | None:
        """Return what one of them refuses, in its words."""
        return self.refusal

    def _hear(self, timeout_s: float) -> bool:
        with _name_lost(self.other):
            said = self.other.channel.receive(max(0.0, timeout_s))
        if said is None:
            return False
        self.codes = {int(rank): code for rank, code in said["codes"]}
        self.refusal, self.is_stopped = said["refusal"], said["is_stopped"]
        return True


def start_others(job: Job, layout: Layout, *, logs: Path, cwd: str) -> list[OtherWorkers]:
    """Let the other machines start their processes.

    Raises:
        TrainingError: if one is gone.
    """
    started: list[OtherWorkers] = []
    for other in CREW.get().others:
        with _name_lost(other):
            other.channel.send(
                job=job.to_json(), layout=asdict(layout), logs=str(logs.resolve()), cwd=cwd
            )
        first = other.rank * layout.per_node
        ranks = range(first, first + layout.per_node)
        started.append(OtherWorkers(other, dict.fromkeys(ranks)))
    return started


@contextmanager
def _name_lost(other: Other) -> Generator[None]:
    try:
        yield
    except LostError as error:
        raise TrainingError(
            f"machine {other.rank} ({other.host}) is gone ({error})",
            fix="start the command on all machines again: it goes on from the last checkpoint",
        ) from error


@contextmanager
def lead(
    machine: Machine, config: FlowConfig, *, recipe: str, out: Path, say: Say
) -> Generator[None]:
    """Hold the other machines for a run, and tell them at its end how it has ended.

    Raises:
        ConfigError: if this machine cannot be found by the others.
        RunError: if one does not come, or would train something else.
    """
    if is_locked(out / ".lock"):
        raise RunError(f"another process is working in {out}", fix="wait for it")
    out.mkdir(parents=True, exist_ok=True)
    end: str | None = "it was stopped, or has a bug that is told there"
    others: list[Other] = []
    try:
        with open_door(out, machine.address) as door:
            say(f"waits for {machine.num - 1} more of {machine.num} machines")
            _let_in(door, machine.num, introduce(machine, config, recipe=recipe), others)
        crew = Crew(machine.address, sorted(others, key=lambda other: other.rank))
        say(f"machines: {', '.join(crew.list_hosts())}")
        token = CREW.set(crew)
        try:
            yield
        finally:
            CREW.reset(token)
        end = None
    except GroupwiseError as error:
        end = str(error)
        raise
    finally:
        for other in others:
            with suppress(LostError):
                other.channel.send(end=end)
            other.channel.close()


def introduce(machine: Machine, config: FlowConfig, *, recipe: str) -> dict[str, Any]:
    """Return what a machine tells of itself, so that no other trains something else."""
    return {
        "rank": machine.rank,
        "host": socket.gethostname(),
        "num_gpus": len(list_gpus()),
        "config": digest_json({"recipe": recipe, "config": dump_config(config)}),
        "packages": dict(list_packages()),
        "processes": config.compute.processes // machine.num,
    }


def _let_in(door: channels.Door, num: int, own: Mapping[str, Any], others: list[Other]) -> None:
    """Let all other machines in, and check each."""
    deadline_s = time.monotonic() + channels.MEET_S
    while len(others) < num - 1:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            missing = {*range(1, num)} - {other.rank for other in others}
            raise RunError(
                f"machines {', '.join(map(str, sorted(missing)))} of {num} did not come within "
                f"{channels.MEET_S:.0f} s",
                fix="start the same command on each, with this --out",
            )
        with suppress(LostError):
            if (channel := door.let_in(left_s)) and (told := channel.receive(left_s)):
                others.append(Other(told["rank"], told["host"], channel))
                _check(told, own, [0, *(other.rank for other in others)])


def _check(told: Mapping[str, Any], own: Mapping[str, Any], ranks: Sequence[int]) -> None:
    who = f"machine {told['rank']} ({told['host']})"
    if ranks.count(told["rank"]) > 1:
        raise RunError(f"two machines say that they are number {told['rank']}", got=told["host"])
    if told["config"] != own["config"]:
        raise RunError(
            f"{who} was started with other settings than the first machine ({own['host']})",
            fix="start the same command on both",
        )
    others = dict(told["packages"].items() ^ own["packages"].items())
    if others:
        name = min(others)
        raise RunError(
            f"{who} has other packages than the first machine ({own['host']})",
            got=f"{name} {told['packages'].get(name)}",
            expected=own["packages"].get(name),
        )
    if own["num_gpus"] and told["num_gpus"] < own["processes"]:
        raise RunError(
            f"{who} needs a GPU for each of {own['processes']} processes",
            got=told["num_gpus"],
            fix="hide those of the first machine (CUDA_VISIBLE_DEVICES=) to train on the CPU",
        )
