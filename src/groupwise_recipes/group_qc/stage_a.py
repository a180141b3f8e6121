"""Stage A: a line about each photo, one JSONL file per mission, continued after any end.

``<mission>_stage_a.jsonl`` has the finished groups only and is never truncated. Groups that failed
stand in ``<mission>_stage_a_failed.jsonl`` with their reason; the next run tries them again.

A description belongs to the bytes of photos and not to their place: each row has their ``digests``,
a group with a changed photo is described anew beside its old row, and found again if the photo is
put back. ``write_results`` picks what is true of the photos as they are. In a run they are kept in
the folder ``stage_a``, beside the steps: what fails is tried again in the next run without asking
about the others, and settings that are changed and changed back cost nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise import __version__
from groupwise.core import (
    DataError,
    Picture,
    ProgressLine,
    ResultFile,
    Say,
    append_jsonl,
    digest_file,
    digest_json,
    dump_config,
    read_json,
    read_jsonl,
    write_json,
    write_jsonl,
)
from groupwise.inference.local import LocalModel
from groupwise.inference.local_stream import LocalStream
from groupwise.inference.many_machines import RayStream
from groupwise.inference.server import ServerModel
from groupwise.inference.stream import (
    Failure,
    Group,
    Outcome,
    Stream,
    generate_groups,
)
from groupwise.run.asking import open_policy
from groupwise.run.steps import StepContext
from groupwise_recipes.group_qc.config import GroupQcConfig, SummarySettings
from groupwise_recipes.group_qc.groups import TEACH, find_root, read_groups
from groupwise_recipes.group_qc.missions import MissionTable
from groupwise_recipes.group_qc.photos import PhotoGroup, find_picture
from groupwise_recipes.group_qc.prompts import Questions, open_questions
from groupwise_recipes.group_qc.records import (
    check_record,
    get_record_key,
    make_record,
    name_results,
)
from groupwise_recipes.group_qc.summaries import Problem, clean_summary
from groupwise_recipes.group_qc.teach import TEACH_STEP, find_base
from groupwise_recipes.group_qc.words import Words

_KEPT, _ATTEMPTS = "stage_a", "attempts.json"


@dataclass(frozen=True, slots=True)
class StageAJob:
    """What Stage A is to do, and where.

    Attributes:
        groups: of any missions, with the digests of their photos.
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


def count_attempts(run: Path) -> int:
    """Return how often Stage A ended with failed groups; 0 if it last ended without any."""
    path = run / _KEPT / _ATTEMPTS
    return int(read_json(path, dict)["failed"]) if path.is_file() else 0


def run_summarize(_: object, context: StepContext) -> None:
    """Describe every photo that is not described yet."""
    config: GroupQcConfig = context.config
    prepared = context.output_of("prepare")
    groups = read_groups(config, prepared)
    job = StageAJob(
        groups=[group for name, members in groups.items() if name != TEACH for group in members],
        root=find_root(config.data, prepared),
        out=_find_folder(config, context),
        questions=open_questions(config),
        settings=config.summaries,
    )
    num_failed = run_stage_a(job, open_backend(config, context.run), say=context.say)
    attempts = count_attempts(context.run) + 1 if num_failed else 0
    write_json(context.run / _KEPT / _ATTEMPTS, {"failed": attempts})
    write_results(job, context.folder)


def name_failures(out: Path, mission: str) -> Path:
    """Return the file of a mission's failed groups."""
    return out / f"{mission}_stage_a_failed.jsonl"


def open_backend(config: GroupQcConfig, run: Path) -> Stream:
    """Return what describes photos: the base behind a server, on Ray's workers, or here."""
    settings = config.summaries
    if settings.server is not None:
        return ServerModel(settings.server, max_pixels=settings.stream.max_pixels)
    base, model = find_base(config, run), config.model
    if settings.ray is not None:
        return RayStream(
            settings.ray,
            base,
            dtype=model.dtype,
            max_pixels=model.max_pixels,
            quantization=model.quantization,
        )
    policy = open_policy(config, base)
    return LocalStream(LocalModel(policy, batch_size=settings.stream.batch_size))


def run_stage_a(job: StageAJob, backend: Stream, *, say: Say = lambda _: None) -> int:
    """Describe the photos of every group that is not finished yet, mission by mission.

    Returns:
        How many groups failed.
    """
    missions = job.questions.missions
    missions.require({group.mission for group in job.groups})
    num_failed = 0
    for mission in missions.names:
        groups = {group.key: group for group in job.groups if group.mission == mission}
        if groups:
            num_failed += _run_mission(mission, groups, job, backend, say)
    return num_failed


