r"""Answers of mathematics: their parsers, and the reward of being equal to the reference.

Range: 0 or 1. Plain numbers are compared here, exactly; everything else by the library math-verify
(https://github.com/huggingface/Math-Verify), with these deviations: the parser says
where an answer is, numbers may not be split by spaces, no fallback to equal strings is made, an
answer that states a false equation (``17 = 18``) is wrong, tiny numbers are not all 0, and a unit
that differs from the one in the label is wrong.

As the library has it: 50%, 0.5 and 50 are taken for equal if one of the two is a percentage;
``x = 5`` equals 5; ``(1, 2)`` equals the set {1, 2}; decimals count to six places.

Most answers mean one thing. ``2e-1`` is a fifth or twice Euler's number less one, and ``5m`` as an
answer is a length or a product: such an answer is right if one of its readings is.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Literal, NamedTuple

from groupwise.core import Example, Score
from groupwise.rewards.math_text import (
    FILLER,
    MAX_ANSWER_LENGTH,
    Number,
    has_other_unit,
    has_split_number,
    is_known,
    is_measure,
    is_same_number,
    read_number,
    split_unit,
    write_latex,
    write_plainly,
)
from groupwise.rewards.math_workers import MathWorkers, Verdict
from groupwise.rewards.reward import (
    AnswerReward,
    OpenParser,
    Parsed,
    Parser,
    Reward,
    RewardKind,
)

_MARK = re.compile(r"\\boxed\s*\{|####[ \t]*((?:(?!\\boxed\s*\{)[^\r\n])*)")
# Large patterns are texts: they are compiled when something is read with them.
_WORDS = r"(?<![A-Za-z\\])[A-Za-z]{2,}|[\u4e00-\u9fff]"
_BETWEEN = re.compile(r"(?:[\s,;$、，；{}]|\\(?:text|mathrm|q?quad)\b|\\[,;: ]|and|or|和|或|与)*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_LEAD = re.compile(
    r"\s*(?:(?:(?:the )?(?:correct )?answer(?: is|\s*[:：])"
    r"|(?:正确)?答案(?:是|为|\s*[:：]))[:：\s]*)?",
    re.IGNORECASE,
)
_MAX_UNIT_LENGTH = 16


class _MathematicalParser(OpenParser):
    def make_reward(self) -> Reward:
        return MathEquality(self)

    def _normalize(self, target: str) -> str:
        """Return the answer of a target, which may be a whole solution."""
        return _find_reference(target)[0]


class MathParser(_MathematicalParser):
    r"""The last answer that is marked by ``\boxed{}`` or ``####``; a solution may stand before it.

    What is in the mark is not looked at: whether it is mathematics is seen when it is compared.
    Nested braces belong to the answer. Of several marked answers the last one counts, so listing
    answers is no better than guessing once; boxes with nothing but ``,``, ``and`` or ``or`` between
    them are one answer with several values, and so are as many as the example's label has. Behind a
    marked answer a line ``#### Check`` with words is a heading.
    """

    kind: Literal["maths"] = "maths"

    def _read(self, text: str, example: Example | None) -> Parsed:
        label = None if example is None else example.label
        return _find_answer(text, num_boxes=1 if label is None else _find_reference(label)[1])

    def _spell(self, answer: str) -> str:
        return rf"\boxed{{{answer}}}"


class NumberParser(_MathematicalParser):
    """A number alone, in any usual notation, with a unit or without.

    ``42``, ``4/2``, ``1,000.5``, ``50%``, ``3 million``, ``３．５ 米``; ``答案：42`` and ``The
    answer is 42.`` are read, too.
    """

    kind: Literal["number"] = "number"

    def _read(self, text: str, example: Example | None) -> Parsed:
        del example
        lead = _LEAD.match(text)
        start = lead.end() if lead else 0
        answer = write_plainly(text[start:])
        if len(answer) > MAX_ANSWER_LENGTH:
            return Parsed(None, f"the answer has more than {MAX_ANSWER_LENGTH} characters")
        value, unit = split_unit(answer)
        if has_split_number(answer):
            return Parsed(None, "two numbers are side by side")
        if read_number(value) is None:
            return Parsed(None, "no number alone")
        words = unit.lower().split()
        known = [is_known(w) or FILLER.fullmatch(w) or w == "per" for w in words]
        is_unit = len(words) < 2 or all(known)
        if not is_unit or len(unit) > _MAX_UNIT_LENGTH:
            return Parsed(None, "other text than a unit is beside")
        return Parsed(answer, prefix=text[:start])


class _Mark(NamedTuple):
    inside: str | None  # None: its braces are not closed
    start: int
    end: int
    is_box: bool


def _list_marks(text: str) -> list[_Mark]:
    """Return the marked answers; of nested boxes the inner one, and no headings behind others."""
    closed: dict[int, int] = {}
    opened: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace.group() == "{":
            opened.append(brace.end())
        elif brace.group() == "}" and opened:
            closed[opened.pop()] = brace.start()
    marks: list[_Mark] = []
    for match in _MARK.finditer(text):
        line: str | None = match.group(1)
        if line is None:
            end = closed.get(match.end())
            inside = None if end is None else text[match.end() : end]
            if marks and match.start() < marks[-1].end:
                marks.pop()
            marks.append(_Mark(inside, match.start(), end or len(text), is_box=True))
            continue
        is_heading = bool(marks)  # behind another mark, with words
        if marks and len(line) <= MAX_ANSWER_LENGTH:
            value, unit = split_unit(write_plainly(line))
            is_heading = re.search(_WORDS, value) is not None
            if read_number(value) is not None:
                is_heading = bool(unit) and not is_known(unit.split()[0].lower())
        if not is_heading:
            marks.append(_Mark(line, match.start(), match.end(), is_box=False))
    return marks


def _find_answer(text: str, *, num_boxes: int) -> Parsed:
    """Return the last marked answer, or all boxes if there are ``num_boxes``; or why not."""
    marks = _list_marks(text)
    if not marks:
        return Parsed(None, r"no answer in \boxed{} or after ####")
    run = [mark for mark in marks if mark.is_box]
    if not (marks[-1].is_box and 1 < num_boxes == len(run)):
        run = [marks[-1]]
        for mark in reversed(marks[:-1]):
            between = text[mark.end + 1 : run[0].start]
            if not (mark.is_box and run[0].is_box and _BETWEEN.fullmatch(between)):
                break
            run.insert(0, mark)
    inside = [mark.inside.strip() for mark in run if mark.inside is not None]
    if len(inside) < len(run):
        return Parsed(None, r"the braces of \boxed{} are not closed")
    if sum(map(len, inside)) > MAX_ANSWER_LENGTH:
        return Parsed(None, f"the marked answer has more than {MAX_ANSWER_LENGTH} characters")
    answers = dict.fromkeys(map(write_plainly, inside))
    if not all(answers):
        return Parsed(None, "the marked answer is empty")
    answer = ", ".join(answers)
    if has_split_number(answer):
        return Parsed(None, "two numbers are side by side in the marked answer")
    return Parsed(answer, prefix=text[: run[0].start])


def _find_reference(text: str) -> tuple[str, int]:
    """Return the answer of a label and the number of its boxes, all of which are the answer.

    A label without a marked answer is an answer.
    """
    num_boxes = sum(mark.is_box for mark in _list_marks(text))
    answer = _find_answer(text, num_boxes=num_boxes).label
    return write_plainly(text) if answer is None else answer, num_boxes


_SEPARATOR = re.compile(r"\s*;\s*|,\s+|,(?!\d{3}(?!\d))|\s+(?:and|or)\s+")
_EULER = re.compile(r"[-+]?\d+e[-+]\d")
_GLUED = re.compile(r"([-+]?[\d.,/]+)([mghslL])")
# Ranges, dates, feet with inches and numbers with their base.
_FORMS = (
    r"(\d+(?:\.\d+)?)(?:[-–—]|--)(\d+(?:\.\d+)?)",
    r"(\d{1,4})[-/](\d{1,2})[-/](\d{1,4})",
    r"(\d+)\s*['′’]\s*(\d+(?:\.\d+)?)\s*(?:\\?\"|”|''|′′)?",
    r"(\d[\dA-F]*)_\{?(\d{1,2})\}?",
)
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


class _Reading(NamedTuple):
    """A value, its unit (empty if none is stated), and the number that it is, if it is plain."""

    value: str
    unit: str = ""
    number: Number | None = None

    @property
    def has_words(self) -> bool:
        """Whether words stand beside numbers, or a number is spelled in words."""
        if _NUMBER_WORDS.fullmatch(self.value):
            return True
        words = [word.lower() for word in _WORD.findall(_COMMAND.sub(" ", self.value))]
        return any(letter.isdigit() for letter in self.value) and any(
            (is_known(word) or FILLER.fullmatch(word) or _SENTENCE.fullmatch(word))
            and not _MATHEMATICAL.fullmatch(word)
            for word in words
        )

    @property
    def form(self) -> tuple[object, ...] | None:
        """Which form of several numbers the value has, and the numbers; None if it has none."""
        for place, form in enumerate(_FORMS):
            match = re.fullmatch(form, self.value)
            if match:
                return place, *(number.lstrip("0") for number in match.groups())
        return None


def _list_readings(answer: str, *, is_reference: bool) -> list[_Reading]:
    """Return what an answer may mean."""

    def read(value: str, unit: str) -> _Reading:
        return _Reading(value, unit, read_number(value))

    # A list of numbers with units is one value without them; but 2 hours and 30 minutes are one
    # value, which is not worked out.
    parts = [split_unit(part) for part in _SEPARATOR.split(answer)]
    units = [unit for _, unit in parts if unit]
    is_list = len(parts) > 1 and bool(units) and all(read_number(value) for value, _ in parts)
    if is_list and not any(is_measure(unit) and has_other_unit(unit, units[0]) for unit in units):
        readings = [_Reading(", ".join(value for value, _ in parts))]
    else:
        readings = [read(*split_unit(answer))]
    if not is_reference:
        glued = _GLUED.fullmatch(answer)  # 5m
        is_letter = len(readings[0].unit) == 1 and readings[0].unit.isalpha()
        readings += [read(*glued.groups())] if glued else [read(answer, "")] if is_letter else []
    if _EULER.fullmatch(readings[0].value):
        readings.append(_Reading(re.sub("([-+])", r" \1 ", readings[0].value), readings[0].unit))
    return readings


class _Reference(NamedTuple):
    """The answer of a label, what it may mean, and why nothing can be compared with it if so."""

    answer: str
    readings: tuple[_Reading, ...]
    problem: str


def _compare_plainly(a: _Reading, b: _Reading) -> bool | None:
    """Return whether two readings have the same value; None if that takes a parser.

    Times of day are the same if they are written so: 8:30 is not 4:15, though the ratios are.
    Nor are forms of several numbers worked out: 3-5 is not -2.
    """
    if a.form or b.form:
        return a.form == b.form
    if a.number is not None and b.number is not None:
        return is_same_number(a.number, b.number)
    clocks = [_CLOCK.fullmatch(reading.value) for reading in (a, b)]
    return clocks[0].groups() == clocks[1].groups() if clocks[0] and clocks[1] else None


# math-verify reads past Chinese words, so that 不是 before a fraction would change nothing.
_DENIAL = re.compile(
    r"(?:\\text\s*\{|\W)*(?:不|非|并非|没|未|(?:is )?not\b|isn't\b|anything but\b)", re.IGNORECASE
)


class MathEquality(AnswerReward):
    r"""1 if the answer equals the example's label, else 0.

    A label is an answer, with a unit or without (``18``, ``18 dollars``, ``9 (apples)``), or a
    solution with a marked answer (``#### 18``, ``\boxed{18}``); several boxes are all of them the
    answer. A unit in the answer must be that of the label where both state one. What is no answer
    for the parser, cannot be read as mathematics or takes too much time is invalid. Without a
    label, with one that cannot be read, or if the machine ends the comparison, there is no score.

    Args:
        parser: finds the answer; None: a MathParser.
        workers: compare; None: those with the usual limits.
    """

    name = "math_equality"
    kind: RewardKind = "truth"
    needs = "label"

    def __init__(self, parser: Parser | None = None, *, workers: MathWorkers | None = None) -> None:
        super().__init__(parser or MathParser())
        self._workers = workers or MathWorkers()
        self._references: dict[str, _Reference] = {}

    def score_answers(
        self, examples: Sequence[Example], answers: Sequence[Parsed]
    ) -> Sequence[Score]:
        """Return one score for each pair, in order; several comparisons run at a time."""
        if len(answers) < 2:
            return super().score_answers(examples, answers)
        with ThreadPoolExecutor(self._workers.num_workers) as threads:
            return list(threads.map(self._score_parsed, examples, answers))

    def _find_problem(self, example: Example) -> str | None:
        if self._read_reference(str(example.label)) is None:
            return f"reading the label {example.label} timed out"
        return self.explain_unusable(example)

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        reference = self._references[str(example.label)]
        right = reference.answer
        if _DENIAL.match(label):
            if not _DENIAL.match(right):
                return Score(0.0, "the answer is denied", invalid=True)
            if label.casefold().split() == right.casefold().split():
                return Score(1.0, f"the denial {label} is that of the label {right}")
            return Score(0.0, f"the denial {label} is not that of the label {right}")
        verdicts: list[Verdict] = []
        readings = _list_readings(label, is_reference=False)
        for given, expected in product(readings, reference.readings):
            is_same = _compare_plainly(expected, given)
            verdict: Verdict = "equal" if is_same else "different"
            if is_same is None:
                verdict = self._workers.ask(write_latex(expected.value), write_latex(given.value))
            verdicts.append(verdict)
            if verdict == "equal" and not has_other_unit(expected.unit, given.unit):
                return Score(1.0, f"{label} equals {right}")
        if "equal" in verdicts:
            return Score(0.0, f"{label} has another unit than {right}")
        if "unknown" in verdicts:
            return Score(None, f"the comparison of {label} with {right} timed out")
        if "different" in verdicts:
            return Score(0.0, f"{label} does not equal {right}")
        return Score(0.0, f"the marked answer is {verdicts[0]}", invalid=True)

    def explain_unusable(self, example: Example) -> str | None:
        """Return why the label cannot be read; None if it can be, or there is none."""
        reference = None if example.label is None else self._read_reference(example.label)
        return None if reference is None else reference.problem or None

    def _read_reference(self, label: str) -> _Reference | None:
        """Return what a label means, as far as it parses; None if the machine ended the reading."""
        if label in self._references:
            return self._references[label]
        answer, problem = _find_reference(label)[0], ""
        readings = list[_Reading]()
        if not answer:
            problem = "the label is empty"
        elif len(answer) > MAX_ANSWER_LENGTH:
            problem = "the answer in the label is too long"
        elif has_split_number(answer):
            problem = "two numbers stand side by side in the label"
        else:
            readings = _list_readings(answer, is_reference=True)
            if any(reading.has_words for reading in readings):
                readings, problem = [], "words that are no unit stand in the label"
        verdicts: dict[_Reading, Verdict] = {
            reading: "parsed"
            if _compare_plainly(reading, reading)
            else self._workers.ask(write_latex(reading.value))
            for reading in readings
        }
        if "unknown" in verdicts.values():
            return None
        parsed = tuple(reading for reading, verdict in verdicts.items() if verdict == "parsed")
        if not problem and not parsed:
            problem = f"the label is {next(iter(verdicts.values()))}"
        self._references[label] = _Reference(answer, parsed, problem)
        return self._references[label]
