"""Stage A replies made into summaries, and the record of a group that they make up.

A reply is cleaned first and tested then. What is not a text about exactly one photo is a problem
with a cause, never a summary: a reply that was cut off may have lost its negative remark.
"""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from groupwise.core import DataError
from groupwise_recipes.group_qc.photos import LABELS, PhotoGroup
from groupwise_recipes.group_qc.words import Words

RECORD_KEYS = ("group_id", "mission", "label", "images", "per_image")

_QUOTES = "\"'“”‘’＂＇「」"
_QUOTE = f"[{_QUOTES}]"
_FENCED = re.compile(
    r"```[ \t]*(?:[A-Za-z]*[ \t]*\r?\n|json)?\s*((?:(?!```).)*?)\s*(?:```)?", re.DOTALL
)
_PLACE = re.compile(r"[^/]+/")
_LOOSE_OBJECT = re.compile(
    rf"[{{｛]\s*{_QUOTE}([^{_QUOTES}]*){_QUOTE}\s*[:：]"
    rf"\s*{_QUOTE}([^{_QUOTES}\\]*){_QUOTE}\s*[,，]?\s*[}}｝]"
)


@dataclass(frozen=True, slots=True)
class Summary:
    """One line about one photo."""

    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a reply or a record cannot be used: a fixed cause for counting, and what was found."""

    cause: str
    detail: str = ""
    expected: str = ""


def clean_summary(text: str, words: Words) -> Summary | Problem:
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


def make_record(
    group: PhotoGroup,
    texts: Sequence[str],
    words: Words,
    *,
    root: Path,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Return the line of ``<mission>_stage_a.jsonl`` about a finished photo group.

    ``images`` are relative to ``root``; ``get_record_key`` gives the group's key back.

    Raises:
        DataError: if there is not exactly one summary with words for each photo.
    """
    record = {
        "group_id": group.group_id,
        "mission": group.mission,
        "label": group.label,
        "images": group.list_images(root),
        "per_image": number_summaries(texts, words),
        "timestamp": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
    }
    check_record(record, words)
    return record


def get_record_key(record: Mapping[str, Any]) -> str:
    """Return ``PhotoGroup.key`` of a record: the folder of its first photo."""
    return str(record["images"][0]).rpartition("/")[0]


def check_record(record: Mapping[str, Any], words: Words) -> None:
    """Refuse a record that does not follow the contract.

    Args:
        record: a line of ``<mission>_stage_a.jsonl``.
        words: of the job.

    Raises:
        DataError: if a field is missing or broken, the keys are not exactly 图片_1 … 图片_N in this
            order for N photos, or a summary is empty.
    """
    problem = find_problem(record, words)
    if problem:
        where = f"the record of photo group {record.get('group_id')!r} has {problem.cause}"
        raise DataError(where, got=problem.detail[:200], expected=problem.expected)


def find_problem(record: Mapping[str, Any], words: Words) -> Problem | None:
    """Return how a record breaks the contract, if it does."""
    missing = [key for key in RECORD_KEYS if key not in record]
    if missing:
        return Problem("missing fields", ", ".join(missing), ", ".join(RECORD_KEYS))
    images, summaries = record["images"], record["per_image"]
    if not isinstance(images, list) or not isinstance(summaries, dict):
        return Problem("broken fields", "", "a list of images and summaries by photo")
    if not all(isinstance(record[key], str) and record[key] for key in ("group_id", "mission")):
        return Problem("broken fields", "", "a text for group_id and mission")
    if record["label"] not in (*LABELS, None):
        return Problem("a wrong label", str(record["label"]), "pass or fail")
    if not images or not all(
        isinstance(one, str) and "/" in one[1:] and one[0] != "/" for one in images
    ):
        return Problem("wrong photos", str(images), "a path for each photo, with its folder")
    return _check_summaries(summaries, len(images), words)


def _check_summaries(summaries: Mapping[str, Any], num: int, words: Words) -> Problem | None:
    if list(summaries) != list(number_summaries([""] * num, words)):
        got = ", ".join(map(str, summaries)) or "none"
        expected = f"{words.name_photo(1)} to {words.name_photo(num)} in order"
        return Problem("wrong keys", got, expected)
    for key, text in summaries.items():
        if not isinstance(text, str) or not _has_words(text):
            return Problem("an empty summary", f"{key}: {text!r}", "words")
    return None


def _read_object(body: str, words: Words) -> Summary | Problem:
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


def _finish(text: str, words: Words) -> Summary | Problem:
    """Take off what is around the words, then test them."""
    text = " ".join(_strip_invisible(text).split())
    lead = re.compile(rf"{_name_any(words)}\s*[:：]\s*", re.IGNORECASE)
    while (shorter := _unwrap(text, lead)) != text:
        text = shorter
    if not _has_words(text):
        return Problem("empty summary", text[:80])
    if "```" in text or any(mark in text for mark in "{}｛｝"):
        return Problem("text around the answer", text[:80])
    if lead.match(text):
        return Problem("wrong key", text[:80])
    if re.search(rf"{re.escape(words.photo)}\s*[_＿]\s*[0-9０-９]", text, re.IGNORECASE):
        return Problem("several photos", text[:80])
    return Summary(words.irrelevant if text.strip(" 。.！!；;，,") == words.irrelevant else text)


def _unwrap(text: str, lead: re.Pattern[str]) -> str:
    """Take off quotes around a text or its leading 图片_1."""
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        return text[1:-1].strip()
    found = lead.match(text)
    return text[found.end() :] if found and int(found[1]) == 1 else text


def _name_any(words: Words) -> str:
    """Return a pattern of what the line of any photo may be called, with its number."""
    return rf"{re.escape(words.photo)}\s*[_＿]?\s*([0-9０-９]+)"


def _has_words(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def _strip_invisible(text: str) -> str:
    """Drop control, format and surrogate characters that are not white space."""
    return "".join(c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
