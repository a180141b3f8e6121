"""The program that compares mathematical answers; MathWorkers starts and feeds it.

It loads math-verify once and forks a worker for every socket that it is given. A worker reads one
JSON request per line and writes one JSON reply per line. A request that takes more CPU time than
allowed ends the worker, whatever it is doing: the operating system counts, so a busy machine does
not shorten it and no Python code has to notice. Another one is forked in its place at once, which
takes milliseconds, where a new process would load the library for seconds.

It imports nothing of this package, for the same reason.
"""

import json
import logging
import math
import os
import resource
import signal
import socket
import sys
from typing import Any

Parsed = list[Any]


def main(cpu_limit_s: float, memory_mib: int, descriptors: list[int]) -> None:
    """Keep a worker at every socket until the other end is closed.

    Args:
        cpu_limit_s: CPU seconds for one request.
        memory_mib: address space of a worker.
        descriptors: of the sockets.
    """
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib * 2**20, memory_mib * 2**20))
    _parse("1")
    sockets = [socket.socket(fileno=number) for number in descriptors]
    workers = {_fork(place, sockets, cpu_limit_s): place for place in range(len(sockets))}
    while workers:
        ended, status = os.wait()
        place = workers.pop(ended)
        code = os.waitstatus_to_exitcode(status)
        if code > 0:
            sys.exit(code)
        if code < 0:
            _reply(sockets[place], "too slow" if -code == signal.SIGPROF else "unknown")
            workers[_fork(place, sockets, cpu_limit_s)] = place


def _fork(place: int, sockets: list[socket.socket], cpu_limit_s: float) -> int:
    """Return the process id of a new worker at one of the sockets."""
    sys.stderr.flush()
    worker = os.fork()
    if worker:
        return worker
    for other in sockets[:place] + sockets[place + 1 :]:
        other.close()
    _work(sockets[place], cpu_limit_s)
    os._exit(0)


def _work(link: socket.socket, cpu_limit_s: float) -> None:
    for line in link.makefile("rb"):
        signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)
        reply = _answer(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        _reply(link, reply)


def _reply(link: socket.socket, reply: str) -> None:
    try:
        link.sendall(json.dumps(reply).encode() + b"\n")
    except OSError:
        return  # nobody waits for it any more


def _answer(request: dict[str, str]) -> str:
    """Return ``equal``, ``different``, ``parsed``, ``unparsable`` or ``too large``.

    What does not even equal itself (0/0, ``17 = 18``) is no reference.
    """
    try:
        gold = _parse(request["gold"])
        if "answer" not in request:
            return "parsed" if gold and _is_equal(gold, gold) else "unparsable"
        answer = _parse(request["answer"])
        if not answer:
            return "unparsable"
        return "equal" if _is_equal(gold, answer) else "different"
    except (MemoryError, RecursionError):
        return "too large"


def _parse(text: str) -> Parsed:
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


def _is_equal(gold: Parsed, answer: Parsed) -> bool:
    return _verify(gold, answer) and not any(_has_false_equation(a) for a in answer)


def _verify(gold: Parsed, answer: Parsed) -> bool:
    from math_verify import verify  # pyright: ignore[reportMissingTypeStubs]

    places = _find_places(gold + answer)
    return verify(
        gold, answer, float_rounding=places, numeric_precision=places + 9, timeout_seconds=None
    )


def _find_places(expressions: list[Any]) -> int:
    """Return the decimal places that count: six, more for tiny numbers, fewer for huge ones.

    Four digits of the smallest number count, so that tiny ones are not all 0; of numbers that
    floats do not hold exactly the digits that they hold.
    """
    sizes = [size for size in map(_measure, expressions) if size is not None]
    smallest, largest = min(sizes, default=0), max(sizes, default=0)
    if smallest < -2:
        return 3 - smallest
    return 14 - largest if largest > 15 else 6


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


def _has_false_equation(expression: Any) -> bool:
    """Say whether ``17 = 18`` or the like stands in it: the verifier looks at the last side."""
    from sympy import Eq  # pyright: ignore[reportMissingTypeStubs]

    return any(
        not equation.free_symbols and not _verify([equation.lhs], [equation.rhs])
        for equation in expression.atoms(Eq)
    )


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), [int(number) for number in sys.argv[3:]])
