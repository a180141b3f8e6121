r"""Where a mathematical answer stands in a text: ``\boxed{...}`` or a line ``#### ...``.

It finds the answer's text; whether it is mathematics is seen later.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.rewards.math_notation import (
    MAX_ANSWER_LENGTH,
    read_number,
    write_latex,
    write_plainly,
)
from groupwise.rewards.math_units import is_known, split_unit
from groupwise.rewards.parser import Parsed

_MARK = re.compile(r"\\boxed\s*\{|####[ \t]*((?:(?!\\boxed\s*\{)[^\r\n])*)")
_WORDS = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}|[\u4e00-\u9fff]")
_BETWEEN = re.compile(r"(?:[\s,;$、，；{}]|\\text\b|and|or|和|或|与)*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_SPLIT_NUMBER = re.compile(r"(?<![_\d])\d+\s+[\d.]")


@dataclass(frozen=True, slots=True)
class _Mark:
    """A marked answer: what stands in it, None if its braces are not closed, and where."""

    found: str | None
    start: int
    end: int
    is_box: bool


def find_math_answer(text: str, *, num_boxes: int = 1) -> Parsed:
    r"""Return the last marked answer of ``text``, or why there is none.

    Nested braces belong to the answer. Of several marked answers the last one counts, so listing
    answers is no better than guessing once; boxes with nothing but ``,``, ``and`` or ``or`` between
    them are one answer with several values. Behind a marked answer a line ``#### Check`` with words
    is a heading. Digits with a space between them are refused, because a parser would multiply or
    add them; ``1 000`` is 1000 and ``3 1/2`` a mixed number.

    Args:
        text: of a completion.
        num_boxes: that the reference has; as many boxes are then one answer wherever they stand.
    """
    marks = _list_marks(text)
    if not marks:
        return Parsed(None, r"no answer in \boxed{} or after ####")
    boxes = [mark for mark in marks if mark.is_box]
    is_list = marks[-1].is_box and 1 < num_boxes == len(boxes)
    taken = boxes if is_list else _take_last_run(text, marks)
    answer, problem = _join(taken)
    return Parsed(None, problem) if problem else Parsed(answer, prefix=text[: taken[0].start])


def find_reference(text: str) -> tuple[str, int]:
    """Return the answer of a label and the number of its boxes, all of which are the answer.

    A label without a marked answer is an answer.
    """
    num_boxes = sum(mark.is_box for mark in _list_marks(text))
    answer = find_math_answer(text, num_boxes=num_boxes).label
    return write_plainly(text) if answer is None else answer, num_boxes


def has_split_number(answer: str) -> bool:
    """Say whether digits stand side by side with a space between them."""
    return _SPLIT_NUMBER.search(write_latex(answer)) is not None


def _list_marks(text: str) -> list[_Mark]:
    """Return the marked answers; of nested boxes the inner one, and no headings behind others."""
    marks: list[_Mark] = []
    closed = _match_braces(text)
    for match in _MARK.finditer(text):
        line: str | None = match.group(1)
        if line is None:
            end = closed.get(match.end())
            found = None if end is None else text[match.end() : end]
            if marks and match.start() < marks[-1].end:
                marks.pop()
            marks.append(_Mark(found, match.start(), end or len(text), is_box=True))
        elif not (marks and _is_heading(line)):
            marks.append(_Mark(line, match.start(), match.end(), is_box=False))
    return marks


def _is_heading(line: str) -> bool:
    if len(line) > MAX_ANSWER_LENGTH:
        return True
    value, unit = split_unit(write_plainly(line))
    if read_number(value) is not None:
        return bool(unit) and not is_known(unit.split()[0].lower())
    return _WORDS.search(value) is not None


def _take_last_run(text: str, marks: Sequence[_Mark]) -> list[_Mark]:
    """Return the last mark, and the boxes before it that are listed with it."""
    run = [marks[-1]]
    for mark in reversed(marks[:-1]):
        between = text[mark.end + 1 : run[0].start]
        if not (mark.is_box and run[0].is_box and _BETWEEN.fullmatch(between)):
            break
        run.insert(0, mark)
    return run


def _join(marks: Sequence[_Mark]) -> tuple[str, str]:
    """Return the answer in the marks, or nothing and the reason."""
    if any(mark.found is None for mark in marks):
        return "", r"the braces of \boxed{} are not closed"
    found = [(mark.found or "").strip() for mark in marks]
    if sum(map(len, found)) > MAX_ANSWER_LENGTH:
        return "", f"the marked answer has more than {MAX_ANSWER_LENGTH} characters"
    answers = dict.fromkeys(map(write_plainly, found))
    if not all(answers):
        return "", "the marked answer is empty"
    answer = ", ".join(answers)
    if has_split_number(answer):
        return "", "two numbers are side by side in the marked answer"
    return answer, ""


def _match_braces(text: str) -> dict[int, int]:
    """Return where each brace is closed, by the place behind it; those left open are missing."""
    closed: dict[int, int] = {}
    opened: list[int] = []
    for match in _BRACE.finditer(text):
        if match.group() == "{":
            opened.append(match.end())
        elif match.group() == "}" and opened:
            closed[opened.pop()] = match.start()
    return closed
