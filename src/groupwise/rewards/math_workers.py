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
from functools import partial
from typing import Any, Literal

Verdict = Literal["equal", "different", "parsed", "unparsable", "too large", "too slow", "unknown"]


class MathWorkers:
    """Compare answers in other processes; may be used from several threads.

    A process starts with a question for which none is free. One that hangs on an answer holds up no
    other answer. Copies and forks start processes of their own.

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
        self._forget()

    def __reduce__(self) -> tuple[object, ...]:
        """Return how a copy is made."""
        limits = {name: value for name, value in vars(self).items() if name[0] != "_"}
        return partial(MathWorkers, **limits), ()

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
            worker = worker or _Worker(self.cpu_limit_s, self.memory_mib)
            line = worker.ask({"gold": gold, "answer": answer}, self.wall_limit_s)
            kept = worker if line else None
            return json.loads(line) if line else worker.explain_end()
        finally:
            seats.put(kept)

    def _forget(self) -> None:
        """Start with free seats; the last process that was used is the next, so few are started."""
        self._owner, self._seats = os.getpid(), queue.LifoQueue["_Worker | None"]()
        for _ in range(self.num_workers):
            self._seats.put(None)


class _Worker:
    def __init__(self, cpu_limit_s: float, memory_mib: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._link, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(cpu_limit_s), str(memory_mib)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            process_group=0,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        theirs.close()
        weakref.finalize(self, _end, self._process, os.getpid())

    def ask(self, request: dict[str, str | None], wall_limit_s: float) -> bytes:
        """Return the line of a verdict; empty if the process is gone or stands still."""
        self._link.settimeout(wall_limit_s)
        try:
            self._link.sendall(json.dumps(request).encode() + b"\n")
            return self._link.recv(4096)
        except OSError:
            return b""

    def explain_end(self) -> Verdict:
        """End what is left; raise what a program that ended by itself has said."""
        from groupwise.core import RewardError

        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        code = self._process.poll() or 0
        _end(self._process, os.getpid())
        if code > 0:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            said = lines[-1] if lines else "nothing said"
            raise RewardError(f"the process that compares mathematics ended ({said})")
        return "too slow" if code == -signal.SIGPROF else "unknown"


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a process; not from a fork, which has only a copy of the handle."""
    if owner == os.getpid() and process.poll() is None:
        process.kill()
        process.wait()


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
    """Say whether they are equal, and the answer states no false equation such as ``17 = 18``.

    The library looks at the last side alone.
    """
    from sympy import Eq  # pyright: ignore[reportMissingTypeStubs]

    return _verify(gold, answer) and not any(
        not equation.free_symbols and not _verify([equation.lhs], [equation.rhs])
        for expression in answer
        for equation in expression.atoms(Eq)
    )


def _verify(gold: list[Any], answer: list[Any]) -> bool:
    """Compare to six decimal places, to more for tiny numbers and to fewer for huge ones.

    Four digits of the smallest number count, so that tiny ones are not all 0; of numbers that
    floats do not hold exactly the digits that they hold.
    """
    from math_verify import verify  # pyright: ignore[reportMissingTypeStubs]

    sizes = [size for size in map(_measure, gold + answer) if size is not None]
    smallest, largest = min(sizes, default=0), max(sizes, default=0)
    places = 3 - smallest if smallest < -2 else 14 - largest if largest > 15 else 6
    return verify(
        gold, answer, float_rounding=places, numeric_precision=places + 9, timeout_seconds=None
    )


def _measure(expression: Any) -> int | None:
    """Return the power of ten of the smallest number in a list or a set; None if there is none."""
    from sympy import FiniteSet, Tuple  # pyright: ignore[reportMissingTypeStubs]

    if isinstance(expression, (FiniteSet, Tuple)):
        sizes = [size for size in map(_measure, expression.args) if size is not None]
        return min(sizes, default=None)
    try:
        value = abs(complex(expression.rhs if expression.is_Relational else expression))
        return math.floor(math.log10(value))
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
