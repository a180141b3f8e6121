"""The answer parser of multiple choice: which options does a text name?

Grammar of the answer (in Unicode's NFKC form; case does not count)::

    answer  = [("answer" | "the answer is" | "答案" | "答案是" | "选" ...) [":"]] choices ["."]
    choices = letter {("," | ";" | "/" | "、" | "and" | "和" | " ") letter}
            | letter ("." | ")" | ":") text of that option
    letter  = A, B, ... also in brackets, quotation marks or stars; none stands there twice
"""

import re
import unicodedata
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Literal

from pydantic import Field

from groupwise.core import Example, RewardError
from groupwise.rewards.label_match import LabelMatch
from groupwise.rewards.parser import AnswerParser
from groupwise.rewards.reward import Parsed, Reward, read_list
from groupwise.rewards.text import normalize_text

_LEAD = re.compile(
    r"\s*(?:(?:(?:the )?(?:correct )?(?:answer|option|choice)(?: is)?"
    r"|(?:正确)?答案(?:是|为|选)?|选项?|我选)\s*:?\s*(?=[(*\[\"“「【A-Za-z]))?",
    re.IGNORECASE,
)
_LETTER = r"(?:\*\*)?[(\[\"“「【]?([A-Za-z])[)\]\"”」】]?(?:\*\*)?"
_BETWEEN = r"(?:\s*[,;/、]\s*|\s+and\s+|\s*和\s*|\s+)"
_CHOICES = re.compile(rf"{_LETTER}(?:{_BETWEEN}{_LETTER})*[.。]?", re.IGNORECASE)
_WITH_TEXT = re.compile(rf"{_LETTER}(?:\s*[.):、]\s*|\s+)(\S.*)", re.DOTALL)
_BREAK = re.compile(r"[\s,;/、\[\]\"]+")


class ChoiceParser(AnswerParser):
    """Letters of options: ``B``, or ``A, C`` in the order of the alphabet.

    Attributes:
        num_options: how many there are, where an example does not list their texts; the most there
            are, where examples do.
        options: field of examples with the list of the options' texts, which may stand behind the
            letter.
        several: whether an answer may name several.
    """

    kind: Literal["choice"] = "choice"
    num_options: int = Field(default=4, ge=2, le=len(ascii_uppercase))
    options: str = "options"
    several: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """The letters; empty if an answer may name several."""
        return () if self.several else tuple(ascii_uppercase[: self.num_options])

    def make_reward(self) -> Reward:
        """Return the reward of the right letters."""
        return LabelMatch(self)

    def _read(self, text: str, example: Example | None) -> Parsed:
        # Letter by letter: each letter of a lead has one in the given text.
        plain = "".join(unicodedata.normalize("NFKC", letter) for letter in text)
        lead = _LEAD.match(plain)
        start = lead.end() if lead else 0
        options: Sequence[str | None] = [None] * self.num_options  # their texts are not known
        given: object = example.fields.get(self.options) if example else None
        if example is not None and given is not None:
            items = read_list(given) or ()
            options = [text for text in items if isinstance(text, str)]
            if not 2 <= len(options) == len(items) <= len(ascii_uppercase):
                raise RewardError(
                    f"example {example.id} has options that are not 2 to 26 texts", got=repr(given)
                )
        letters, problem = _read_letters(plain[start:].strip(), options)
        if not problem and len(letters) > 1 and not self.several:
            problem = f"several options: {', '.join(letters)}"
        return Parsed(None, problem) if problem else Parsed(", ".join(letters), prefix=text[:start])

    def _normalize(self, target: str) -> str:
        """Return letters in order; a list of them as JSON (``["C", "A"]``) is read, too."""
        return ", ".join(sorted(set(_BREAK.split(target.upper())) - {""}))


def _read_letters(text: str, options: Sequence[str | None]) -> tuple[list[str], str]:
    """Return the letters that an answer names, in order, or none and the reason."""
    if _CHOICES.fullmatch(text):
        named = re.findall("[A-Z]", re.sub(r"\sAND\s", " ", text.upper()))
        letters = sorted(set(named))
        repeated = [letter for letter in letters if named.count(letter) > 1]
        if repeated:
            return [], f"{', '.join(repeated)} stands there more than once"
        strange = [letter for letter in letters if letter not in ascii_uppercase[: len(options)]]
        return (letters, "") if not strange else ([], f"{', '.join(strange)} is no option")
    match = _WITH_TEXT.fullmatch(text)
    if not match:
        return [], "no letter of an option alone"
    letter = match.group(1).upper()
    place = ascii_uppercase.index(letter)
    if place >= len(options):
        return [], f"{letter} is no option"
    expected = options[place]
    if expected is None or normalize_text(match.group(2)) != normalize_text(expected):
        return [], f"other text than that of the option is beside {letter}"
    return [letter], ""
