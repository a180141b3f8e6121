"""A run folder at any moment of its life, written file by file."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from groupwise.core import RunFolder, write_json, write_jsonl


class RunInProgress:
    """Writes what a run leaves: manifest, markers, rows; ``hold`` makes it run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.began = datetime.now(UTC) - timedelta(minutes=10)

    def write_manifest(self, **more: Any) -> None:
        manifest = {"recipe": "on_task", "config": {}, "started_at": self.tell(0), **more}
        write_json(self.folder / "manifest.json", manifest)

    def tell(self, after_s: float) -> str:
        return (self.began + timedelta(seconds=after_s)).isoformat(timespec="seconds")

    def finish(self, step: str, *, at_s: float, duration_s: float) -> None:
        (self.folder / step / "started.json").unlink(missing_ok=True)
        marker = {"finished_at": self.tell(at_s), "duration_s": duration_s}
        write_json(self.folder / step / "step.json", marker)

    def start(self, step: str, *, at_s: float) -> None:
        write_json(self.folder / step / "started.json", {"key": "k", "started_at": self.tell(at_s)})

    def log(self, step: str, rows: list[dict[str, Any]]) -> None:
        write_jsonl(self.folder / step / "metrics.jsonl", rows)


@pytest.fixture
def run(tmp_path: Path) -> RunInProgress:
    return RunInProgress(tmp_path / "demo")


@pytest.fixture
def held_run(run: RunInProgress) -> Iterator[RunInProgress]:
    """The same, with a process that works in it."""
    with RunFolder(run.folder).lock():
        yield run
