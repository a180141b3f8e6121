r"""Answers of mathematics: their parsers, and the reward of being equal to the reference.

Range: 0 or 1. Plain numbers are compared here, exactly; everything else by the library math-verify
(https://github.com/huggingface/Math-Verify), with these deviations: the parser says
where an answer is, numbers may not be split by spaces, no fallback to equal strings is made, an
answer that states a false equation (``17 = 18``) is wrong, tiny numbers are not all 0, and a unit
that differs from the one in the label is wrong.

As the library has it: 50%, 0.5 and 50 are taken for equal if one of the two is a percentage;
``x = 5`` equals 5; ``(1, 2)`` equals the set {1, 2}; decimals count to six places.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

from groupwise.core import Completion, Example, Score
from groupwise.rewards.math_answers import (
    Reading,
    Reference,
    compare_plainly,
    find_math_answer,
    find_reference,
    has_split_number,
    list_readings,
    read_reference,
)
from groupwise.rewards.math_notation import MAX_ANSWER_LENGTH, read_number, write_plainly
from groupwise.rewards.math_units import has_other_unit, is_filler, is_known, split_unit
from groupwise.rewards.math_workers import MathWorkers, Verdict
from groupwise.rewards.parser import OpenParser, Parsed, Parser
from groupwise.rewards.reward import Reward, RewardKind

_LEAD = re.compile(
    r"\s*(?:(?:(?:the )?(?:correct )?answer(?: is|\s*[:：])"
    r"|(?:正确)?答案(?:是|为|\s*[:：]))[:：\s]*)?",
    re.IGNORECASE,
)
_MAX_UNIT_LENGTH = 16


class _MathematicalParser(OpenParser):
    def make_reward(self) -> Reward:
        """Return the reward of an equal value."""
        return MathEquality(self)

    def _normalize(self, target: str) -> str:
        """Return the answer of a target, which may be a whole solution."""
        return find_reference(target)[0]


class MathParser(_MathematicalParser):
    r"""The last answer that is marked by ``\boxed{}`` or ``####``; a solution may stand before it.

    What is in the mark is not looked at: whether it is mathematics is seen when it is compared.
    """

    kind: Literal["maths"] = "maths"

    def _read(self, text: str, example: Example | None) -> Parsed:
        label = None if example is None else example.label
        return find_math_answer(text, num_boxes=1 if label is None else find_reference(label)[1])

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
        problem = _find_problem(answer)
        return Parsed(None, problem) if problem else Parsed(answer, prefix=text[:start])


def _find_problem(answer: str) -> str:
    if len(answer) > MAX_ANSWER_LENGTH:
        return f"the answer has more than {MAX_ANSWER_LENGTH} characters"
    value, unit = split_unit(answer)
    if has_split_number(answer):
        return "two numbers are side by side"
    if read_number(value) is None:
        return "no number alone"
    words = unit.lower().split()
    is_unit = len(words) < 2 or all(map(_is_of_unit, words))
    return "" if is_unit and len(unit) <= _MAX_UNIT_LENGTH else "other text than a unit is beside"


def _is_of_unit(word: str) -> bool:
    return is_known(word) or is_filler(word) or word == "per"


# math-verify reads past Chinese words, so that 不是 before a fraction would change nothing.
_DENIAL = re.compile(
    r"(?:\\text\s*\{|\W)*(?:不|非|并非|没|未|(?:is )?not\b|isn't\b|anything but\b)", re.IGNORECASE
)


def _compare_denials(reference: str, answer: str) -> Score:
    """Return the score of a denial: the same words as a label that is one itself, or no answer."""
    if not _DENIAL.match(reference):
        return Score(0.0, "the answer is denied", invalid=True)
    if answer.casefold().split() == reference.casefold().split():
        return Score(1.0, f"the denial {answer} is that of the label {reference}")
    return Score(0.0, f"the denial {answer} is not that of the label {reference}")


class MathEquality:
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

    def __init__(self, parser: Parser | None = None, *, workers: MathWorkers | None = None) -> None:
        self.parser = parser or MathParser()
        self._workers = workers or MathWorkers()
        self._references: dict[str, Reference] = {}

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has a label."""
        return example.label is not None

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score."""
        if example.label is None:
            return Score(None, "no label")
        reference = self._read_reference(example.label)
        if reference is None:
            return Score(None, f"reading the label {example.label} timed out")
        if reference.problem:
            return Score(None, reference.problem)
        answer = self.parser.parse(completion.text, example)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        if _DENIAL.match(answer.label):
            return _compare_denials(reference.answer, answer.label)
        return self._compare(reference, answer.label)

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score for each pair, in order; several comparisons run at a time."""
        with ThreadPoolExecutor(self._workers.num_workers) as threads:
            return list(threads.map(self, examples, completions))

    def explain_unusable(self, example: Example) -> str | None:
        """Return why the label cannot be read; None if it can be, or there is none."""
        reference = None if example.label is None else self._read_reference(example.label)
        return None if reference is None else reference.problem or None

    def _read_reference(self, label: str) -> Reference | None:
        """Return what a label means; None if the machine ended the reading."""
        if label not in self._references:
            reference = self._parse(read_reference(label))
            if reference is None:
                return None
            self._references[label] = reference
        return self._references[label]

    def _parse(self, reference: Reference) -> Reference | None:
        """Return the reference with the readings that can be parsed, or with its problem."""
        verdicts: dict[Reading, Verdict] = {
            reading: "parsed"
            if compare_plainly(reading, reading)
            else self._workers.parse(reading.latex)
            for reading in reference.readings
        }
        if "unknown" in verdicts.values():
            return None
        parsed = tuple(reading for reading, verdict in verdicts.items() if verdict == "parsed")
        if not reference.problem and not parsed:
            verdict = next(iter(verdicts.values()))
            return replace(reference, readings=(), problem=f"the label is {verdict}")
        return replace(reference, readings=parsed)

    def _compare(self, reference: Reference, answer: str) -> Score:
        verdicts: list[Verdict] = []
        for given in list_readings(answer, is_reference=False):
            for expected in reference.readings:
                verdict = self._compare_readings(expected, given)
                verdicts.append(verdict)
                if verdict == "equal" and not has_other_unit(expected.unit, given.unit):
                    return Score(1.0, f"{answer} equals {reference.answer}")
        if "equal" in verdicts:
            return Score(0.0, f"{answer} has another unit than {reference.answer}")
        if "unknown" in verdicts:
            return Score(None, f"the comparison of {answer} with {reference.answer} timed out")
        if "different" in verdicts:
            return Score(0.0, f"{answer} does not equal {reference.answer}")
        return Score(0.0, f"the marked answer is {verdicts[0]}", invalid=True)

    def _compare_readings(self, expected: Reading, given: Reading) -> Verdict:
        is_same = compare_plainly(expected, given)
        if is_same is None:
            return self._workers.compare(expected.latex, given.latex)
        return "equal" if is_same else "different"
