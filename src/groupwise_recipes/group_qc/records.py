"""The lines of ``<mission>_stage_a.jsonl``: what Stage A says of a photo group's photos.

What lines say is believed; photos may be elsewhere. One whose summaries are not exactly 图片_1 …
图片_N for its N photos, in this order, or that breaks the contract in another way is dropped and
counted where it is read, and refused where it was written here.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from groupwise.core import DataError
from groupwise.data.examples import DropLog
from groupwise.data.files import read_table_rows
from groupwise_recipes.group_qc.missions import MissionTable
from groupwise_recipes.group_qc.photos import LABELS, LoadedGroups, PhotoGroup
from groupwise_recipes.group_qc.summaries import Problem, has_words, number_summaries
from groupwise_recipes.group_qc.words import Words

RECORD_KEYS = ("group_id", "mission", "label", "images", "per_image")


def name_results(out: Path, mission: str) -> Path:
    """Return the file of a mission's finished groups."""
    return out / f"{mission}_stage_a.jsonl"


def make_record(
    group: PhotoGroup, texts: Sequence[str], words: Words, *, root: Path
) -> dict[str, Any]:
    """Return the record of a finished photo group; ``images`` are relative to ``root``."""
    record = {
        "group_id": group.group_id,
        "mission": group.mission,
        "label": group.label,
        "images": group.list_images(root),
        "per_image": number_summaries(texts, words),
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    check_record(record, words)
    return record


def get_record_key(record: Mapping[str, Any]) -> str:
    """Return ``PhotoGroup.key`` of a record: the folder of its first photo."""
    return str(record["images"][0]).rpartition("/")[0]


def check_record(record: Mapping[str, Any], words: Words) -> None:
    """Refuse a record that does not follow the contract."""
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
    if not isinstance(images, list):
        return Problem("broken fields", "", "a list of images")
    if not all(isinstance(record[key], str) and record[key] for key in ("group_id", "mission")):
        return Problem("broken fields", "", "a text for group_id and mission")
    if record["label"] not in (*LABELS, None):
        return Problem("a wrong label", str(record["label"]), "pass or fail")
    if not images or not all(
        isinstance(one, str) and "/" in one[1:] and one[0] != "/" and ".." not in one.split("/")
        for one in images
    ):
        return Problem("wrong photos", str(images), "a path for each photo, with its folder")
    return find_summary_problem(summaries, words, num_photos=len(images))


def find_summary_problem(summaries: Any, words: Words, *, num_photos: int) -> Problem | None:
    """Return why something is not ``图片_i`` to text for so many photos, in order."""
    if not isinstance(summaries, dict):
        return Problem("broken fields", "", "summaries by photo")
    if list(summaries) != list(number_summaries([""] * num_photos, words)):
        got = ", ".join(map(str, summaries)) or "none"
        expected = f"{words.name_photo(1)} to {words.name_photo(num_photos)} in order"
        return Problem("wrong keys", got, expected)
    for key, text in summaries.items():
        if not isinstance(text, str) or not has_words(text):
            return Problem("an empty summary", f"{key}: {text!r}", "words")
    return None


def load_records(
    paths: Sequence[Path],
    missions: MissionTable,
    words: Words,
    *,
    root: Path,
    has_photos: bool = False,
    for_prediction: bool = False,
) -> LoadedGroups:
    """Load ``<mission>_stage_a.jsonl`` files; ``num_files`` counts their lines."""
    drops, kept = DropLog(), dict[str, dict[str, Any]]()
    rows = [row for path in paths for row in read_table_rows(path, drops)]
    num_lines = len(rows) + drops.total
    for row in rows:
        record = {**({"label": None} if for_prediction else {}), **row.values}
        problem = find_problem(record, words) or _find_misfit(
            record,
            kept,
            root=root if has_photos else None,
            missions=missions if for_prediction else None,
        )
        if problem:
            drops.add(problem.cause, f"{row.where} {problem.detail}"[:200])
        else:
            kept[get_record_key(record)] = record
    files = ", ".join(path.name for path in paths)
    missions.require((str(record["mission"]) for record in kept.values()), where=files)
    if not kept:
        reasons = ", ".join(f"{number} x {reason}" for reason, number in drops.counts.items())
        raise DataError(f"{files} has no photo group that can be used", got=reasons or "no lines")
    groups = tuple(
        PhotoGroup(
            key,
            record["group_id"],
            record["mission"],
            record["label"],
            tuple(root / image for image in record["images"]),
        )
        for key, record in kept.items()
    )
    return LoadedGroups(groups, drops, DropLog(), num_lines, tuple(kept.values()))


def _find_misfit(
    record: Mapping[str, Any],
    kept: Mapping[str, Any],
    *,
    root: Path | None,
    missions: MissionTable | None,
) -> Problem | None:
    """Return why a record in the right form is not used; missions: for predictions."""
    key = get_record_key(record)
    if record["label"] is None and missions is None:
        return Problem("no label", str(record["group_id"]))
    if missions is not None and record["mission"] not in missions:
        return Problem("unknown mission", str(record["mission"]))
    if key in kept:
        return Problem("photo group appears twice", key)
    gone = [image for image in record["images"] if root and not (root / image).is_file()]
    return Problem("photo is not there", gone[0]) if gone else None
