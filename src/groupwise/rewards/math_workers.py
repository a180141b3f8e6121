"""Processes that compare mathematical answers, so that no answer can stop training.

math-verify bounds its time with signals, which only the main thread may use, and simplifying can
hang in code that no signal interrupts. Here ``main`` runs as a program of its own, which answers
one line of JSON with one. A request that takes more CPU time than allowed ends the program,
whatever it is doing: the operating system counts, so that a busy machine does not shorten it and no
Python code has to notice. Nothing of this package is imported there.
"""

import json
import logging
import math
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import IO, Any, Literal, NamedTuple

Verdict = Literal["equal", "different", "parsed", "unparsable", "too large", "too slow", "unknown"]


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    link: socket.socket
    errors: IO[bytes]


@dataclass(eq=False)
class MathWorkers:
    """Compare answers in other processes; may be used from several threads.

    A process starts with a question for which none is free. One that hangs on an answer holds up no
    other answer. Copies and forks start processes of their own.
    """

    num_workers: int = 4  # comparisons at a time
    cpu_limit_s: float = 5.0  # for one comparison; more is ``too slow``
    wall_limit_s: float = 60.0  # to wait for one comparison; more is ``unknown``
    memory_mib: int = 2048  # address space of each process

    def __post_init__(self) -> None:
        self._forget()

    def __reduce__(self) -> tuple[object, ...]:
        return MathWorkers, tuple(getattr(self, one.name) for one in fields(self))

    def _forget(self) -> None:
        """Start with free seats; the last process that was used is the next, so few are started."""
        self._owner, self._seats = os.getpid(), queue.LifoQueue[_Worker | None]()
        for _ in range(self.num_workers):
            self._seats.put(None)

    def ask(self, gold: str, answer: str | None = None) -> Verdict:
        """Return whether ``answer`` is equal to ``gold``, or why that cannot be said.

        Without an answer, whether ``gold`` can be parsed. ``unparsable``, ``too large`` and ``too
        slow`` are about the answer if the gold answer is parsed; ``unknown`` is about the machine.

        Raises:
            RewardError: if the processes cannot work.
        """
        if self._owner != os.getpid():
            self._forget()
        seats, kept = self._seats, None
        worker = seats.get()
        try:
            worker = worker or self._start()
            line = b""  # also where the process is gone or stands still
            worker.link.settimeout(self.wall_limit_s)
            with suppress(OSError):
                request = {"gold": gold, "answer": answer}
                worker.link.sendall(json.dumps(request).encode() + b"\n")
                line = worker.link.recv(4096)
            kept = worker if line else None
            return json.loads(line) if line else _explain_end(worker)
        finally:
            seats.put(kept)

    def _start(self) -> _Worker:
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        link, theirs = socket.socketpair()
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(self.cpu_limit_s), str(self.memory_mib)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            process_group=0,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        theirs.close()
        weakref.finalize(link, _end, process, os.getpid())
        return _Worker(process, link, errors)


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a process; not from a fork, which has only a copy of the handle."""
    if owner == os.getpid() and process.poll() is None:
        process.kill()
        process.wait()


def _explain_end(worker: _Worker) -> Verdict:
    """End what is left; raise what a program that ended by itself has said."""
    from groupwise.core import RewardError

    with suppress(subprocess.TimeoutExpired):
        worker.process.wait(timeout=1)
    code = worker.process.poll() or 0
    _end(worker.process, os.getpid())
    if code > 0:
        worker.errors.seek(0)
        lines = worker.errors.read().decode(errors="replace").strip().splitlines()
        said = lines[-1] if lines else "nothing said"
        raise RewardError(f"the process that compares mathematics ended ({said})")
    return "too slow" if code == -signal.SIGPROF else "unknown"


def main(cpu_limit_s: float, memory_mib: int) -> None:
    """Answer what comes over the socket that stands in for the standard input."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib * 2**20, memory_mib * 2**20))
    _parse("1")
    link = socket.socket(fileno=0)
    for line in link.makefile("rb"):
        signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)
        verdict = _answer(**json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        with suppress(OSError):  # nobody may wait for it any more
            link.sendall(json.dumps(verdict).encode() + b"\n")


def _answer(gold: str, answer: str | None) -> Verdict:
    """Return the verdict; what does not even equal itself (0/0, ``17 = 18``) is no reference."""
    try:
        reference = _parse(gold)
        if answer is None:
            return "parsed" if reference and _is_equal(reference, reference) else "unparsable"
        said = _parse(answer)
        if not said:
            return "unparsable"
        return "equal" if _is_equal(reference, said) else "different"
    except (MemoryError, RecursionError):
        return "too large"


def _parse(text: str) -> list[Any]:
    """Return the expression in a list, or an empty list."""
    from latex2sympy2_extended.latex2sympy2 import (  # pyright: ignore[reportMissingTypeStubs]
        NormalizationConfig,
    )
    from math_verify import (  # pyright: ignore[reportMissingTypeStubs]
        LatexExtractionConfig,
        parse,
    )

    # Units are read before; the library takes 5t for 5 tonnes.
    rules = NormalizationConfig(basic_latex=True, malformed_operators=True, nits=True, units=False)
    return parse(  # pyright: ignore[reportUnknownVariableType]
        f"\\boxed{{{text}}}",
        [LatexExtractionConfig(boxed_match_priority=0, normalization_config=rules)],
        fallback_mode="no_fallback",
        parsing_timeout=None,  # pyright: ignore[reportArgumentType]
    )


def _is_equal(gold: list[Any], answer: list[Any]) -> bool:
    """Return whether they are equal, and the answer states no false equation such as ``17 = 18``.

    The library looks at the last side alone. It compares to six decimal places; here four digits of
    the smallest number count, so that tiny ones are not all 0, and of numbers that floats do not
    hold exactly the digits that they hold.
    """
    from math_verify import verify  # pyright: ignore[reportMissingTypeStubs]
    from sympy import Eq, FiniteSet, Tuple  # pyright: ignore[reportMissingTypeStubs]

    def list_sizes(expression: Any) -> list[int]:
        """Return the power of ten of a number, or of the smallest one in a list or a set."""
        if isinstance(expression, (FiniteSet, Tuple)):
            return sorted(size for part in expression.args for size in list_sizes(part))[:1]
        try:
            value = abs(complex(expression.rhs if expression.is_Relational else expression))
            return [math.floor(math.log10(value))]
        except (TypeError, ValueError, OverflowError, AttributeError):
            return []

    def compare(gold: list[Any], answer: list[Any]) -> bool:
        sizes = [size for one in gold + answer for size in list_sizes(one)]
        smallest, largest = min(sizes, default=0), max(sizes, default=0)
        places = 3 - smallest if smallest < -2 else 14 - largest if largest > 15 else 6
        return verify(
            gold, answer, float_rounding=places, numeric_precision=places + 9, timeout_seconds=None
        )

    return compare(gold, answer) and not any(
        not equation.free_symbols and not compare([equation.lhs], [equation.rhs])
        for expression in answer
        for equation in expression.atoms(Eq)
    )


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
