r"""Where a mathematical answer stands in a text, and what it may mean: values with their units.

It stands in ``\boxed{...}`` or a line ``#### ...``. Most answers mean one thing. ``2e-1`` is a
fifth or twice Euler's number less one, and ``5m`` as an answer is a length or a product: such an
answer is right if one of its readings is.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.rewards.math_notation import (
    MAX_ANSWER_LENGTH,
    Number,
    is_same_number,
    read_number,
    write_latex,
    write_plainly,
)
from groupwise.rewards.math_units import (
    has_other_unit,
    is_filler,
    is_known,
    is_measure,
    split_glued_letter,
    split_unit,
)
from groupwise.rewards.parser import Parsed

_MARK = re.compile(r"\\boxed\s*\{|####[ \t]*((?:(?!\\boxed\s*\{)[^\r\n])*)")
_WORDS = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}|[\u4e00-\u9fff]")
_BETWEEN = re.compile(r"(?:[\s,;$、，；{}]|\\(?:text|mathrm|q?quad)\b|\\[,;: ]|and|or|和|或|与)*")
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


_SEPARATOR = re.compile(r"\s*;\s*|,\s+|,(?!\d{3}(?!\d))|\s+(?:and|or)\s+")
_EULER = re.compile(r"[-+]?\d+e[-+]\d")
_CLOCK = re.compile(r"0?(\d{1,2}):([0-5]\d)")
_FORMS = (
    re.compile(r"(\d+(?:\.\d+)?)(?:[-–—]|--)(\d+(?:\.\d+)?)"),
    re.compile(r"(\d{1,4})[-/](\d{1,2})[-/](\d{1,4})"),
    re.compile(r"(\d+)\s*['′’]\s*(\d+(?:\.\d+)?)\s*(?:\\?\"|”|''|′′)?"),
    re.compile(r"(\d[\dA-F]*)_\{?(\d{1,2})\}?"),
)
_COMMAND = re.compile(r"\\[A-Za-z]+(?:\s*\{[^{}\\]*\})?")
_WORD = re.compile(r"(?<![A-Za-z])[A-Za-z]{2,}")
_SENTENCE = re.compile("(?=[a-z]*[aeiou])[a-z]{4,}|st|nd|rd|th")
_NUMBER_WORDS = re.compile(
    r"(?:(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty"
    r"|hundred|thousand|million|half|third)\b[\s-]*)+",
    re.IGNORECASE,
)
_MATHEMATICAL = re.compile("infinity|sinh|cosh|tanh|arcsin|arccos|arctan|union|choose")


@dataclass(frozen=True, slots=True)
class Reading:
    """A value, its unit (empty if none is stated), and the number that it is, if it is plain."""

    value: str
    unit: str = ""
    number: Number | None = None

    @property
    def latex(self) -> str:
        """The value for a parser of LaTeX."""
        return write_latex(self.value)


@dataclass(frozen=True, slots=True)
class Reference:
    """The answer of a label.

    Attributes:
        answer: as it stands there.
        readings: what it may mean; at least one where there is no problem.
        problem: why no answer can be compared with it; the same words for the same cause.
    """

    answer: str
    readings: tuple[Reading, ...] = ()
    problem: str = ""


def read_reference(label: str) -> Reference:
    """Return what a label means, or why it means nothing; whether it parses is seen later."""
    answer = find_reference(label)[0]
    if not answer:
        return Reference(answer, problem="the label is empty")
    if len(answer) > MAX_ANSWER_LENGTH:
        return Reference(answer, problem="the answer in the label is too long")
    if has_split_number(answer):
        return Reference(answer, problem="two numbers stand side by side in the label")
    readings = list_readings(answer)
    if any(_has_words(reading) for reading in readings):
        return Reference(answer, problem="words that are no unit stand in the label")
    return Reference(answer, tuple(readings))


def list_readings(answer: str, *, is_reference: bool = True) -> list[Reading]:
    """Return what an answer may mean."""
    readings = [_read_list(answer) or _read(*split_unit(answer))]
    if not is_reference:
        glued = split_glued_letter(answer)
        is_letter = len(readings[0].unit) == 1 and readings[0].unit.isalpha()
        readings += [_read(*glued)] if glued else [_read(answer, "")] if is_letter else []
    if _EULER.fullmatch(readings[0].value):
        readings.append(Reading(re.sub("([-+])", r" \1 ", readings[0].value), readings[0].unit))
    return readings


def compare_plainly(a: Reading, b: Reading) -> bool | None:
    """Say whether two readings have the same value; None if that takes a parser.

    Times of day are the same if they are written so: 8:30 is not 4:15, though the ratios are.
    Ranges, dates, feet with inches and numbers with their base are not worked out: 3-5 is not -2.
    """
    forms = [_read_form(reading.value) for reading in (a, b)]
    if any(forms):
        return forms[0] == forms[1]
    if a.number is not None and b.number is not None:
        return is_same_number(a.number, b.number)
    clocks = [_CLOCK.fullmatch(reading.value) for reading in (a, b)]
    if clocks[0] and clocks[1]:
        return clocks[0].groups() == clocks[1].groups()
    return None


def _read_form(value: str) -> tuple[int, *tuple[str, ...]] | None:
    """Return which form of several numbers a value has, and the numbers; None if it has none."""
    for place, form in enumerate(_FORMS):
        match = form.fullmatch(value)
        if match:
            return place, *(number.lstrip("0") for number in match.groups())
    return None


def _read(value: str, unit: str) -> Reading:
    return Reading(value, unit, read_number(value))


def _read_list(answer: str) -> Reading | None:
    """Return a list of numbers with units as one value without them; None if it is none.

    2 hours and 30 minutes are no list but one value, which is not worked out here.
    """
    parts = [split_unit(part) for part in _SEPARATOR.split(answer)]
    units = [unit for _, unit in parts if unit]
    if not units or len(parts) < 2 or any(read_number(value) is None for value, _ in parts):
        return None
    if any(is_measure(unit) and has_other_unit(unit, units[0]) for unit in units):
        return None
    return Reading(", ".join(value for value, _ in parts))


def _has_words(reading: Reading) -> bool:
    """Say whether words stand beside numbers, or a number is spelled in words."""
    if _NUMBER_WORDS.fullmatch(reading.value):
        return True
    words = [word.lower() for word in _WORD.findall(_COMMAND.sub(" ", reading.value))]
    return any(letter.isdigit() for letter in reading.value) and any(
        (is_known(word) or is_filler(word) or _SENTENCE.fullmatch(word))
        and not _MATHEMATICAL.fullmatch(word)
        for word in words
    )
