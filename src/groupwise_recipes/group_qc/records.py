"""Photo groups from Stage A's JSONL files: what they say is believed, the photos may be elsewhere.

A line whose summaries are not exactly 图片_1 … 图片_N for its N photos, in this order, or that
breaks the contract in another way is dropped and counted.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import DataError
from groupwise.data import DropLog
from groupwise_recipes.group_qc.missions import MissionTable
from groupwise_recipes.group_qc.photos import LoadedGroups, PhotoGroup, find_conflicts
from groupwise_recipes.group_qc.summaries import Problem, find_problem, get_record_key
from groupwise_recipes.group_qc.words import Words


def load_records(
    paths: Sequence[Path],
    missions: MissionTable,
    words: Words,
    *,
    root: Path,
    has_photos: bool = False,
) -> LoadedGroups:
    """Load ``<mission>_stage_a.jsonl`` files; ``num_files`` counts their lines.

    Args:
        paths: the files.
        missions: the table that both stages use.
        words: of the job.
        root: folder of the photos.
        has_photos: whether they must be there.

    Raises:
        DataError: if a file cannot be read, a mission is unknown, or no line can be used.
    """
    drops, kept = DropLog(), dict[str, dict[str, Any]]()
    num_lines = 0
    for where, record in _read_lines(paths):
        num_lines += 1
        problem = (
            record
            if isinstance(record, Problem)
            else _check(record, words, kept, root if has_photos else None)
        )
        if isinstance(problem, Problem):
            drops.add(problem.cause, f"{where} {problem.detail}"[:200])
        elif isinstance(record, dict):
            kept[get_record_key(record)] = record
    missions.require((str(record["mission"]) for record in kept.values()), where="data.summaries")
    if not kept:
        reasons = ", ".join(f"{number} x {reason}" for reason, number in drops.counts.items())
        raise DataError("data.summaries have no photo group to train on", got=reasons or "no lines")
    groups = [_make_group(key, record, root) for key, record in kept.items()]
    return LoadedGroups(
        groups=tuple(groups),
        drops=drops,
        skipped=DropLog(),
        conflicts=find_conflicts(groups),
        num_photos=sum(len(group.photos) for group in groups),
        num_files=num_lines,
        records=tuple(kept.values()),
    )


def read_record(line: str) -> dict[str, Any] | Problem:
    """Return the record of a line, or why it is none."""
    try:
        value: object = json.loads(line, object_pairs_hook=_refuse_repeated)
    except (ValueError, RecursionError) as error:
        return Problem("line cannot be read", str(error))
    return value if isinstance(value, dict) else Problem("line cannot be read", "no JSON object")


def _read_lines(paths: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any] | Problem]]:
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read the summaries in {path}", got=error) from error
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield f"{path.name}:{number}", read_record(line)


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} appears twice")
    return found


def _check(
    record: Mapping[str, Any], words: Words, kept: Mapping[str, Any], root: Path | None
) -> Problem | None:
    problem = find_problem(record, words)
    if problem:
        return problem
    if record["label"] is None:
        return Problem("no label", str(record["group_id"]))
    if get_record_key(record) in kept:
        return Problem("photo group appears twice", get_record_key(record))
    gone = [image for image in record["images"] if root and not (root / image).is_file()]
    return Problem("photo is not there", gone[0]) if gone else None


def _make_group(key: str, record: Mapping[str, Any], root: Path) -> PhotoGroup:
    photos = tuple(root / image for image in record["images"])
    return PhotoGroup(key, record["group_id"], record["mission"], record["label"], photos)
