"""The processes of a training that are this machine's: their start, how they stand, their end."""

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from groupwise.core import ChildProcess, start_child, stop_children
from groupwise.flow.worker import Job
from groupwise.training import SHARDING

WORKER = "groupwise.flow.worker"
PATIENCE_S = 10.0

Codes = Mapping[int, int | None]
"""Of processes by rank: exit codes, below 0 a signal's; None: at work."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which processes train together.

    Attributes:
        processes: how many, of all machines.
        device: ``cpu``, or ``cuda`` with one GPU each.
        backend: how they exchange gradients.
        sharding: what each holds, as ``ComputeSettings`` has it.
        engine: what starts them, ``local`` or ``ray``.
        nodes: machines that have equally many of them each.
    """

    processes: int
    device: str
    backend: str
    sharding: str = "none"
    engine: str = "local"
    nodes: int = 1

    @property
    def per_node(self) -> int:
        """How many each machine has."""
        return self.processes // self.nodes


class Workers:
    """Processes that this machine has started.

    Args:
        job: of each.
        layout: of all machines.
        node: the number of this one.
        address: of this machine, as the others reach it; "": there are none.
        logs: takes what each process says.
        cwd: the working folder of each; None: that of this process.
    """

    def __init__(
        self,
        job: Job,
        layout: Layout,
        *,
        logs: Path,
        node: int = 0,
        address: str = "",
        cwd: str | None = None,
    ) -> None:
        # -P: the working folder is no place to import from, as with the installed command.
        command = [sys.executable, "-P", "-m", WORKER, job.to_json()]
        self._job, self._children = job, dict[int, ChildProcess]()
        try:
            for local_rank in range(layout.per_node):
                rank = node * layout.per_node + local_rank
                self._children[rank] = start_child(
                    command,
                    log=logs / f"{rank}.log",
                    title=_make_title(rank, layout),
                    env={**os.environ, **describe_place(rank, layout, address)},
                    cwd=cwd,
                )
        except BaseException:
            self.stop()
            raise

    @property
    def log_start(self) -> int:
        """Where the first of them begins in its log, bytes."""
        return next(iter(self._children.values())).log_start

    def look(self) -> Codes:
        """Return how each stands."""
        return {rank: child.process.poll() for rank, child in self._children.items()}

    def stop(self) -> Codes:
        """End all; return how each stood before."""
        codes = self.look()
        stop_children(list(self._children.values()), patience_s=PATIENCE_S)
        return codes

    def read_refusal(self) -> str | None:
        """Return what one of them refuses, in its words."""
        return self._job.read_refusal()


def _make_title(rank: int, layout: Layout) -> str:
    place = f" on {socket.gethostname()}" if layout.nodes > 1 else ""
    return f"process {rank} of {layout.processes}{place}, {datetime.now(UTC).isoformat()}"


def describe_place(rank: int, layout: Layout, address: str) -> Mapping[str, str]:
    """Return what a process is told by its environment, under the names that all launchers use."""
    num_cpus = len(os.sched_getaffinity(0))
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % layout.per_node),
        "WORLD_SIZE": str(layout.processes),
        "LOCAL_WORLD_SIZE": str(layout.per_node),
        "ACCELERATE_USE_CPU": "true" if layout.device == "cpu" else "false",
        SHARDING: layout.sharding,
        **_describe_interfaces(layout, address),
        # Or DDP warns, in every training, that it looked for weights without a gradient.
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "OMP_NUM_THREADS": os.environ.get(
            "OMP_NUM_THREADS", str(max(1, num_cpus // layout.per_node))
        ),
    }


def _describe_interfaces(layout: Layout, address: str) -> Mapping[str, str]:
    """Return by which interface gradients go: of one machine none leave it.

    Between machines, what the user says comes first: some have a faster network for it.
    """
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    if layout.nodes == 1:
        loopback = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
        return dict.fromkeys(names, loopback)
    found = next(
        name
        for name, places in psutil.net_if_addrs().items()
        if any(place.address == address for place in places)
    )
    return {name: os.environ.get(name, found) for name in names}
