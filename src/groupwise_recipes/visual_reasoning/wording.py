"""Splits a text about two things into phrases by their letters, which the grammar of claims reads.

The phrases, in English and Chinese, stand in ``phrases/phrases.yaml``.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import yaml

from groupwise_drawn.relations import KINDS, LANGUAGES, name_thing

__all__ = ["Word", "find_name", "split_words"]

_FILE = Path(__file__).parent / "phrases" / "phrases.yaml"
_MARKS = (
    ("Q", r"[?？]"),
    (".", r"[.!。！\n]+(?![\da-z])"),
    ("|", r"[;；]"),
    (",", r"[,，、]"),
    (":", r"[:：]"),
    ("#", r"\d+(?:\.\d+)?"),
    ("w", r"[a-z]+(?:'[a-z]+)?|[\u4e00-\u9fff]"),
)


def _list_entries() -> Iterator[tuple[str, object, str]]:
    """Yield letters, meaning and pattern of all phrases."""
    table = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    for entry in table["phrases"]:
        english, chinese = entry.get("en", ""), entry.get("zh", "")
        for name, part in table["parts"].items():
            english = english.replace(f"{{{name}}}", part)
        patterns = (english and f"(?<![a-z])(?:{english})(?![a-z])", chinese)
        yield entry["letters"], entry.get("means"), "|".join(filter(None, patterns))
    for letter, pattern in _MARKS:
        yield letter, None, pattern


_ENTRIES = list(_list_entries())
_PHRASES = "|".join(f"(?P<_{number}>{entry[2]})" for number, entry in enumerate(_ENTRIES))
_COLOR = "red|orange|yellow|green|blue|purple|pink|brown|black|white|gr[ae]y"
_COLOR_ZH = "[红橙黄绿蓝紫粉棕黑白灰]"
_COLORED = re.compile(rf"(?:{_COLOR})(?= )|{_COLOR_ZH}(?=色)")
_HEAD = re.compile(rf"^(?:.* |{_COLOR_ZH}色的?)")
_BOX = r"\[[^\[\]]*?([^\[\]\d,. ][^\[\],\d]*)?\]"
_ONE_BOX = re.compile(_BOX)
_BOXES = re.compile(rf"{_BOX}(?:[ ,，]*{_BOX})+")
_BULLET = re.compile(r"(?m)^\s*(?:\d+[.)]|[-*•])\s+")
_POINT = re.compile(r"\((\d+), ?(\d+)\)")
_LONG_FORMS = {
    "’": "'",
    "it's": "it is",
    "that's": "that is",
    "there's": "there is",
    "can't": "can not",
    "cannot": "can not",
    "n't": " not",
}


class Word(NamedTuple):
    """A phrase.

    Attributes:
        letter: what it does, as the table above says.
        value: what it means: the name of a thing, relations, an axis, a truth.
        text: as it is written.
    """

    letter: str
    value: object
    text: str


def split_words(text: str, names: tuple[str, str]) -> list[Word]:
    """Return the phrases of a text, and other words."""
    text = text.casefold()
    for short, long in _LONG_FORMS.items():
        text = text.replace(short, long)
    text = _BOXES.sub(lambda boxes: _ONE_BOX.sub(r" \1. ", boxes[0]), text)
    text = _POINT.sub(r" x \1 y \2 ", _BULLET.sub(" ", _ONE_BOX.sub(r" \1 ", text)))
    words = list[Word]()
    for found in _compile_phrases(names).finditer(text):
        letters, value = _read(found, names, words)
        if letters == "w" and words and words[-1].letter == "w":
            words[-1] = Word("w", None, f"{words[-1].text} {found[0]}")
        else:
            words += [Word(letter, value, found[0]) for letter in letters]
    return words


def find_name(label: str, names: tuple[str, str]) -> str | None:
    """Return which of the names a label is: a colour may be left out, not be another."""
    found = _compile_phrases(names).fullmatch(label.strip().casefold())
    return _name(found, names) if found and found["thing"] else None


@lru_cache(maxsize=1024)
def _compile_phrases(names: tuple[str, str]) -> re.Pattern[str]:
    drawn = [name_thing(kind, None, language) for kind in KINDS for language in LANGUAGES]
    heads = sorted({_HEAD.sub("", name) for name in (*names, *drawn)}, key=len, reverse=True)
    head = "|".join(re.escape(name) + ("(?![a-z])" if name.isascii() else "") for name in heads)
    color = f"(?:{_COLOR}) |{_COLOR_ZH}色的?"
    one = f"(?P<color_of_one>{color})(?:one|thing)(?![a-z])"
    thing = f"(?P<thing>(?<![a-z])(?:(?P<color>{color})?(?P<head>{head})|{one}))"
    return re.compile(f"{thing}|{_PHRASES}")


def _read(
    found: re.Match[str], names: tuple[str, str], words: Sequence[Word]
) -> tuple[str, object]:
    """Return letters and meaning of a phrase."""
    if found["thing"]:
        return "T", _name(found, names)
    letters, value, _ = _ENTRIES[int(str(found.lastgroup)[1:])]
    if letters == ",T":  # "which is" is said of what was named last
        value = next((word.value for word in reversed(words) if word.letter == "T"), None)
    return letters, value


def _name(found: re.Match[str], names: tuple[str, str]) -> str:
    """Return which of the names is meant; what is written, if none of them."""
    said = _COLORED.match(found["color"] or found["color_of_one"] or "")
    for name in names:
        own = _COLORED.search(name)
        is_color = said is not None and own is not None and said[0] == own[0]
        is_head = found["head"] == _HEAD.sub("", name)
        if is_color if found["color_of_one"] else is_head and (is_color or not (said and own)):
            return name
    return found[0]
