"""A process of its own that compares mathematical answers, so that no answer can stop training.

math-verify bounds its time with signals, which only the main thread may use, and simplifying can
hang in code that no signal interrupts. Here the process is ended from outside and replaced.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from typing import IO, Literal

from groupwise.core import RewardError

Verdict = Literal["equal", "different", "parsed", "unparsable", "too large", "too slow", "unknown"]

_VERDICTS: tuple[Verdict, ...] = ("equal", "different", "parsed", "unparsable", "too large")


class MathProcess:
    """Compares answers in another process; may be used from several threads.

    Args:
        cpu_limit_s: CPU seconds for one comparison; more is ``too slow``.
        wall_limit_s: seconds to wait for one comparison; more is ``unknown``.
        memory_mib: address space of the process.
    """

    def __init__(
        self, *, cpu_limit_s: float = 5.0, wall_limit_s: float = 60.0, memory_mib: int = 2048
    ) -> None:
        self.cpu_limit_s = cpu_limit_s
        self.wall_limit_s = wall_limit_s
        self.memory_mib = memory_mib
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Copies start a process of their own."""
        return _rebuild, (self.cpu_limit_s, self.wall_limit_s, self.memory_mib)

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
            self._lock, self._owner, self._process = threading.Lock(), os.getpid(), None
        with self._lock:
            process = self._process or self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                return self._find_cause(process)
            if not select.select([process.stdout], [], [], self.wall_limit_s)[0]:
                process.kill()
            line = process.stdout.readline()
            return _read_verdict(line) if line else self._find_cause(process)

    def _start(self) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "groupwise.rewards.math_worker"),
                *(str(self.cpu_limit_s), str(self.memory_mib)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        weakref.finalize(self, _stop, self._process, os.getpid())
        return self._process

    def _find_cause(self, process: subprocess.Popen[bytes]) -> Verdict:
        """Return the verdict on a request that ended the process."""
        self._process = None
        code = process.wait()
        if code == -signal.SIGPROF:
            return "too slow"
        if code < 0:
            return "unknown"
        raise RewardError(f"the process that compares mathematics ended ({self._read_errors()})")

    def _read_errors(self) -> str:
        if self._errors is None:
            return "nothing said"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing said"


def _rebuild(cpu_limit_s: float, wall_limit_s: float, memory_mib: int) -> MathProcess:
    return MathProcess(cpu_limit_s=cpu_limit_s, wall_limit_s=wall_limit_s, memory_mib=memory_mib)


def _read_verdict(line: bytes) -> Verdict:
    said = json.loads(line)
    return next(verdict for verdict in _VERDICTS if verdict == said)


def _stop(process: subprocess.Popen[bytes], owner: int) -> None:
    """End the process; not from a fork, which has only a copy of the handle."""
    if owner == os.getpid() and process.poll() is None:
        process.kill()
        process.wait()
