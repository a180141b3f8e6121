"""The answer parser of labels: which texts are an answer, and which label they give.

The whole text must follow the grammar; whatever does not is invalid and never a class. Nothing
here knows what the labels mean or pays for them.

Grammar of the stripped text (``describe`` names the keys of an optional description)::

    answer         = [description] [lead] marked ["." | "!"] [confidence]
    lead           = ("Classification" | "分类" | "Answer" | "答案") ":"
                     | (["The"] "answer is" | "答案是" | "答案为") [":"]
    marked         = label, or in stars (1 to 3 on each side), in quotation marks or brackets, or in
                     both
    description    = KEY ":" words "." ...      every key, in order
    words          = 1 to 60 characters without ".", ":" or a line break; no label in them
    confidence     = [","] ("Confidence" | "置信度") ":" (0 to 1 | 0 to 100 "%") ["."]
                     on the same or the next line

Case and width do not count (``Ａ级`` is ``A级``), nor whether accents are composed. Where a label
has a hyphen or a space, a hyphen (also a Unicode one) with or without spaces, or spaces, may stand.
Formatting is no part of an answer: stars go outside of quotation marks (``"``, ``'``, a backtick,
“”, ‘’, 「」, 『』) or brackets (``()``, ``[]``, （）, 【】), a stop or exclamation mark may stand
inside of either, and what is opened must be closed.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Example, RewardError
from groupwise.rewards.reward import AnswerParser, Parsed, Parser

MAX_WORDS_LENGTH = 60

_SPACE = r"[ \t\u00a0\u3000]"
_HYPHEN = r"[-\u2010\u2011\u2012\u2013\u2212\ufe63]"
_SEPARATOR = re.compile(rf"{_SPACE}*{_HYPHEN}{_SPACE}*|{_SPACE}+")
_END = r"[.\u3002!]"
_OPENING = (
    r"(?P<marks>(?P<stars>\*{1,3})?"
    r"(?:(?P<quote>[\"'`])|(?P<bracket>[\u201c\u2018\u300c\u300e(\[\uff08\u3010]))?)"
)
_CLOSING = (
    rf"(?(quote){_END}?(?P=quote))(?(bracket){_END}?[\u201d\u2019\u300d\u300f)\]\uff09\u3011])"
    rf"(?(stars){_END}?(?P=stars))"
)
_MARKS = "*\"'`\u201c\u201d\u2018\u2019\u300c\u300d\u300e\u300f!"
_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_WORDS = rf"([^.\u3002:{_BREAKS}]+)"
_CONFIDENCE = (
    rf"(?:{_SPACE}*,)?{_SPACE}*(?:\r?\n{_SPACE}*)?(?<=[.\u3002, \t\u00a0\u3000\n])"
    rf"(?:confidence|置信度){_SPACE}*:{_SPACE}*"
    rf"(?P<number>[0-9]{{1,3}}(?:\.[0-9]{{1,9}})?|\.[0-9]{{1,9}}){_SPACE}*(?P<percent>%?)[.\u3002]?"
)
_RESERVED = re.compile(r"[.:,\u3002\s]*(?:classification|confidence|(?:分类|置信度)$)")
_NEVER = rf".:,%\u3002{_BREAKS}"
_FORBIDDEN = re.compile(rf"[{_NEVER}]")


class _Forms(dict[int, str]):
    """One letter for each of its cases and widths; quotation marks, brackets and stars stay."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        if 0xFF01 <= code <= 0xFF5E and chr(code - 0xFEE0) not in "*\"'`()[]":
            sign = chr(code - 0xFEE0)
        low = sign.upper().lower()
        # The Kelvin sign is not a k, though its small letter is one.
        self[code] = low if len(low) == 1 and sign in (low, low.upper()) else sign
        return self[code]


_FORMS = _Forms()


