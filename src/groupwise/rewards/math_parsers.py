r"""The answer parsers of mathematics: a marked answer in a solution, or a number alone.

Both are compared by ``MathEquality``.
"""

import re
from typing import Literal

from groupwise.core import Example
from groupwise.rewards.math_answers import find_math_answer, find_reference, has_split_number
from groupwise.rewards.math_notation import MAX_ANSWER_LENGTH, read_number, write_plainly
from groupwise.rewards.math_units import split_unit
from groupwise.rewards.parser import OpenParser, Parsed
from groupwise.rewards.reward import Reward
from groupwise.rewards.unit_names import is_filler, is_known

_LEAD = re.compile(
    r"\s*(?:(?:(?:the )?(?:correct )?answer(?: is|\s*[:：])"
    r"|(?:正确)?答案(?:是|为|\s*[:：]))[:：\s]*)?",
    re.IGNORECASE,
)
_MAX_UNIT_LENGTH = 16


class _MathematicalParser(OpenParser):
    def make_reward(self) -> Reward:
        """Return the reward of an equal value."""
        from groupwise.rewards.math_equality import MathEquality

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
