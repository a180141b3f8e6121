"""Stage A replies made into summaries.

A reply is cleaned first and tested then. What is not a text about exactly one photo is a problem
with a cause, never a summary: a reply that was cut off may have lost its negative remark.
"""

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise_recipes.group_qc.words import Words

_QUOTES = "\"'“”‘’＂＇「」"
_QUOTE = f"[{_QUOTES}]"
_FENCED = re.compile(
    r"```[ \t]*(?:[A-Za-z]*[ \t]*\r?\n|json)?\s*((?:(?!```).)*?)\s*(?:```)?", re.DOTALL
)
_LOOSE_OBJECT = re.compile(
    rf"[{{｛]\s*{_QUOTE}([^{_QUOTES}]*){_QUOTE}\s*[:：]"
    rf"\s*{_QUOTE}([^{_QUOTES}\\]*){_QUOTE}\s*[,，]?\s*[}}｝]"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a reply or a record cannot be used: a fixed cause for counting, and what was found."""

    cause: str
    detail: str = ""
    expected: str = ""


def clean_summary(text: str, words: Words) -> str | Problem:
    """Read the reply about one photo: ``{"图片_1": "…"}`` or plain text, fenced or not.

    White space becomes single blanks; invisible characters, quotes around the text, a leading
    ``图片_1：`` and a fence are taken off; full-width braces, quotes and colons of the JSON are
    read as plain ones. The words themselves are kept as they are.
    """
    body = _strip_invisible(text).strip()
    fenced = _FENCED.fullmatch(body)
    body = re.sub(r"\s", " ", fenced[1] if fenced else body)
    return _read_object(body, words) if body.startswith(("{", "｛")) else _finish(body, words)


def number_summaries(texts: Sequence[str], words: Words) -> dict[str, str]:
    """Return the summaries of a group's photos, in order, as ``{"图片_1": …, "图片_2": …}``."""
    return {words.name_photo(number): text for number, text in enumerate(texts, start=1)}


def _read_object(body: str, words: Words) -> str | Problem:
    """Read a reply that begins like a JSON object."""
    try:
        pairs: object = json.loads(body, object_pairs_hook=_Pairs, strict=False)
    except (ValueError, RecursionError):
        loose = _LOOSE_OBJECT.fullmatch(body)
        pairs = _Pairs([(loose[1], loose[2])]) if loose else None
    if not isinstance(pairs, _Pairs):
        return Problem("broken JSON", body[:80])
    if not pairs:
        return Problem("empty summary", body[:80])
    if len(pairs) > 1:
        return Problem("several photos", ", ".join(str(key) for key, _ in pairs[:5]))
    key, value = pairs[0]
    number = re.fullmatch(_name_any(words), key.strip(), re.IGNORECASE)
    if number is None or int(number[1]) != 1:
        return Problem("wrong key", f"{key[:40]!r} instead of {words.name_photo(1)!r}")
    if not isinstance(value, str):
        return Problem("not a text", type(value).__name__)
    return _finish(value, words)


class _Pairs(list[tuple[str, Any]]):
    """Keys and values of a JSON object, repeated keys included."""


def _finish(text: str, words: Words) -> str | Problem:
    """Take off what is around the words, then test them."""
    text = " ".join(_strip_invisible(text).split())
    lead = re.compile(rf"{_name_any(words)}\s*[:：]\s*", re.IGNORECASE)
    while (shorter := _unwrap(text, lead)) != text:
        text = shorter
    if not has_words(text):
        return Problem("empty summary", text[:80])
    if "```" in text or any(mark in text for mark in "{}｛｝"):
        return Problem("text around the answer", text[:80])
    if lead.match(text):
        return Problem("wrong key", text[:80])
    if re.search(rf"{re.escape(words.photo)}\s*[_＿]\s*[0-9０-９]", text, re.IGNORECASE):
        return Problem("several photos", text[:80])
    return words.irrelevant if text.strip(" 。.！!；;，,") == words.irrelevant else text


def _unwrap(text: str, lead: re.Pattern[str]) -> str:
    """Take off quotes around a text or its leading 图片_1."""
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        return text[1:-1].strip()
    found = lead.match(text)
    return text[found.end() :] if found and int(found[1]) == 1 else text


def _name_any(words: Words) -> str:
    """Return a pattern of what the line of any photo may be called, with its number."""
    return rf"{re.escape(words.photo)}\s*[_＿]?\s*([0-9０-９]+)"


def has_words(text: str) -> bool:
    """Say whether there is a letter or a number in a text."""
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def _strip_invisible(text: str) -> str:
    """Drop control, format and surrogate characters that are not white space."""
    return "".join(c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
