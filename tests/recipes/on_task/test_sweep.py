"""A grid of real runs of a tiny model: killed twice, continued, and complete in the end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.core import read_jsonl
from groupwise.pipeline.sweep import Sweep, read_sweep

AXES = {
    "grpo.beta": ("0.0", "0.12", "0.15"),
    "evaluation.num_items": ("5", "10", "15", "20"),
    "seed": ("0", "1", "2", "3"),
}
SMALL = {
    "data.drawn.num_sessions": 40,
    "data.drawn.activities": "[coding, video]",
    "data.drawn.width": 224,
    "data.drawn.height": 168,
    "data.warmup_share": 0.3,
    "data.validation_share": 0.15,
    "data.test_share": 0.25,
    "model.max_pixels": 32_768,
    "sft.epochs": 1,
    "sft.batch_size": 8,
    "grpo.epochs": 1,
    "grpo.prompts_per_step": 4,
    "grpo.group_size": 2,
    "grpo.heldout_every_steps": 4,
    "evaluation.num_latency_items": 1,
    "evaluation.num_heldout_items": 4,
}
NUM_CELLS = 3 * 4 * 4


def start(folder: Path) -> subprocess.Popen[bytes]:
    grids = [part for k, values in AXES.items() for part in ("--grid", f"{k}={','.join(values)}")]
    settings = [part for k, v in SMALL.items() for part in ("--set", f"{k}={v}")]
    program = [sys.executable, "-m", "groupwise.cli", "sweep", "on_task", "--config", "demo"]
    with (folder.parent / "sweep.log").open("ab") as log:
        return subprocess.Popen(
            [*program, *grids, *settings, "--out", str(folder), "--jobs", "2"],
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def kill_when(folder: Path, is_reached: Callable[[], bool]) -> None:
    """Start or continue the sweep and ``kill -9`` it as soon as the moment is there."""
    process = start(folder)
    deadline_s = time.monotonic() + 3000
    while not is_reached():
        assert process.poll() is None, "the sweep ended before it could be killed"
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()


def list_done(folder: Path) -> list[str]:
    return [cell.name for cell in read_sweep(folder).cells if cell.state == "done"]


def count_starts(folder: Path) -> dict[str, int]:
    found = read_sweep(folder).cells
    histories = {cell.name: cell.folder / "history.jsonl" for cell in found}
    return {name: len(read_jsonl(path)) for name, path in histories.items() if path.is_file()}


def count_trainings(sweep: Sweep, step: str) -> int:
    """Return in how many cells a step was really done, not taken from another."""
    markers = [json.loads((cell.folder / step / "step.json").read_text()) for cell in sweep.cells]
    return sum("taken_from" not in marker for marker in markers)


@pytest.mark.slow
def test_a_grid_that_is_killed_twice_ends_complete_with_every_cell_finished_once(
    tmp_path: Path,
) -> None:
    grid = tmp_path / "grid"
    kill_when(grid, lambda: any(grid.glob("cells/*/sft/started.json")))
    assert list_done(grid) == []
    kill_when(grid, lambda: len(list_done(grid)) >= 10 and any(grid.glob("cells/*/grpo/started*")))
    kept = list_done(grid)
    starts = count_starts(grid)
    assert 10 <= len(kept) < NUM_CELLS

    assert start(grid).wait(3000) == 0
    sweep = read_sweep(grid)
    assert Counter(cell.state for cell in sweep.cells) == {"done": NUM_CELLS}
    after = count_starts(grid)
    assert {name: after[name] for name in kept} == {name: starts[name] for name in kept}
    # No more than the two that ran when it was killed were started again, each time.
    assert sum(after.values()) <= NUM_CELLS + 2 * 2
    trainings = {step: count_trainings(sweep, step) for step in ("sft", "grpo", "sft_control")}
    assert trainings == {"sft": 4, "grpo": 12, "sft_control": 4}
    for cell in sweep.cells:
        metrics = json.loads((cell.folder / "evaluate" / "metrics.json").read_text())
        assert cell.coordinates["evaluation.num_items"] in {str(m["n"]) for m in metrics}
        assert (cell.folder / "report.html").is_file()
