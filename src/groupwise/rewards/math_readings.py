r"""What an answer may mean: values with their units.

Most answers mean one thing. ``2e-1`` is a fifth or twice Euler's number less one, and ``5m`` as an
answer is a length or a product: such an answer is right if one of its readings is.
"""

import re
from dataclasses import dataclass

from groupwise.rewards.math_answers import find_reference, has_split_number
from groupwise.rewards.math_notation import (
    MAX_ANSWER_LENGTH,
    Number,
    is_same_number,
    read_number,
    write_latex,
)
from groupwise.rewards.math_units import (
    has_other_unit,
    is_filler,
    is_known,
    is_measure,
    split_glued_letter,
    split_unit,
)

_SEPARATOR = re.compile(r"\s*;\s*|,\s+|,(?!\d{3}(?!\d))|\s+(?:and|or)\s+")
_EULER = re.compile(r"[-+]?\d+e[-+]\d")
_CLOCK = re.compile(r"0?(\d{1,2}):([0-5]\d)")
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
    """Return what an answer may mean.

    Args:
        answer: written plainly.
        is_reference: in a reference ``5m`` is a product; an answer may mean either.
    """
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
    """
    if a.number is not None and b.number is not None:
        return is_same_number(a.number, b.number)
    clocks = [_CLOCK.fullmatch(reading.value) for reading in (a, b)]
    if clocks[0] and clocks[1]:
        return clocks[0].groups() == clocks[1].groups()
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
