"""What a sandbox is given and what it answers: limits, tests, results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from groupwise.core import Config

Status = Literal["passed", "failed", "timeout", "memory", "output", "refused", "crashed"]


class Limits(Config):
    """Limits of one run; whatever goes over one is ended.

    Attributes:
        timeout_s: seconds the program and its tests may take together, by the clock. Waiting for
            host functions does not count, but see ``host_timeout_s``.
        cpu_s: seconds of processor time; None is ``timeout_s``, rounded up.
        host_timeout_s: seconds that host functions may take together, those that run at the same
            time counted once.
        memory_mib: address space of the program's process.
        output_kib: what it may print, to stdout and stderr together.
        file_mib: size of its temporary folder, and of any file in it.
        num_threads: threads the program may have; it may not start processes.
        num_host_calls: calls of host functions.
    """

    timeout_s: float = Field(default=5.0, gt=0, le=3600)
    cpu_s: float | None = Field(default=None, gt=0, le=604_800)
    host_timeout_s: float = Field(default=300.0, gt=0, le=604_800)
    memory_mib: int = Field(default=512, ge=64)
    output_kib: int = Field(default=256, ge=1)
    file_mib: int = Field(default=16, ge=1)
    num_threads: int = Field(default=16, ge=1, le=4096)
    num_host_calls: int = Field(default=1000, ge=0)


@dataclass(frozen=True, slots=True)
class ProgramTests:
    """Tests of a program: Python that uses the program's names and ends without an error.

    Attributes:
        source: the tests. They see the program's names, but not those of builtins: a program
            that defines its own ``abs`` does not change what ``abs`` is in its tests.
        entry_point: the one name that they take from the program even if it is a builtin's.
    """

    source: str
    entry_point: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended.

    Attributes:
        status: ``passed`` only if the program and its tests ran to their end; ``failed`` if one
            raised an error; ``timeout``, ``memory`` and ``output`` if it went over that limit;
            ``crashed`` if its process ended before its end; ``refused`` if nothing can be said:
            it was not run, or its tests need what cannot be handed to a program.
        value: value of the program's last line if that is an expression, else None. None, numbers,
            text, bytes, lists, tuples, sets and dicts come as they are if they are small; anything
            else, whole or as a part, is a ``Described``.
        stdout: what it printed, cut at the limit.
        error: class of the error, its first 200 characters; empty if there was none.
        message: the beginning of the error's text, or why it was refused.
        in_tests: the error came up while the tests ran.
        duration_s: seconds from the call to the result.
        in_force: the limits that held here: always ``clock``, ``output``, ``processor_time``,
            ``address_space`` and ``files``; ``threads`` unless programs are root's outside;
            ``system_calls`` where there is a filter for this machine; ``group_memory`` and
            ``group_processes`` where it ran in a control group. Empty if it did not run.
    """

    status: Status
    value: Any = None
    stdout: str = ""
    error: str = ""
    message: str = ""
    in_tests: bool = False
    duration_s: float = 0.0
    in_force: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One program with everything that belongs to it.

    Attributes:
        functions: for each host function whether it is awaited.
        is_in_order: whether calls are answered in an order of the program's own.
    """

    program: str
    tests: ProgramTests | None
    stdin: str | None
    functions: Mapping[str, bool]
    limits: Limits
    is_in_order: bool = False
