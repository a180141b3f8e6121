"""Reward: is the right option chosen?

Range: 0 or 1. Grammar of the answer (after Unicode's NFKC; case does not count)::

    answer  = [("answer" | "the answer is" | "答案" | "答案是" | "选" ...) [":"]] choices ["."]
    choices = letter {("," | ";" | "/" | "、" | "and" | "和" | " ") letter}
            | letter ("." | ")" | ":") text of that option
    letter  = A, B, ... also in brackets or stars
"""

import re
import unicodedata
from collections.abc import Sequence
from string import ascii_uppercase

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.fields import read_list
from groupwise.rewards.reward import RewardKind
from groupwise.rewards.tags import TagContract, read_answer
from groupwise.rewards.text_answers import normalize_text

_LEAD = re.compile(
    r"(?:(?:the )?(?:correct )?(?:answer|option|choice)(?: is)?"
    r"|(?:正确)?答案(?:是|为|选)?|选项?|我选)\s*:?\s*(?=[(*\[A-Za-z])",
    re.IGNORECASE,
)
_LETTER = r"(?:\*\*)?[(\[]?([A-Za-z])[)\]]?(?:\*\*)?"
_BETWEEN = r"(?:\s*[,;/、]\s*|\s+and\s+|\s*和\s*|\s+)"
_CHOICES = re.compile(rf"{_LETTER}(?:{_BETWEEN}{_LETTER})*[.。]?", re.IGNORECASE)
_WITH_TEXT = re.compile(rf"{_LETTER}(?:\s*[.):、]\s*|\s+)(\S.*)", re.DOTALL)


class MultipleChoice:
    """1 if the letters in the answer are those in the label, else 0.

    What is not an answer under the grammar, a letter that is no option, and a letter beside the
    text of another option are invalid. Several letters compare as sets; where the label has one,
    naming several is invalid.

    Args:
        contract: where the answer stands; None: the whole completion.
        options: field with the list of the options' texts; it says how many letters there are.
        num_options: where an example does not have that field.
    """

    name = "multiple_choice"
    kind: RewardKind = "truth"
    runs_beside_scoring = True

    def __init__(
        self,
        contract: TagContract | None = None,
        *,
        options: str = "options",
        num_options: int = 4,
    ) -> None:
        if not 2 <= num_options <= len(ascii_uppercase):
            raise RewardError("a choice has 2 to 26 options", got=num_options)
        self.contract = contract
        self.options = options
        self.num_options = num_options

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has a label."""
        return example.label is not None

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if the label names no option, or the options are no list of texts.
        """
        if example.label is None:
            return Score(None, "no label")
        texts = self._read_options(example)
        right, problem = read_choices(example.label, texts)
        if not right:
            raise RewardError(
                f"example {example.id} has a label that no answer can give ({problem})",
                got=repr(example.label),
                expected=f"letters from A to {ascii_uppercase[len(texts) - 1]}",
            )
        answer, problem = read_answer(completion.text, self.contract)
        if answer is None:
            return Score(0.0, problem, invalid=True)
        chosen, problem = read_choices(answer, texts)
        if not problem and len(chosen) > 1 and len(right) == 1:
            problem = f"several options: {', '.join(sorted(chosen))}"
        if problem:
            return Score(0.0, problem, invalid=True)
        shown = ", ".join(sorted(chosen))
        if chosen == right:
            return Score(1.0, f"{shown} is right")
        return Score(0.0, f"{shown} is wrong, the label is {', '.join(sorted(right))}")

    def _read_options(self, example: Example) -> Sequence[str | None]:
        given: object = example.fields.get(self.options)
        if given is None:
            return [None] * self.num_options
        texts = [text for text in read_list(given) or () if isinstance(text, str)]
        if not 2 <= len(texts) <= len(ascii_uppercase) or len(texts) != len(read_list(given) or ()):
            raise RewardError(
                f"example {example.id} has options that are not 2 to 26 texts", got=repr(given)
            )
        return texts


def read_choices(text: str, options: Sequence[str | None]) -> tuple[frozenset[str], str]:
    """Return the letters that an answer names, or none and the reason.

    Args:
        text: the answer.
        options: texts of the options, or None where they are not known.
    """
    plain = unicodedata.normalize("NFKC", text).strip()
    lead = _LEAD.match(plain)
    plain = plain[lead.end() :] if lead else plain
    if not _CHOICES.fullmatch(plain):
        return _read_letter_with_text(plain, options)
    letters = re.findall("[A-Z]", re.sub(r"\sAND\s", " ", plain.upper()))
    strange = sorted(set(letters) - set(ascii_uppercase[: len(options)]))
    if strange:
        return frozenset(), f"{', '.join(strange)} is no option"
    return frozenset(letters), ""


def _read_letter_with_text(plain: str, options: Sequence[str | None]) -> tuple[frozenset[str], str]:
    match = _WITH_TEXT.fullmatch(plain)
    if not match:
        return frozenset(), "no letter of an option alone"
    letter = match.group(1).upper()
    place = ascii_uppercase.index(letter)
    if place >= len(options):
        return frozenset(), f"{letter} is no option"
    expected = options[place]
    if expected is None or normalize_text(match.group(2)) != normalize_text(expected):
        return frozenset(), f"other text than that of the option stands beside {letter}"
    return frozenset({letter}), ""