def write_results(job: StageAJob, folder: Path) -> None:
    """Write the files of the job's groups, as their photos are now, into another folder."""
    current = {_identify_group(group, job.root) for group in job.groups}
    for path in sorted(job.out.glob("*.jsonl")):
        rows = [row for row in read_jsonl(path) if row.get("failed") or _identify(row) in current]
        rows = [{key: row[key] for key in row if key != "digests"} for row in rows]
        write_jsonl(folder / path.name, rows)


def read_summaries(out: Path, questions: Questions) -> dict[str, dict[str, str]]:
    """Return ``图片_i`` to text by the key of each finished group."""
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
    backend: Stream,
    groups: Iterable[Group],
    settings: SummarySettings,
    words: Words,
    **named: Any,
) -> Iterator[tuple[str, list[str], str]]:
    """Yield of each group its id, a summary per photo and "", or none and why it failed."""
    outcomes = generate_groups(
        backend, groups, sampling=settings.sampling, settings=settings.stream, **named
    )
    for key, completions in outcomes:
        yield key, *_read_outcomes(completions, words)


def ask_of_photos(
    key: str, mission: str, pictures: Iterable[Picture], questions: Questions
) -> Group:
    """Return the Stage A questions about the photos of a group."""
    return key, [questions.ask_of_photo(mission, picture, group=key) for picture in pictures]


def _find_folder(config: GroupQcConfig, context: StepContext) -> Path:
    """Return the folder of what this base says with these settings, of whatever photos."""
    inputs = {name: digest for name, digest in context.inputs.items() if name != "data.root"}
    policy = None
    if config.summaries.server is None:
        taught = context.output_of(TEACH_STEP) / "policy" if config.teach else None
        weights = taught and digest_file(taught)
        model = config.model
        policy = [weights, model.dtype, model.quantization, model.max_pixels]
    depends = {
        "inputs": inputs,
        "words": [dump_config(config.words), config.prompts.photo],
        "policy": policy,
        "settings": config.summaries.describe(),
        "version": __version__,
    }
    return context.run / _KEPT / digest_json(depends)[:12]


def _run_mission(
    mission: str,
    groups: Mapping[str, PhotoGroup],
    job: StageAJob,
    backend: Stream,
    say: Say,
) -> int:
    failures, words = name_failures(job.out, mission), job.questions.words
    num_failed = 0
    with ResultFile(name_results(job.out, mission), key=_identify) as results:
        done = results.finished
        waiting = [one for one in groups.values() if _identify_group(one, job.root) not in done]
        write_jsonl(failures, [])
        described = describe_photos(
            backend,
            (_ask(group, job.questions) for group in waiting),
            job.settings,
            words,
            report_progress=ProgressLine("items", lambda line: say(f"{mission}: {line}")),
            num_items=sum(len(group.photos) for group in waiting),
        )
        for key, texts, reason in described:
            group = groups[key]
            if reason:
                num_failed += 1
                known = {"key": key, "group_id": group.group_id, "mission": mission}
                images = group.list_images(job.root)
                row = {**known, "label": group.label, "images": images, "failed": reason}
                append_jsonl(failures, row)
            else:
                record = make_record(group, texts, words, root=job.root)
                results.append({**record, "digests": list(group.digests)})
    say(
        f"{mission}: {len(groups) - num_failed} photo groups finished "
        f"({len(groups) - len(waiting)} of them before), {num_failed} failed"
    )
    return num_failed


def _identify(record: Mapping[str, Any]) -> str:
    """Return what a description belongs to: the group and its photos."""
    pairs = zip(record["images"], record["digests"], strict=True)
    return digest_json([get_record_key(record), *pairs])


def _identify_group(group: PhotoGroup, root: Path) -> str:
    pairs = zip(group.list_images(root), group.digests, strict=True)
    return digest_json([group.key, *pairs])


def _ask(group: PhotoGroup, questions: Questions) -> Group:
    pictures = [find_picture(path) for path in group.photos]
    for picture, digest in zip(pictures, group.digests, strict=True):
        # Its description would pass for that of the old photo.
        if picture.digest != digest:
            raise DataError(
                f"the photo {picture.path} has changed since the groups were found",
                fix="start the run again",
            )
    return ask_of_photos(group.key, group.mission, pictures, questions)


def _read_outcomes(outcomes: Iterable[Outcome], words: Words) -> tuple[list[str], str]:
    texts: list[str] = []
    for number, found in enumerate(outcomes, start=1):
        name = words.name_photo(number)
        if isinstance(found, Failure):
            return [], f"{name}: {found.cause}: {found.message}"
        if found.finish_reason == "length":
            return [], f"{name}: the reply was cut off"
        summary = clean_summary(found.text, words)
        if isinstance(summary, Problem):
            return [], f"{name}: {summary.cause}: {summary.detail}"
        texts.append(summary)
    return texts, ""
