"""Stage A: what is written, what fails and is tried again, and how it goes on after a stop."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from group_words import QUESTIONS
from PIL import Image

from groupwise.core import (
    Completion,
    DataError,
    ResultFile,
    RunError,
    read_jsonl,
)
from groupwise.inference import Failure, StreamSettings
from groupwise_recipes.group_qc.config import SummarySettings
from groupwise_recipes.group_qc.photos import load_photo_groups
from groupwise_recipes.group_qc.records import name_results
from groupwise_recipes.group_qc.stage_a import (
    StageAJob,
    count_failures,
    name_failures,
    read_summaries,
    run_stage_a,
    write_results,
)

MISSIONS, FOLDERS = QUESTIONS.missions, {"审核通过": "pass", "审核不通过": "fail"}
EARTH, DEFLECTOR = "BBU接地线检查", "挡风板安装检查"
RECORD = {"group_id", "mission", "label", "images", "per_image", "timestamp"}


class Describer:
    """A backend that says what ``reply`` returns for a photo's path, and notes what it is asked."""

    def __init__(self, reply: Callable[[Path], object] | None = None) -> None:
        self.reply = reply or (lambda path: f'{{"图片_1": "接地线/{path.stem}×1"}}')
        self.asked: list[str] = []

    def stream(self, items: Iterator, *, sampling: object, settings: object) -> Iterator:
        for item in items:
            [picture] = item.example.pictures
            self.asked.append(picture.path.name)
            said = self.reply(picture.path)
            yield item.number, Completion(said) if isinstance(said, str) else said


@pytest.fixture
def job(tmp_path: Path) -> StageAJob:
    """Two missions; one id stands under pass and under fail."""
    root = tmp_path / "photos"
    for place, num_photos in {
        f"{EARTH}/审核通过/a": 2,
        f"{EARTH}/审核通过/b": 11,
        f"{EARTH}/审核不通过/a": 1,
        f"{DEFLECTOR}/审核不通过/c": 1,
    }.items():
        (root / place).mkdir(parents=True)
        for number in range(1, num_photos + 1):
            Image.new("RGB", (8, 8)).save(root / place / f"{place[-1]}-{number}.jpg")
    found = load_photo_groups(root, MISSIONS, FOLDERS).groups
    groups = [group.read_digests() for group in found]
    settings = SummarySettings(stream=StreamSettings(batch_size=2))
    return StageAJob(groups, root, tmp_path / "out", QUESTIONS, settings)


def test_one_line_per_group_with_its_photos_in_order(job: StageAJob) -> None:
    assert run_stage_a(job, Describer()) == 0
    rows = read_jsonl(name_results(job.out, EARTH))
    assert [set(row) for row in rows] == [RECORD | {"digests"}] * 3
    ids = [(row["group_id"], row["label"], len(row["images"])) for row in rows]
    assert ids == [("a", "pass", 2), ("b", "pass", 11), ("a", "fail", 1)]
    eleven = rows[1]["per_image"]
    assert list(eleven) == [f"图片_{n}" for n in range(1, 12)]
    assert eleven["图片_10"] == "接地线/b-10×1"
    assert set(read_summaries(job.out, QUESTIONS)) == {group.key for group in job.groups}
    assert count_failures(job.out, MISSIONS) == {}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('{"图片_1": ""}', "empty summary"),
        ("", "empty summary"),
        ('{"图片_2": "接地线×1"}', "wrong key"),
        ('{"图片_1": "接地线', "broken JSON"),
        (Completion("接地线×1", finish_reason="length"), "cut off"),
        (Failure("picture", "truncated"), "picture: truncated"),
    ],
)
def test_a_failed_group_has_a_reason_and_the_others_go_on(
    job: StageAJob, said: object, reason: str
) -> None:
    broken = Describer(lambda path: said if path.name == "b-3.jpg" else "接地线×1")
    told: list[str] = []
    assert run_stage_a(job, broken, say=told.append) == 1
    assert told[0].startswith(f"{EARTH}: 14 of 14 items, 3 groups, ")
    assert told[1] == f"{EARTH}: 2 photo groups finished (0 of them before), 1 failed"
    assert [line.split(":")[0] for line in told] == [EARTH, EARTH, DEFLECTOR, DEFLECTOR]
    [failed] = read_jsonl(name_failures(job.out, EARTH))
    assert failed["group_id"] == "b"
    assert failed["failed"].startswith("图片_3: ")
    assert reason in failed["failed"]
    assert count_failures(job.out, MISSIONS) == {EARTH: 1}


