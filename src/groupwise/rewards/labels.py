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
from groupwise.rewards.label_match import LabelMatch
from groupwise.rewards.parser import AnswerParser
from groupwise.rewards.reward import Parsed, Parser, Reward

MAX_WORDS_LENGTH = 60

_SPACE = r"[ \t\u00a0\u3000]"
_HYPHEN = r"[-\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d]"
_SEPARATOR = rf"(?:{_SPACE}*{_HYPHEN}{_SPACE}*|{_SPACE}+)"
_ANY_SEPARATOR = re.compile(_SEPARATOR)
_COLON = r"[:\uff1a]"
_STOP = r"[.\u3002\uff0e]"
_END = r"[.\u3002\uff0e!\uff01]"
_OPENING = (
    r"(?P<marks>(?P<stars>\*{1,3})?"
    r"(?:(?P<quote>[\"'`])|(?P<bracket>[\u201c\u2018\u300c\u300e(\[\uff08\u3010]))?)"
)
_CLOSING = (
    rf"(?(quote){_END}?(?P=quote))(?(bracket){_END}?[\u201d\u2019\u300d\u300f)\]\uff09\u3011])"
    rf"(?(stars){_END}?(?P=stars))"
)
_MARKS = "*\"'`\u201c\u201d\u2018\u2019\u300c\u300d\u300e\u300f!\uff01"
_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_WORDS = rf"([^.\u3002\uff0e:\uff1a{_BREAKS}]+)"
_BEFORE_CONFIDENCE = (
    rf"(?:{_SPACE}*[,\uff0c])?{_SPACE}*(?:\r?\n{_SPACE}*)?"
    r"(?<=[.\u3002\uff0e,\uff0c \t\u00a0\u3000\n])"
)
_DIGIT = r"[0-9\uff10-\uff19]"
_CONFIDENCE = (
    rf"(?P<number>{_DIGIT}{{1,3}}(?:[.\uff0e]{_DIGIT}{{1,9}})?|[.\uff0e]{_DIGIT}{{1,9}})"
    rf"{_SPACE}*(?P<percent>[%\uff05]?){_STOP}?"
)
_RESERVED = re.compile(
    r"[.:,\u3002\uff0e\uff1a\uff0c\s]*(?:classification|confidence|(?:分类|置信度)$)", re.I
)
_WIDE = {chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)}
_NARROW = str.maketrans({wide: narrow for narrow, wide in _WIDE.items()})
_NEVER = rf".:,%\u3002\uff0e\uff1a\uff0c{_BREAKS}"
_FORBIDDEN = re.compile(rf"[{_NEVER}]")


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
                is_bare = name and name == name.strip().strip(_MARKS)
                if not is_bare or _FORBIDDEN.search(name) or _RESERVED.match(_fold(name)):
                    raise ValueError(
                        f"{name!r} cannot be a {kind}; expected words without stops, colons, "
                        "commas, percent signs, line breaks, outer spaces and outer marks, and not "
                        "'Classification', 'Confidence', '分类' or '置信度'"
                    )
        spellings = [_fold(re.sub(_SEPARATOR, "-", label)) for label in self.labels]
        if len(set(spellings)) < len(spellings):
            raise ValueError(f"two labels cannot be told apart in {list(self.labels)}")
        if len(set(map(_fold, self.describe))) < len(self.describe):
            raise ValueError(f"a key appears twice in {list(self.describe)}")
        labelled = [key for key in self.describe if _find_labels(key, self.labels)]
        if labelled:
            raise ValueError(f"the key {labelled[0]!r} contains a label")
        return self

    def make_reward(self) -> Reward:
        """Return the reward of the right label."""
        return LabelMatch(self)

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
    stripped = text.strip()
    for describe in dict.fromkeys((described, ())):
        matches = [pattern.fullmatch(stripped) for pattern in _compile_answer(describe)]
        found = [
            (label, match)
            for match in matches
            if match and (label := _find_spelled(match["label"], labels)) is not None
        ]
        if found:
            label, match = min(found, key=lambda one: labels.index(one[0]))
            start = len(text) - len(text.lstrip()) + match.start("marks")
            return _read_match(match, label, text[:start], labels)
    named = _find_labels(stripped, labels)
    if not named:
        return Parsed(None, "no label")
    if len(set(named)) > 1:
        return Parsed(None, f"more than one label: {', '.join(sorted(set(named)))}")
    if len(named) > 1:
        return Parsed(None, f"the label {named[0]} appears {len(named)} times")
    return Parsed(None, f"other text around the label {named[0]}")


def _read_match(match: re.Match[str], label: str, prefix: str, labels: tuple[str, ...]) -> Parsed:
    named = match.groupdict()
    number, percent = named["number"], named["percent"]
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
    if number is None:
        return Parsed(label, prefix=prefix)
    confidence = float(number.translate(_NARROW)) / (100 if percent else 1)
    if confidence > 1:
        return Parsed(None, f"the confidence {number}{percent} is not in [0, 1]")
    return Parsed(label, confidence=confidence, prefix=prefix)


