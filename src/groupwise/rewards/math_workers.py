"""Processes that compare mathematical answers, so that no answer can stop training.

math-verify bounds its time with signals, which only the main thread may use, and simplifying can
hang in code that no signal interrupts. Here a process that takes too long is ended and replaced.
"""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Literal

from groupwise.core import RewardError

Verdict = Literal["equal", "different", "parsed", "unparsable", "too large", "too slow", "unknown"]

_VERDICTS: tuple[Verdict, ...] = (
    *("equal", "different", "parsed", "unparsable", "too large", "too slow"),
    "unknown",
)
_PROGRAM = Path(__file__).with_name("math_worker.py")


class MathWorkers:
    """Compare answers in other processes; may be used from several threads.

    They start with the first question. One that hangs on an answer holds up no other answer.

    Args:
        num_workers: comparisons at a time.
        cpu_limit_s: CPU seconds for one comparison; more is ``too slow``.
        wall_limit_s: seconds to wait for one comparison; more is ``unknown``.
        memory_mib: address space of each process.
    """

    def __init__(
        self,
        num_workers: int = 4,
        *,
        cpu_limit_s: float = 5.0,
        wall_limit_s: float = 60.0,
        memory_mib: int = 2048,
    ) -> None:
        self.num_workers = num_workers
        self.cpu_limit_s = cpu_limit_s
        self.wall_limit_s = wall_limit_s
        self.memory_mib = memory_mib
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._group: _Group | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Copies start processes of their own."""
        limits = (self.num_workers, self.cpu_limit_s, self.wall_limit_s, self.memory_mib)
        return _rebuild, limits

    def parse(self, gold: str) -> Verdict:
        """Return ``parsed`` or why not."""
        return self._ask({"gold": gold})

    def compare(self, gold: str, answer: str) -> Verdict:
        """Return ``equal``, ``different`` or why this cannot be said.

        ``unparsable``, ``too large`` and ``too slow`` are about the answer if the gold answer is
        parsed; ``unknown`` is about the machine.
        """
        return self._ask({"gold": gold, "answer": answer})

    def _ask(self, request: dict[str, str]) -> Verdict:
        if self._owner != os.getpid():
            self._lock, self._owner, self._group = threading.Lock(), os.getpid(), None
        with self._lock:
            if self._group is None:
                self._group = _Group(self.num_workers, self.cpu_limit_s, self.memory_mib)
                weakref.finalize(self, self._group.end, os.getpid())
            group = self._group
        verdict = group.ask(json.dumps(request).encode() + b"\n", self.wall_limit_s)
        if verdict is not None:
            return verdict
        with self._lock:
            if self._group is group:
                self._group = None
        group.check()
        return "unknown"


class _Group:
    """The processes of one start."""

    def __init__(self, num_workers: int, cpu_limit_s: float, memory_mib: int) -> None:
        pairs = [socket.socketpair() for _ in range(num_workers)]
        self._idle: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        theirs = [pair[1].fileno() for pair in pairs]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", str(_PROGRAM), str(cpu_limit_s), str(memory_mib)),
                *map(str, theirs),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=theirs,
            process_group=0,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        for ours, other in pairs:
            other.close()
            self._idle.put(ours)

    def ask(self, request: bytes, wall_limit_s: float) -> Verdict | None:
        """Return the verdict; None if the processes are gone or stand still."""
        link = self._idle.get()
        link.settimeout(wall_limit_s)
        try:
            link.sendall(request)
            line = link.recv(4096)
        except OSError:
            line = b""
        finally:
            self._idle.put(link)
        return _read_verdict(line) if line else None

    def check(self) -> None:
        """End what is left."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        self.end(os.getpid())
        if self._process.returncode > 0:
            said = self._read_errors()
            raise RewardError(f"the process that compares mathematics ended ({said})")

    def end(self, owner: int) -> None:
        """End all processes; not from a fork, which has only a copy of the handle."""
        if owner != os.getpid():
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read_errors(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing said"


def _rebuild(
    num_workers: int, cpu_limit_s: float, wall_limit_s: float, memory_mib: int
) -> MathWorkers:
    return MathWorkers(
        num_workers, cpu_limit_s=cpu_limit_s, wall_limit_s=wall_limit_s, memory_mib=memory_mib
    )


def _read_verdict(line: bytes) -> Verdict:
    said = json.loads(line)
    return next(verdict for verdict in _VERDICTS if verdict == said)
