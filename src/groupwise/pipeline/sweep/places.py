"""Where cells run: processes of this machine, a device each if there are some, or of a cluster."""

import os
import socket
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from groupwise.core import (
    ChildProcess,
    DataError,
    count_devices,
    join_cluster,
    list_nodes,
    share_cpus,
    start_child,
    stop_children,
)


@dataclass(frozen=True, slots=True)
class CellJob:
    """A cell's process before it is started; all paths are absolute.

    Attributes:
        arguments: of Python.
        config: the file that it reads, which is there.
        log: takes what it says.
        title: a line of the log.
    """

    arguments: Sequence[str]
    config: Path
    log: Path
    title: str


@dataclass(frozen=True, slots=True)
class CellEnd:
    """How a cell's process ended.

    Attributes:
        code: exit code; None: nobody knows, its place was lost with it.
        error: how it failed, else empty.
    """

    code: int | None
    error: str = ""


class CellProcess(Protocol):
    """A cell's process."""

    @property
    def pid(self) -> int:
        """The process of this machine that ends when it does."""
        ...

    @property
    def duration_s(self) -> float:
        """Seconds since it was started."""
        ...

    def look(self) -> CellEnd | None:
        """Return how it ended; None while it runs."""
        ...


class Places(Protocol):
    """Places for cells."""

    @property
    def num_places(self) -> int:
        """How many cells run at once."""
        ...

    def start(self, job: CellJob) -> CellProcess:
        """Start a cell in a free place."""
        ...

    def stop(self, processes: Sequence[Any]) -> None:
        """End all that run."""
        ...


@dataclass(frozen=True, slots=True)
class _LocalProcess:
    child: ChildProcess
    device: str | None

    @property
    def pid(self) -> int:
        return self.child.process.pid

    @property
    def duration_s(self) -> float:
        return self.child.duration_s

    def look(self) -> CellEnd | None:
        code = self.child.process.poll()
        return None if code is None else _describe_end(self.child)


class LocalPlaces:
    """Places on this machine.

    Args:
        num_places: cells at once, where no devices are named.
        devices: the GPUs to be dealt out, one to each cell, as CUDA_VISIBLE_DEVICES names them.
    """

    def __init__(self, num_places: int = 1, devices: Sequence[str] = ()) -> None:
        self.num_places = len(devices) or num_places
        self._devices = tuple(devices)
        self._started: list[_LocalProcess] = []

    def start(self, job: CellJob) -> _LocalProcess:
        """Start a cell, on a device that no running one has."""
        self._started = [one for one in self._started if one.look() is None]
        taken = {one.device for one in self._started}
        device = next((one for one in self._devices if one not in taken), None)
        own = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
        started = _LocalProcess(_start(job, own), device)
        self._started.append(started)
        return started

    def stop(self, processes: Sequence[_LocalProcess]) -> None:
        """Ask all to stop and wait for them; those that do not are killed."""
        stop_children([one.child for one in processes])


@dataclass(frozen=True, slots=True)
class _RayProcess:
    ray: Any
    reference: Any
    started_s: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def duration_s(self) -> float:
        return time.monotonic() - self.started_s

    def look(self) -> CellEnd | None:
        done, _ = self.ray.wait([self.reference], timeout=0)
        if not done:
            return None
        try:
            return self.ray.get(self.reference)
        except self.ray.exceptions.RayTaskError as error:
            return CellEnd(2, str(error.cause or error).splitlines()[-1])
        except self.ray.exceptions.RayError as error:
            return CellEnd(None, f"its worker was lost ({type(error).__name__})")


class RayPlaces:
    """Places on a Ray cluster: each cell is a task with a GPU, or with its share of the CPUs.

    Args:
        ray: the module, joined to the cluster.
        num_places: cells at once; None: one for each GPU, or CPU where there are no GPUs.
    """

    def __init__(self, ray: Any, num_places: int | None) -> None:
        nodes = list_nodes(ray)
        kind, num_devices = count_devices(nodes)
        self.num_places = num_places or num_devices
        # Whether a lost cell runs again is the sweep's to say, which notes it.
        self._run = ray.remote(
            num_cpus=share_cpus(nodes, self.num_places),
            num_gpus=1 if kind == "GPU" else 0,
            max_retries=0,
        )(run_in_task)
        self._ray = ray

    def start(self, job: CellJob) -> _RayProcess:
        """Hand a cell to the cluster."""
        return _RayProcess(self._ray, self._run.remote(job, os.getcwd()))

    def stop(self, processes: Sequence[_RayProcess]) -> None:
        """End all as a kill would: what is written is whole, and the next start goes on."""
        for one in processes:
            self._ray.cancel(one.reference, force=True)


def run_in_task(job: CellJob, cwd: str) -> CellEnd:
    """Run a cell to its end, in a worker of a cluster, which takes it with it.

    Raises:
        DataError: if this machine does not find the sweep.
    """
    if not job.config.is_file():
        raise DataError(
            f"the machine {socket.gethostname()} does not find {job.config}",
            fix="put the sweep on a file system that all machines have under one path",
        )
    child = _start(job, {}, cwd=cwd)
    child.process.wait()
    return _describe_end(child)


def open_places(
    address: str | None, num_places: int | None, devices: Sequence[str]
) -> AbstractContextManager[Places]:
    """Give the places that a sweep is to use.

    Args:
        address: of a Ray cluster, as ``join_cluster`` takes it; None: this machine, without Ray.
        num_places: cells at once; None: as many as there are devices, on this machine 1.
        devices: of this machine, as for ``LocalPlaces``.
    """
    if address is None:
        return nullcontext(LocalPlaces(num_places or 1, devices))
    return _join(address, num_places)


@contextmanager
def _join(address: str, num_places: int | None) -> Generator[Places]:
    with join_cluster(address, min_cpus=num_places or 1) as ray:
        yield RayPlaces(ray, num_places)


def _start(job: CellJob, own: Mapping[str, str], *, cwd: str | None = None) -> ChildProcess:
    # -P: the working folder is no place to import from, as with the installed command.
    command = [sys.executable, "-P", *job.arguments]
    return start_child(command, log=job.log, title=job.title, env={**os.environ, **own}, cwd=cwd)


def _describe_end(child: ChildProcess) -> CellEnd:
    code = child.process.returncode
    return CellEnd(code, child.describe_failure() if code else "")
