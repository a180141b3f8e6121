"""Answers in words: normalised in one way for rewards and metrics.

Source: normalisation of SQuAD v1.1 (Rajpurkar et al. 2016, evaluate-v1.1.py): lower case, no
punctuation, no articles, single spaces. In Chinese and Japanese text every character is a token,
as in the evaluations of CMRC 2018 (Cui et al. 2019) and DRCD (Shao et al. 2018). Deviations:
characters are first brought to Unicode's NFKC form (full-width letters and digits become plain),
and all punctuation of Unicode is left out, where SQuAD leaves out that of ASCII.
"""

import re
import string
import unicodedata
from collections.abc import Sequence
from typing import cast

from groupwise.core import Example, RewardError

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_CHARACTERS = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003134f]"
)
_ASCII_PUNCTUATION = frozenset(string.punctuation)


def normalize_text(text: str) -> str:
    """Return what counts of a text; doing it twice changes nothing more."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    kept = plain.translate({ord(letter): None for letter in set(plain) if _is_punctuation(letter)})
    return " ".join(_ARTICLES.sub(" ", kept).split())


def split_tokens(text: str) -> list[str]:
    """Return the tokens of the normalised text: words, and Chinese characters one by one."""
    return _CHARACTERS.sub(lambda match: f" {match.group()} ", normalize_text(text)).split()


def read_references(example: Example, field: str) -> list[str]:
    """Return the texts that count as right: the list in a field, or else the label.

    Raises:
        RewardError: if the field is no list of texts, or one of them has no words.
    """
    given: object = example.fields.get(field)
    if given is None:
        references = [] if example.label is None else [example.label]
    elif isinstance(given, Sequence) and not isinstance(given, str):
        references = list(cast("Sequence[object]", given))
    else:
        references = [given]
    for reference in references:
        if not isinstance(reference, str) or not has_words(reference):
            raise RewardError(
                f"example {example.id} has a reference answer that cannot be compared",
                got=repr(reference),
                expected=f"a text with words, in the label or in the list {field!r}",
            )
    return cast("list[str]", references)


def has_words(text: str) -> bool:
    """Return whether something is left to compare: a letter, a number or a symbol.

    Marks and characters that nobody sees (a zero-width space, an escape) say nothing by themselves.
    """
    return any(unicodedata.category(sign)[0] in "LNS" for sign in normalize_text(text))


def _is_punctuation(letter: str) -> bool:
    return letter in _ASCII_PUNCTUATION or unicodedata.category(letter)[0] == "P"