def test_the_next_run_asks_only_about_what_failed(job: StageAJob) -> None:
    run_stage_a(job, Describer(lambda path: "" if path.name == "b-3.jpg" else "接地线×1"))
    before = name_results(job.out, EARTH).read_bytes()
    again, told = Describer(), list[str]()
    run_stage_a(job, again, say=told.append)
    assert again.asked == [f"b-{number}.jpg" for number in range(1, 12)]
    assert told[1] == f"{EARTH}: 3 photo groups finished (2 of them before), 0 failed"
    assert name_results(job.out, EARTH).read_bytes().startswith(before)
    assert count_failures(job.out, MISSIONS) == {}


def test_a_half_written_line_is_asked_about_again(job: StageAJob) -> None:
    run_stage_a(job, Describer())
    path = name_results(job.out, EARTH)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    again = Describer()
    run_stage_a(job, again)
    assert again.asked == ["a-1.jpg"]

    def strip(data: bytes) -> list[dict]:
        rows = [json.loads(line) for line in data.splitlines()]
        return [{**row, "timestamp": ""} for row in rows]

    assert strip(path.read_bytes()) == strip(whole)


def test_two_processes_cannot_write_one_output(job: StageAJob) -> None:
    with (
        ResultFile(name_results(job.out, EARTH)),
        pytest.raises(RunError, match="another process"),
    ):
        run_stage_a(job, Describer())


def know_content(job: StageAJob) -> StageAJob:
    """Return the job as a run gives it: with the digests of the photos as they are now."""
    return replace(job, groups=[group.read_digests() for group in job.groups])


def test_a_photo_changed_in_place_is_described_anew_and_the_others_are_not(job: StageAJob) -> None:
    run_stage_a(know_content(job), Describer())
    changed = job.groups[1].photos[2]
    old = changed.read_bytes()
    Image.new("RGB", (8, 8), "red").save(changed)
    again = Describer(lambda path: "接地线/红×1")
    run_stage_a(know_content(job), again)
    assert again.asked == [f"b-{number}.jpg" for number in range(1, 12)]
    found = find_summaries(know_content(job))
    assert set(found[job.groups[1].key].values()) == {"接地线/红×1"}
    changed.write_bytes(old)
    back = Describer()
    run_stage_a(know_content(job), back)
    assert back.asked == []
    assert "接地线/b-3×1" in find_summaries(know_content(job))[job.groups[1].key].values()


def find_summaries(job: StageAJob) -> dict[str, dict[str, str]]:
    """Return the summaries that a step gets of all that are kept."""
    out = job.out.with_name("step")
    out.mkdir(exist_ok=True)
    write_results(job, out)
    rows = [row for mission in (EARTH, DEFLECTOR) for row in read_jsonl(name_results(out, mission))]
    assert all(set(row) == RECORD for row in rows)
    return read_summaries(out, QUESTIONS)


def test_a_photo_that_changes_while_a_run_goes_on_stops_it(job: StageAJob) -> None:
    known = know_content(job)
    Image.new("RGB", (8, 8), "red").save(job.groups[0].photos[0])
    with pytest.raises(DataError, match=r"a-1\.jpg has changed since"):
        run_stage_a(known, Describer())


def test_a_photo_that_cannot_be_read_is_left_to_the_backend(job: StageAJob) -> None:
    job.groups[0].photos[0].unlink()

    def fail(path: Path) -> object:
        return "接地线×1" if path.exists() else Failure("picture", "gone")

    assert run_stage_a(know_content(job), Describer(fail)) == 1
    assert len(read_jsonl(name_results(job.out, EARTH))) == 2
