"""Stage A: a line about each photo, one JSONL file per mission, continued after any end.

``<mission>_stage_a.jsonl`` has the finished groups only and is never truncated. Groups that failed
stand in ``<mission>_stage_a_failed.jsonl`` with their reason; the next run tries them again.

Where the bytes of photos are known, a description belongs to them and not to their place: each row
has their ``digests``, a group with a changed photo is described anew beside its old row, and found
again if the photo is put back. ``write_results`` picks what is true of the photos as they are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.core import (
    DataError,
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
from groupwise_recipes.group_qc.prompts import Questions
from groupwise_recipes.group_qc.summaries import (
    Problem,
    check_record,
    clean_summary,
    get_record_key,
    make_record,
)
from groupwise_recipes.group_qc.words import Words

_DIGESTS = "digests"


@dataclass(frozen=True, slots=True)
class StageAJob:
    """What Stage A is to do, and where.

    Attributes:
        groups: of any missions.
        root: folder that ``images`` are relative to.
        out: folder of the result files.
        questions: what both stages are asked.
        settings: decoding and batches.
    """

    groups: Sequence[PhotoGroup]
    root: Path
    out: Path
    questions: Questions
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
            f"{self.mission}: {self.num_finished} photo groups finished "
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
    missions = job.questions.missions
    missions.require({group.mission for group in job.groups})
    counts: list[StageACount] = []
    for mission in missions.names:
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


def read_summaries(out: Path, questions: Questions) -> dict[str, dict[str, str]]:
    """Return ``图片_i`` to text by the key of each finished group.

    Raises:
        DataError: if a record does not follow the contract.
    """
    found: dict[str, dict[str, str]] = {}
    for mission in questions.missions.names:
        path = name_results(out, mission)
        for record in read_jsonl(path) if path.exists() else ():
            check_record(record, questions.words)
            found[get_record_key(record)] = record["per_image"]
    return found


def count_failures(out: Path, missions: MissionTable) -> dict[str, int]:
    """Return how many groups of each mission failed, without missions where none did."""
    paths = {mission: name_failures(out, mission) for mission in missions.names}
    counts = {name: len(read_jsonl(path)) for name, path in paths.items() if path.exists()}
    return {name: count for name, count in counts.items() if count}


def describe_photos(
    backend: StreamBackend,
    groups: Iterable[WorkGroup],
    settings: SummarySettings,
    words: Words,
    **named: Any,
) -> Iterator[tuple[str, list[str], str]]:
    """Yield of each group its id, a summary per photo and "", or none and why it failed."""
    outcomes = generate_groups(
        backend, groups, sampling=settings.sampling, settings=settings.stream, **named
    )
    for outcome in outcomes:
        yield outcome.id, *_read_outcome(outcome, words)


def _run_mission(
    mission: str,
    groups: Sequence[PhotoGroup],
    job: StageAJob,
    backend: StreamBackend,
    say: Say,
) -> StageACount:
    by_key = {group.key: group for group in groups}
    failures, words = name_failures(job.out, mission), job.questions.words
    num_failed = 0
    with ResultFile(name_results(job.out, mission), key=_identify) as results:
        _check_kept(results.rows(), by_key, job)
        waiting = [
            group
            for group in by_key.values()
            if _identify_group(group, job.root) not in results.finished
        ]
        write_jsonl(failures, [])
        described = describe_photos(
            backend,
            (_ask(group, job.questions) for group in waiting),
            job.settings,
            words,
            report_progress=StreamLine(lambda line: say(f"{mission}: {line}")),
            num_items=sum(len(group.photos) for group in waiting),
        )
        for key, texts, reason in described:
            group = by_key[key]
            if reason:
                num_failed += 1
                append_jsonl(failures, _make_failure(group, job.root, reason))
            else:
                known = {_DIGESTS: list(group.digests)} if group.digests else {}
                results.append({**make_record(group, texts, words, root=job.root), **known})
    return StageACount(mission, len(groups) - num_failed, num_failed, len(groups) - len(waiting))


def _identify(record: Mapping[str, Any]) -> str:
    """Return what a description belongs to: the group and, where they are known, its photos."""
    return _name(get_record_key(record), record["images"], record.get(_DIGESTS, ()))


def _identify_group(group: PhotoGroup, root: Path) -> str:
    return _name(group.key, group.list_images(root), group.digests)


def _name(key: str, images: Sequence[str], digests: Sequence[str]) -> str:
    return digest_json([key, *zip(images, digests, strict=True)]) if digests else key


def _check_kept(
    records: Iterator[Mapping[str, Any]], groups: Mapping[str, PhotoGroup], job: StageAJob
) -> None:
    """Refuse to go on with broken records, or where only places are known with other photos."""
    for record in records:
        check_record(record, job.questions.words)
        group = groups.get(get_record_key(record))
        if group is None or group.digests:
            continue
        if group.list_images(job.root) != record["images"]:
            raise DataError(
                f"the photos of group {group.key} have changed since Stage A described them",
                got=f"{len(group.photos)} photos",
                expected=f"the {len(record['images'])} that are in the result file",
                fix="write to another folder",
            )


def _ask(group: PhotoGroup, questions: Questions) -> WorkGroup:
    pictures = [find_picture(path) for path in group.photos]
    for picture, digest in zip(pictures, group.digests, strict=bool(group.digests)):
        # Its description would pass for that of the old photo.
        if picture.digest != digest:
            raise DataError(
                f"the photo {picture.path} has changed since the groups were found",
                fix="start the run again",
            )
    return ask_of_photos(group.key, group.mission, pictures, questions)


def ask_of_photos(
    key: str, mission: str, pictures: Iterable[Picture], questions: Questions
) -> WorkGroup:
    """Return the Stage A questions about the photos of a group."""
    asked = (questions.ask_of_photo(mission, picture, group=key) for picture in pictures)
    return WorkGroup(key, tuple(asked))


def _read_outcome(outcome: GroupOutcome, words: Words) -> tuple[list[str], str]:
    texts: list[str] = []
    for number, found in enumerate(outcome.completions, start=1):
        name = words.name_photo(number)
        if isinstance(found, Failure):
            return [], f"{name}: {found.cause}: {found.message}"
        if found.finish_reason == "length":
            return [], f"{name}: the reply was cut off"
        summary = clean_summary(found.text, words)
        if isinstance(summary, Problem):
            return [], f"{name}: {summary.cause}: {summary.detail}"
        texts.append(summary.text)
    return texts, ""


def _make_failure(group: PhotoGroup, root: Path, reason: str) -> dict[str, Any]:
    return {
        "key": group.key,
        "group_id": group.group_id,
        "mission": group.mission,
        "label": group.label,
        "images": group.list_images(root),
        "failed": reason,
    }
