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
from groupwise_drawn.cabinets import IRRELEVANT
from groupwise_recipes.group_qc.photos import LABEL_FOLDERS, PhotoGroup

PHOTO_KEY = "图片_"
RECORD_KEYS = ("group_id", "mission", "label", "images", "per_image", "timestamp")

_QUOTES = "\"'“”‘’＂＇「」"
_QUOTE = f"[{_QUOTES}]"
_KEY = r"图片\s*[_＿]?\s*([0-9０-９]+)"
_FENCED = re.compile(
    r"```[ \t]*(?:[A-Za-z]*[ \t]*\r?\n|json)?\s*((?:(?!```).)*?)\s*(?:```)?", re.DOTALL
)
_LEAD = re.compile(rf"{_KEY}\s*[:：]\s*")
_NAMED_PHOTO = re.compile(r"图片\s*[_＿]\s*[0-9０-９]")
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
    """Why a reply gives no summary: a fixed cause for counting, and what was found."""

    cause: str
    detail: str = ""


def clean_summary(text: str) -> Summary | Problem:
    """Read the reply about one photo: ``{"图片_1": "…"}`` or plain text, fenced or not.

    White space becomes single blanks; invisible characters, quotes around the text, a leading
    ``图片_1：`` and a fence are taken off; full-width braces, quotes and colons of the JSON are
    read as plain ones. The words themselves are kept as they are.
    """
    body = _strip_invisible(text).strip()
    fenced = _FENCED.fullmatch(body)
    body = re.sub(r"\s", " ", fenced[1] if fenced else body)
    if body.startswith(("{", "｛")):
        return _read_object(body)
    return _finish(body)


def number_summaries(texts: Sequence[str]) -> dict[str, str]:
    """Return the summaries of a group's photos, in order, as ``{"图片_1": …, "图片_2": …}``."""
    return {f"{PHOTO_KEY}{number}": text for number, text in enumerate(texts, start=1)}


def make_record(
    group: PhotoGroup, texts: Sequence[str], *, root: Path, now: datetime | None = None
) -> dict[str, Any]:
    """Return the line of ``<mission>_stage_a.jsonl`` about a finished group.

    ``images`` are relative to ``root``; ``get_record_key`` gives the group's key back.

    Raises:
        DataError: if there is not exactly one summary with words for each photo.
    """
    record = {
        "group_id": group.group_id,
        "mission": group.mission,
        "label": group.label,
        "images": [path.relative_to(root).as_posix() for path in group.photos],
        "per_image": number_summaries(texts),
        "timestamp": (now or datetime.now(UTC)).isoformat(timespec="seconds"),
    }
    check_record(record, len(group.photos))
    return record


def get_record_key(record: Mapping[str, Any]) -> str:
    """Return ``PhotoGroup.key`` of a record: the folder of its first photo."""
    return str(record["images"][0]).rpartition("/")[0]


def check_record(record: Mapping[str, Any], num_photos: int | None = None) -> None:
    """Refuse a record that does not follow the contract.

    Args:
        record: a line of ``<mission>_stage_a.jsonl``.
        num_photos: photos that the group has now; None: as many as the record lists.

    Raises:
        DataError: if a field is missing, the photos have another number, the keys are not exactly
            图片_1 … 图片_N in this order, or a summary is empty.
    """
    where = f"the record of group {record.get('group_id')!r}"
    missing = [key for key in RECORD_KEYS if key not in record]
    if missing:
        raise DataError(f"{where} lacks {', '.join(missing)}", expected=", ".join(RECORD_KEYS))
    images, summaries = record["images"], record["per_image"]
    if not isinstance(images, list) or not isinstance(summaries, dict):
        raise DataError(f"{where} is broken", expected="a list of images and summaries by photo")
    if record["label"] not in (*LABEL_FOLDERS.values(), None):
        raise DataError(f"{where} has a wrong label", got=record["label"], expected="pass or fail")
    wanted = len(images) if num_photos is None else num_photos
    if len(images) != wanted or not images:
        raise DataError(f"{where} has other photos", got=len(images), expected=wanted or "any")
    _check_summaries(summaries, len(images), where)


def _check_summaries(summaries: Mapping[str, Any], num_photos: int, where: str) -> None:
    if list(summaries) != list(number_summaries([""] * num_photos)):
        got = ", ".join(str(key) for key in summaries) or "none"
        expected = f"{PHOTO_KEY}1 to {PHOTO_KEY}{num_photos} in order"
        raise DataError(f"{where} has wrong keys", got=got[:200], expected=expected)
    for key, text in summaries.items():
        if not isinstance(text, str) or not _has_words(text):
            raise DataError(f"{where} has an empty summary", got=f"{key}: {text!r}"[:200])


def _read_object(body: str) -> Summary | Problem:
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
    number = re.fullmatch(_KEY, key.strip())
    if number is None or int(number[1]) != 1:
        return Problem("wrong key", f"{key[:40]!r} instead of '{PHOTO_KEY}1'")
    if not isinstance(value, str):
        return Problem("not a text", type(value).__name__)
    return _finish(value)


class _Pairs(list[tuple[str, Any]]):
    """Keys and values of a JSON object, repeated keys included."""


def _finish(text: str) -> Summary | Problem:
    """Take off what is around the words, then test them."""
    text = " ".join(_strip_invisible(text).split())
    while (shorter := _unwrap(text)) != text:
        text = shorter
    if not _has_words(text):
        return Problem("empty summary", text[:80])
    if "```" in text or any(mark in text for mark in "{}｛｝"):
        return Problem("text around the answer", text[:80])
    if _LEAD.match(text):
        return Problem("wrong key", text[:80])
    if _NAMED_PHOTO.search(text):
        return Problem("several photos", text[:80])
    return Summary(IRRELEVANT if text.strip(" 。.！!；;，,") == IRRELEVANT else text)


def _unwrap(text: str) -> str:
    """Take off quotes around a text or its leading 图片_1."""
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
        return text[1:-1].strip()
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead and int(lead[1]) == 1 else text


def _has_words(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def _strip_invisible(text: str) -> str:
    """Drop control, format and surrogate characters that are not white space."""
    return "".join(c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