class LabelParser(AnswerParser):
    """The labels an answer may give, and the description that may stand before them.

    Attributes:
        labels: at least two; they may be words of any language.
        describe: keys of the description, in order; empty if only the label is allowed.
    """

    kind: Literal["labels"] = "labels"
    labels: tuple[str, ...] = Field(min_length=2)
    describe: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for kind, names in (("label", self.labels), ("key", self.describe)):
            for name in names:
                is_bare = name and name == name.strip().strip(_MARKS + "！")
                folded = _fold(name)
                if not is_bare or _FORBIDDEN.search(folded) or _RESERVED.match(folded):
                    raise ValueError(
                        f"{name!r} cannot be a {kind}; expected words without stops, colons, "
                        "commas, percent signs, line breaks, outer spaces and outer marks, and not "
                        "'Classification', 'Confidence', '分类' or '置信度'"
                    )
        if len(set(map(_simplify, map(_compose, self.labels)))) < len(self.labels):
            raise ValueError(f"two labels cannot be told apart in {list(self.labels)}")
        if len(set(map(_fold, self.describe))) < len(self.describe):
            raise ValueError(f"a key appears twice in {list(self.describe)}")
        labelled = [key for key in self.describe if _find_labels(key, self.labels)]
        if labelled:
            raise ValueError(f"the key {labelled[0]!r} contains a label")
        return self

    def write(self, target: str, words: Sequence[str] = ()) -> str:
        """Return the answer with the label ``target`` and, if given, a word per key.

        Raises:
            RewardError: if the parser would not read that text as this label.
        """
        keys = self.describe if words else ()
        if len(keys) != len(words):
            raise RewardError("words and keys differ in number", got=list(words), expected=keys)
        parts = [f"{key}: {said}. " for key, said in zip(keys, words, strict=True)]
        return self._finish("".join([*parts, target]), target)

    def _read(self, text: str, example: Example | None) -> Parsed:
        del example
        return _read_answer(text, self.labels, self.describe)


# Short answers come again and again: in a group of answers, and with each example of an audit.
@lru_cache(maxsize=1024)
def _read_answer(text: str, labels: tuple[str, ...], described: tuple[str, ...]) -> Parsed:
    text = _compose(text)
    folded = text.strip().translate(_FORMS)  # as long as before
    for describe in dict.fromkeys((described, ())):
        matches = [pattern.fullmatch(folded) for pattern in _compile_answer(describe)]
        found = [
            (label, match)
            for match in matches
            if match and (label := _index(labels).get(_simplify(match["label"]))) is not None
        ]
        if not found:
            continue
        label, match = min(found, key=lambda one: labels.index(one[0]))
        named = match.groupdict()
        for words in match.groups()[: -len(named)]:
            said = words.strip()
            if not any(character.isalnum() for character in said):
                return Parsed(None, "the description has a key without words")
            if len(said) > MAX_WORDS_LENGTH:
                most = f"{MAX_WORDS_LENGTH} characters after a key"
                return Parsed(None, f"the description has more than {most}")
            known = _find_labels(said, labels)
            if known:
                return Parsed(None, f"the description contains the label {known[0]}")
        number, percent, confidence = named["number"], named["percent"], None
        if number is not None:
            confidence = float(number) / (100 if percent else 1)
            if confidence > 1:
                return Parsed(None, f"the confidence {number}{percent} is not in [0, 1]")
        start = len(text) - len(text.lstrip()) + match.start("marks")
        return Parsed(label, confidence=confidence, prefix=text[:start])
    named = _find_labels(folded, labels)
    if not named:
        return Parsed(None, "no label")
    if len(set(named)) > 1:
        return Parsed(None, f"more than one label: {', '.join(sorted(set(named)))}")
    if len(named) > 1:
        return Parsed(None, f"the label {named[0]} appears {len(named)} times")
    return Parsed(None, f"other text around the label {named[0]}")


