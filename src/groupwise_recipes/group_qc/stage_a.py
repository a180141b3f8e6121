"""Stage A: a line about each photo, one JSONL file per mission, continued after any end.

``<mission>_stage_a.jsonl`` has the finished groups only and is never truncated. Groups that failed
stand in ``<mission>_stage_a_failed.jsonl`` with their reason; the next run tries them again.

Where the bytes of photos are known, a description belongs to them and not to their place: each row
has their ``digests``, a group with a changed photo is described anew beside its old row, and found
again if the photo is put back. ``write_results`` picks what is true of the photos as they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.core import (
    DataError,
    Example,
    Picture,
    ResultFile,
    Say,
    append_jsonl,
    digest_json,
    read_jsonl,
    write_jsonl,
)
from groupwise.inference import (
    Failure,
    GroupOutcome,
    StreamBackend,
    StreamLine,
    WorkGroup,
    generate_groups,
)
from groupwise_recipes.group_qc.config import SummarySettings
from groupwise_recipes.group_qc.missions import MissionTable
from groupwise_recipes.group_qc.photos import PhotoGroup, find_picture
from groupwise_recipes.group_qc.prompts import make_photo_example
from groupwise_recipes.group_qc.summaries import (
    Problem,
    check_record,
    clean_summary,
    get_record_key,
    make_record,
)

_DIGESTS = "digests"


@dataclass(frozen=True, slots=True)
class StageAJob:
    """What Stage A is to do, and where.

    Attributes:
        groups: of any missions.
        root: folder that ``images`` are relative to.
        out: folder of the result files.
        missions: the table that both stages use.
        settings: decoding and batches.
    """

    groups: Sequence[PhotoGroup]
    root: Path
    out: Path
    missions: MissionTable
    settings: SummarySettings


@dataclass(frozen=True, slots=True)
class StageACount:
    """Groups of a mission: ``num_finished + num_failed`` are all that were given."""

    mission: str
    num_finished: int
    num_failed: int
    num_before: int

    def describe(self) -> str:
        """Return one line for a person."""
        return (
            f"{self.mission}: {self.num_finished} groups finished "
            f"({self.num_before} of them before), {self.num_failed} failed"
        )


def name_results(out: Path, mission: str) -> Path:
    """Return the file of a mission's finished groups."""
    return out / f"{mission}_stage_a.jsonl"


def name_failures(out: Path, mission: str) -> Path:
    """Return the file of a mission's failed groups."""
    return out / f"{mission}_stage_a_failed.jsonl"


def run_stage_a(
    job: StageAJob,
    backend: StreamBackend,
    *,
    say: Say = lambda _: None,
) -> list[StageACount]:
    """Describe the photos of every group that is not finished yet, mission by mission.

    Args:
        job: what to do.
        backend: what describes photos.
        say: told how far each mission is.

    Raises:
        RunError: if another process writes the same files.
        DataError: if a finished group has other photos now, or a mission is unknown.
    """
    job.missions.require({group.mission for group in job.groups})
    counts: list[StageACount] = []
    for mission in job.missions.names:
        groups = [group for group in job.groups if group.mission == mission]
        if groups:
            counts.append(_run_mission(mission, groups, job, backend, say))
            say(counts[-1].describe())
    return counts


def write_results(job: StageAJob, folder: Path) -> None:
    """Write the files of the job's groups, as their photos are now, into another folder."""
    current = {_identify_group(group, job.root) for group in job.groups}
    for path in sorted(job.out.glob("*.jsonl")):
        rows = [row for row in read_jsonl(path) if row.get("failed") or _identify(row) in current]
        rows = [{key: row[key] for key in row if key != _DIGESTS} for row in rows]
        write_jsonl(folder / path.name, rows)


def read_summaries(out: Path, missions: MissionTable) -> dict[str, dict[str, str]]:
    """Return ``图片_i`` to text by the key of each finished group.

    Raises:
        DataError: if a record does not follow the contract.
    """
    found: dict[str, dict[str, str]] = {}
    for mission in missions.names:
        path = name_results(out, mission)
        for record in read_jsonl(path) if path.exists() else ():
            check_record(record)
            found[get_record_key(record)] = record["per_image"]
    return found


def count_failures(out: Path, missions: MissionTable) -> dict[str, int]:
    """Return how many groups of each mission failed, without missions where none did."""
    paths = {mission: name_failures(out, mission) for mission in missions.names}
    counts = {name: len(read_jsonl(path)) for name, path in paths.items() if path.exists()}
    return {name: count for name, count in counts.items() if count}


