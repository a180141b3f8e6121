"""The program of a process that compares mathematical answers; MathProcess starts and feeds it.

One JSON request per line of standard input, one JSON reply per line of standard output. A request
that takes more CPU time than allowed ends the process, whatever it is doing: the operating system
counts, so a busy machine does not shorten it and no Python code has to notice.
"""

import json
import logging
import resource
import signal
import sys
from typing import Any

Parsed = list[Any]


def main(cpu_limit_s: float, memory_mib: int) -> None:
    """Answer requests until standard input ends.

    Args:
        cpu_limit_s: CPU seconds for one request.
        memory_mib: address space of this process.
    """
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib * 2**20, memory_mib * 2**20))
    _parse("1")
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)
        reply = _answer(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(reply), flush=True)  # noqa: T201


def _answer(request: dict[str, str]) -> str:
    """Return ``equal``, ``different``, ``parsed``, ``unparsable`` or ``too large``."""
    try:
        gold = _parse(request["gold"])
        if "answer" not in request:
            return "parsed" if gold else "unparsable"
        answer = _parse(request["answer"])
        if not answer:
            return "unparsable"
        return "equal" if _is_equal(gold, answer) else "different"
    except (MemoryError, RecursionError):
        return "too large"


def _parse(text: str) -> Parsed:
    """Return the expression in a list, or an empty list."""
    from math_verify import (  # pyright: ignore[reportMissingTypeStubs]
        LatexExtractionConfig,
        parse,
    )

    return parse(  # pyright: ignore[reportUnknownVariableType]
        f"\\boxed{{{text}}}",
        [LatexExtractionConfig(boxed_match_priority=0)],
        fallback_mode="no_fallback",
        parsing_timeout=None,  # pyright: ignore[reportArgumentType]
    )


def _is_equal(gold: Parsed, answer: Parsed) -> bool:
    return _verify(gold, answer) and not any(_has_false_equation(a) for a in answer)


def _verify(gold: Any, answer: Any) -> bool:
    from math_verify import verify  # pyright: ignore[reportMissingTypeStubs]

    return verify(gold, answer, timeout_seconds=None)


def _has_false_equation(expression: Any) -> bool:
    """Say whether ``17 = 18`` or the like stands in it: the verifier looks at the last side."""
    from sympy import Eq  # pyright: ignore[reportMissingTypeStubs]

    return any(
        not equation.free_symbols and not _verify(equation.lhs, equation.rhs)
        for equation in expression.atoms(Eq)
    )


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