@lru_cache(maxsize=256)
def _compile_answer(describe: tuple[str, ...]) -> list[re.Pattern[str]]:
    """Return patterns of folded answers with a lead and without: a label may begin like one."""
    description = ""
    for key in describe:
        words = map(re.escape, _SEPARATOR.split(_fold(key)))
        spelled = f"(?:{_SEPARATOR.pattern})".join(words)
        description += rf"{spelled}{_SPACE}*:{_WORDS}[.\u3002]\s*"
    colon = rf"{_SPACE}*:\s*"
    lead = (
        rf"(?:(?:classification|分类|answer|答案){colon}|答案[是为](?:{colon}|{_SPACE}*)"
        rf"|(?:the{_SPACE}+)?answer{_SPACE}+is(?:{colon}|{_SPACE}+))"
    )
    # What no label has ends it; thousands of labels would be thousands of patterns.
    answer = rf"{_OPENING}(?P<label>[^{_NEVER}]+?){_CLOSING}{_END}?(?:{_CONFIDENCE})?"
    return [re.compile(rf"{description}{before}{answer}") for before in (lead, "")]


def _fold(name: str) -> str:
    return _compose(name).translate(_FORMS)


def _simplify(text: str) -> str:
    """Return what counts of a text, with one hyphen for each separator."""
    return _SEPARATOR.sub("-", text.translate(_FORMS))


@lru_cache(maxsize=64)
def _index(labels: tuple[str, ...]) -> dict[str, str]:
    """Return labels by what counts of them, and of their cases where these say something else."""
    composed = [(_compose(label), label) for label in labels]
    known = {_simplify(own): label for own, label in composed}
    for own, label in composed:  # I is a dotless ı, and Σ a final ς
        for case in (own.upper(), own.lower()):
            if len(case) == len(own):
                known.setdefault(_simplify(case), label)
    return known


def _compose(text: str) -> str:
    """Return a text with composed accents; signs that only look like letters stay what they are."""
    if unicodedata.is_normalized("NFC", text):
        return text
    has_signs = any(not unicodedata.is_normalized("NFC", letter) for letter in text)
    return text if has_signs else unicodedata.normalize("NFC", text)


_DENIED = re.compile(
    r"\b(?:not|no|none|never|neither|nor|cannot|without|but|unlike)\b|n['\u2019]t\b|[不没非未无别]",
)


def read_leniently(parser: Parser, text: str, example: Example | None = None) -> str | None:
    """Return the one label that an answer of an untrained model names, or None.

    It is the answer of the only label among the text's lines, or the only label that is named in a
    text that denies nothing. Nothing is paid by it: a policy would learn to write around answers.
    """
    lines = [found.label for line in text.splitlines() if (found := parser.parse(line, example))]
    answered = {label for label in lines if label is not None}
    if len(answered) > 1:
        return None
    if answered:
        return answered.pop()
    if not isinstance(parser, LabelParser):
        return None
    composed = _compose(text)
    named = set(_find_labels(composed, parser.labels))
    if len(named) != 1:
        return None
    label = named.pop()
    rest = _simplify(composed).replace(_simplify(_compose(label)), "")
    return None if _DENIED.search(rest) else label


def _find_labels(text: str, labels: tuple[str, ...]) -> list[str]:
    """Return the labels that stand in a text, in order; one inside a longer one does not count."""
    plain = _simplify(text)

    def is_inside_word(position: int) -> bool:
        """Say whether a word goes on there; scripts without spaces have no words."""
        sides = plain[max(0, position - 1) : position + 1]
        return 0 < position < len(plain) and all(
            side == "_" or side.isdigit() or side.lower() != side.upper() for side in sides
        )

    known = _index(labels)
    lengths = sorted(set(map(len, known)), reverse=True)
    found: list[str] = []
    last = 0
    for start in range(len(plain)):
        for end in [start + length for length in lengths if last < start + length <= len(plain)]:
            label = known.get(plain[start:end])
            if label is not None and not is_inside_word(start) and not is_inside_word(end):
                found.append(label)
                last = end
                break
    return found
