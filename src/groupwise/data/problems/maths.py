"""Rows of GSM8K, and rows in the form of MATH."""

import re
from typing import Any

from groupwise.data.problems.rows import SetRow
from groupwise.data.tables.values import UnusableRowError

_BOX = re.compile(r"\\f?boxed\s*(?:\{|(?=\S))")


def read_gsm8k(row: SetRow) -> dict[str, Any]:
    """Return the fields of a problem: the answer stands behind the last ``####``."""
    _, mark, answer = row.require_text("answer").rpartition("####")
    number = answer.strip().replace(",", "")
    if not mark or not number:
        raise UnusableRowError("no answer behind ####", row.where)
    return {"problem": row.require_text("question"), "ground_truth": number}


def read_math(row: SetRow) -> dict[str, Any]:
    r"""Return the fields of a problem: the answer is the solution's last ``\boxed{}``."""
    answer = find_boxed(row.require_text("solution"))
    if not answer:
        raise UnusableRowError(r"no \boxed{} answer", row.where)
    return {"problem": row.require_text("problem"), "ground_truth": answer}


def find_boxed(solution: str) -> str | None:
    r"""Return what is in the last ``\boxed{}`` or ``\fbox{}``, with the braces inside it.

    ``\boxed 5`` is a box, too. None: there is no box, or its braces are not closed.
    """
    boxes = list(_BOX.finditer(solution))
    if not boxes:
        return None
    start = boxes[-1].end()
    if not boxes[-1][0].endswith("{"):
        return re.split(r"[\s$.,]", solution[start:], maxsplit=1)[0] or None
    depth, place = 1, start
    while place < len(solution):
        if solution[place] == "\\":  # an escaped brace is no brace
            place += 2
            continue
        depth += {"{": 1, "}": -1}.get(solution[place], 0)
        if depth == 0:
            return solution[start:place].strip() or None
        place += 1
    return None
