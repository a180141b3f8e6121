"""Child processes with a log, which die with the process that started them, however it ends."""

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NUM_LAST_LINES = 8
_MAX_LINE = 500
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A process that was started here, in a process group of its own."""

    process: subprocess.Popen[bytes]
    log: Path
    log_start: int  # where what it says begins in the log, bytes
    started_s: float  # by the monotonic clock

    @property
    def duration_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.started_s

    def describe_failure(self) -> str:
        """Return how it ended, by a signal or with an exit code, and the last lines it said."""
        code = self.process.returncode
        end = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        lines = self.log.read_bytes()[self.log_start :].decode(errors="replace").splitlines()
        last = [line[:_MAX_LINE] for line in lines if line.strip()][-_NUM_LAST_LINES:]
        return "\n".join([end, *last])


def start_child(
    command: Sequence[str], *, log: Path, title: str, env: Mapping[str, str] | None = None
) -> ChildProcess:
    """Start a child process; ``log`` gets a line ``title``, and then what it says."""
    log.parent.mkdir(exist_ok=True)
    with log.open("ab") as stream:
        start = stream.tell()
        stream.write(f"{title}\n".encode())
        stream.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=env,
            process_group=0,
            preexec_fn=make_dependent(os.getpid()),
        )
    return ChildProcess(process, log, start, time.monotonic())


def stop_children(children: Sequence[ChildProcess], *, patience_s: float = 60.0) -> None:
    """Ask all to stop and wait for them; those that do not, or a second Ctrl-C, are killed."""
    deadline_s = time.monotonic() + patience_s
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            for child in children:
                if child.process.poll() is None:
                    os.killpg(child.process.pid, number)
            for child in children:
                child.process.wait(max(0.0, deadline_s - time.monotonic()))
        deadline_s = math.inf


def make_dependent(parent: int) -> Callable[[], None]:
    """Return what a new process does first: on Linux, ask to be killed when its parent dies."""
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def depend() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)

    return depend