@lru_cache(maxsize=256)
def _compile_answer(describe: tuple[str, ...]) -> list[re.Pattern[str]]:
    """Return patterns of answers with a lead and without: a label may begin like one."""
    description = "".join(rf"{_spell(key)}{_SPACE}*{_COLON}{_WORDS}{_STOP}\s*" for key in describe)
    titles = f"{_spell('classification')}|分类|{_spell('answer')}|答案"
    says = rf"(?:{_spell('the')}{_SPACE}+)?{_spell('answer')}{_SPACE}+{_spell('is')}"
    colon = rf"{_SPACE}*{_COLON}\s*"
    lead = rf"(?:(?:{titles}){colon}|{says}(?:{colon}|{_SPACE}+)|答案[是为](?:{colon}|{_SPACE}*))"
    # What no label has ends it; thousands of labels would be thousands of patterns.
    label = rf"(?P<label>[^{_NEVER}]+?)"
    answer = rf"{_OPENING}{label}{_CLOSING}{_END}?"
    confidence = rf"(?:{_spell('confidence')}|置信度){_SPACE}*{_COLON}{_SPACE}*{_CONFIDENCE}"
    end = rf"{answer}(?:{_BEFORE_CONFIDENCE}{confidence})?"
    return [re.compile(rf"{description}{before}{end}") for before in (lead, "")]


@lru_cache(maxsize=256)
def _spell(name: str) -> str:
    """Return a pattern for the spellings of a name: any case and width, any separator it has."""

    def spell_letter(letter: str) -> str:
        return f"[{''.join(re.escape(form) for form in sorted(_list_forms(letter)))}]"

    words = re.split(_SEPARATOR, _compose(name))
    return _SEPARATOR.join("".join(map(spell_letter, word)) for word in words)


@lru_cache(maxsize=4096)
def _list_forms(letter: str) -> frozenset[str]:
    """Return a letter in each case and width (re.IGNORECASE takes the Kelvin sign for a k)."""
    plain = letter.translate(_NARROW)
    cases = {case for case in (plain, plain.lower(), plain.upper()) if len(case) == 1}
    return frozenset(cases | {_WIDE[case] for case in cases if case in _WIDE})


def _fold(name: str) -> str:
    """Return what counts of a name: neither width nor case."""
    return _compose(name).translate(_NARROW).lower()


def _compose(text: str) -> str:
    """Return a text with composed accents; signs that only look like letters stay what they are."""
    if unicodedata.is_normalized("NFC", text):
        return text
    has_signs = any(not unicodedata.is_normalized("NFC", letter) for letter in text)
    return text if has_signs else unicodedata.normalize("NFC", text)


_DENIED = re.compile(
    r"\b(?:not|no|none|never|neither|nor|cannot|without|but|unlike)\b|n['\u2019]t\b|[不没非未无别]",
    re.IGNORECASE,
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
    return None if _DENIED.search(re.sub(_spell(label), "", composed)) else label


def _find_labels(text: str, labels: tuple[str, ...]) -> list[str]:
    """Return the labels that stand in a text, in order; one inside a longer one does not count."""
    places, lengths = _index(labels)
    plain = _simplify(text)
    starts = range(len(plain))
    parts = {plain[start : start + length] for length in lengths for start in starts}

    def is_inside_word(position: int) -> bool:
        """Say whether a word goes on there; scripts without spaces have no words."""
        sides = text[max(0, position - 1) : position + 1]
        return 0 < position < len(text) and all(
            side == "_" or side.isdigit() or side.lower() != side.upper() for side in sides
        )

    # All others cannot stand there.
    likely = sorted(place for part in parts & places.keys() for place in places[part])
    spans = [
        (*match.span(1), labels[place])
        for place in likely
        for match in re.finditer(rf"(?=({_spell(labels[place])}))", text)
        if not any(is_inside_word(edge) for edge in match.span(1))
    ]
    found: list[str] = []
    last = 0
    for _, end, label in sorted(spans, key=lambda span: (span[0], -span[1])):
        if end > last:
            found.append(label)
            last = end
    return found


def _find_spelled(said: str, labels: tuple[str, ...]) -> str | None:
    """Return the label whose spelling a text is, as the pattern of ``_spell`` has it, or None."""
    words = re.split(_SEPARATOR, said)
    for place in _index(labels)[0].get(_simplify(said), ()):
        own = re.split(_SEPARATOR, _compose(labels[place]))
        if list(map(len, words)) == list(map(len, own)) and all(
            letter in _list_forms(ours)
            for word, name in zip(words, own, strict=True)
            for letter, ours in zip(word, name, strict=True)
        ):
            return labels[place]
    return None


@lru_cache(maxsize=64)
def _index(labels: tuple[str, ...]) -> tuple[dict[str, list[int]], frozenset[int]]:
    """Return the places of labels by what counts of them, and the lengths of that."""
    places: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(_simplify(_compose(label)), []).append(place)
    return places, frozenset(map(len, places))


def _simplify(text: str) -> str:
    """Return a text with one form of each letter and separator, whatever a pattern takes for it."""
    if text.isascii():
        plain = text.lower()
    else:
        plain = "".join(letter.upper().lower() for letter in text.translate(_NARROW))
    return _ANY_SEPARATOR.sub("-", plain)
