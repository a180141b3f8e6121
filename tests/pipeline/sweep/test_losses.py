"""Cells whose worker is lost with them: told, run again, and given up only after a while."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from groupwise.core import DataError, read_jsonl
from groupwise.pipeline import find_config, find_recipe
from groupwise.pipeline.sweep import SweepProgress, plan_sweep, run_sweep
from groupwise.pipeline.sweep.places import CellEnd, CellJob, run_in_task

LOST = CellEnd(None, "its worker was lost (WorkerCrashedError)")


@dataclass
class Process:
    end: CellEnd
    pid: int = field(default_factory=os.getpid)
    duration_s: float = 1.0

    def look(self) -> CellEnd:
        return self.end


@dataclass
class Cluster:
    """Loses the first workers."""

    num_losses: int
    num_places: int = 1
    num_started: int = 0

    def start(self, job: CellJob) -> Process:
        assert job.config.is_absolute()
        self.num_started += 1
        return Process(LOST if self.num_started <= self.num_losses else CellEnd(0))

    def stop(self, processes: Any) -> None:
        assert not processes


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("num_losses", "events"),
    [
        (1, ["started", "lost", "started", "done"]),
        (9, [*["started", "lost"] * 3, "started", "failed"]),
    ],
)
def test_a_lost_cell_is_run_again_three_times(num_losses: int, events: list[str]) -> None:
    recipe, seen = find_recipe("tiny"), list[SweepProgress]()
    plan = plan_sweep(recipe, find_config(recipe), ["seed=1"], out=Path("grid"))
    run_sweep(plan, places=Cluster(num_losses), report_progress=seen.append)
    assert [one.event for one in seen] == events
    assert seen[1].error == LOST.error
    states = [row["state"] for row in read_jsonl(Path("grid/states.jsonl"))]
    kinds = {"started": "running", "lost": "waiting"}
    assert states == [kinds.get(event, event) for event in events]


def test_a_machine_that_does_not_find_the_sweep_says_so(tmp_path: Path) -> None:
    job = CellJob(["-c", ""], tmp_path / "none.json", tmp_path / "log", "title")
    with pytest.raises(DataError, match=r"does not find .*none.json; put the sweep on"):
        run_in_task(job, str(tmp_path))


def test_a_task_says_how_its_cell_ended(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    code = "import os, sys; print(os.getcwd()); sys.exit(3)"
    job = CellJob(["-c", code], tmp_path / "config.json", tmp_path / "log", "title")
    end = run_in_task(job, str(tmp_path))
    assert (end.code, end.error) == (3, f"exit code 3\ntitle\n{tmp_path}")
    assert sys.executable not in (tmp_path / "log").read_text()
