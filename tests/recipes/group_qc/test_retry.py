"""A group that Stage A failed on is tried again when the run is started again, and only it."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from recipe_runs import RecipeJob

from groupwise.core import Completion, read_jsonl
from groupwise.inference import Failure, LocalBackend
from groupwise_recipes.group_qc import stage_a

pytestmark = pytest.mark.slow

FAILED = 7
"""The place of the group that fails, among those that Stage A is asked about."""


class Watched(LocalBackend):
    """The real backend, whose replies are replaced: what a tiny model says is not sure to do.

    It notes the folders it is asked about, and can fail for one of them.
    """

    asked: list[str]
    broken: str | None

    def stream(self, items: Iterator[Any], **named: Any) -> Generator[Any]:
        """Answer when the real one does: with the folder's name, or with a failure."""
        folders: dict[int, str] = {}

        def note() -> Iterator[Any]:
            for item in items:
                [picture] = item.example.pictures
                folders[item.number] = picture.path.parent.name
                self.asked.append(picture.path.parent.name)
                yield item

        for number, _ in super().stream(note(), **named):
            folder = folders[number]
            broken = Failure("memory", "no reply")
            yield number, broken if folder == self.broken else Completion(f"机柜/{folder}×1")


def name_folder(row: dict[str, Any]) -> str:
    return Path(row["photos"][0]).parent.name


def start(call: CommandLine, job: RecipeJob, run: Path) -> str:
    done = call(*job.list_arguments(run, "--until", "stage_b_data"))
    assert done.returncode == 0, done.stderr
    return done.stderr


def read_ids(run: Path, pattern: str) -> list[str]:
    return [row["group_id"] for path in run.glob(pattern) for row in read_jsonl(path)]


def test_only_what_failed_is_asked_again(
    command_line: CommandLine, job: RecipeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    assert command_line(*job.list_arguments(run, "--until", "prepare")).returncode == 0
    rows = [row for row in read_jsonl(run / "prepare" / "groups.jsonl") if row["split"] != "teach"]
    failing = rows[FAILED]["group_id"]
    monkeypatch.setattr(stage_a, "LocalBackend", Watched)
    Watched.asked, Watched.broken = [], name_folder(rows[FAILED])

    start(command_line, job, run)
    failed = read_ids(run, "summarize/*_stage_a_failed.jsonl")
    assert failed == [failing]
    finished = {path.name: path.read_bytes() for path in run.glob("summarize/*_stage_a.jsonl")}
    described = read_ids(run, "summarize/*_stage_a.jsonl")
    assert sorted([*described, failing]) == sorted(row["group_id"] for row in rows)

    Watched.asked, Watched.broken = [], None
    said = start(command_line, job, run)
    assert set(Watched.asked) == {name_folder(rows[FAILED])}
    assert "teach_stage_a reused" in said
    assert "summarize run" in said
    assert read_ids(run, "summarize/*_stage_a_failed.jsonl") == []
    for name, before in finished.items():
        assert (run / "summarize" / name).read_bytes().startswith(before)
    assert sorted(read_ids(run, "summarize/*_stage_a.jsonl")) == sorted([*described, failing])