def _run_mission(
    mission: str,
    groups: Sequence[PhotoGroup],
    job: StageAJob,
    backend: StreamBackend,
    say: Say,
) -> StageACount:
    by_key = {group.key: group for group in groups}
    failures = name_failures(job.out, mission)
    num_failed = 0
    with ResultFile(name_results(job.out, mission), key=_identify) as results:
        names = {key: _identify_group(group, job.root) for key, group in by_key.items()}
        _check_photos(results.rows(), by_key, job.root)
        waiting = [group for key, group in by_key.items() if names[key] not in results.finished]
        write_jsonl(failures, [])
        outcomes = generate_groups(
            backend,
            (_ask(group, job.missions) for group in waiting),
            sampling=job.settings.sampling,
            settings=job.settings.stream,
            report_progress=StreamLine(lambda line: say(f"{mission}: {line}")),
            num_items=sum(len(group.photos) for group in waiting),
        )
        for outcome in outcomes:
            group = by_key[outcome.id]
            texts, reason = read_outcome(outcome)
            if reason:
                num_failed += 1
                append_jsonl(failures, _make_failure(group, job.root, reason))
            else:
                record = make_record(group, texts, root=job.root)
                known = {_DIGESTS: list(group.digests)} if group.digests else {}
                results.append({**record, **known})
    return StageACount(mission, len(groups) - num_failed, num_failed, len(groups) - len(waiting))


def _identify(record: Mapping[str, Any]) -> str:
    """Return what a description belongs to: the group and, where they are known, its photos."""
    check_record(record)
    return _name(get_record_key(record), record["images"], record.get(_DIGESTS, ()))


def _identify_group(group: PhotoGroup, root: Path) -> str:
    return _name(group.key, _list_images(group, root), group.digests)


def _name(key: str, images: Sequence[str], digests: Sequence[str]) -> str:
    return digest_json([key, *zip(images, digests, strict=True)]) if digests else key


def _list_images(group: PhotoGroup, root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in group.photos]


def _check_photos(
    records: Iterator[Mapping[str, Any]], groups: Mapping[str, PhotoGroup], root: Path
) -> None:
    """Refuse to go on with summaries of other photos, where only their places are known."""
    for record in records:
        group = groups.get(get_record_key(record))
        if group is None or group.digests:
            continue
        if _list_images(group, root) != record["images"]:
            raise DataError(
                f"the photos of group {group.key} have changed since Stage A described them",
                got=f"{len(group.photos)} photos",
                expected=f"the {len(record['images'])} that are in the result file",
                fix="write to another folder",
            )


def _ask(group: PhotoGroup, missions: MissionTable) -> WorkGroup:
    focus = missions[group.mission].focus
    examples: list[Example] = [
        make_photo_example(group.mission, focus, picture, group=group.key)
        for picture in _find_pictures(group)
    ]
    return WorkGroup(group.key, tuple(examples))


def _find_pictures(group: PhotoGroup) -> list[Picture]:
    """Return the group's pictures.

    Raises:
        DataError: if one is not what it was when the group was found: its description would pass
            for that of the old one.
    """
    pictures = [find_picture(path) for path in group.photos]
    for picture, digest in zip(pictures, group.digests, strict=bool(group.digests)):
        if picture.digest != digest:
            raise DataError(
                f"the photo {picture.path} has changed since the groups were found",
                fix="start the run again",
            )
    return pictures


def read_outcome(outcome: GroupOutcome) -> tuple[list[str], str]:
    """Return a summary per photo and "", or none and why the group failed."""
    texts: list[str] = []
    for number, found in enumerate(outcome.completions, start=1):
        if isinstance(found, Failure):
            return [], f"图片_{number}: {found.cause}: {found.message}"
        if found.finish_reason == "length":
            return [], f"图片_{number}: the reply was cut off"
        summary = clean_summary(found.text)
        if isinstance(summary, Problem):
            return [], f"图片_{number}: {summary.cause}: {summary.detail}"
        texts.append(summary.text)
    return texts, ""


def _make_failure(group: PhotoGroup, root: Path, reason: str) -> dict[str, Any]:
    return {
        "key": group.key,
        "group_id": group.group_id,
        "mission": group.mission,
        "label": group.label,
        "images": _list_images(group, root),
        "failed": reason,
    }
