"""A run that is killed anywhere and continued is the uninterrupted run.

A row names what is about to be written, and the how manieth time, when SIGKILL comes; ``torn`` is a
file whose last line is left half.
"""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from corpora import each_row
from finished_run import run_small
from safetensors.torch import load_file

from groupwise.core import read_json, read_jsonl

Row = dict[str, Any]
HERE = Path(__file__).parent
JOB = HERE.parent / "fixtures" / "killed_job.py"
TIMES = ("tokens_per_s", "step_s", "latency_s", "duration_s")


@each_row("kills")
def test_what_is_continued_is_the_uninterrupted_run(
    row: Row, finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, str(JOB), str(run), row["place"], str(row["number"])],
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-500:]
    assert not (run / "report.md").exists()
    if "torn" in row:
        content = (run / row["torn"]).read_bytes()
        (run / row["torn"]).write_bytes(content + content[: len(content) // 3])
    run_small(tmp_path)
    found, whole = read_result(run), read_result(finished)
    unlike = [name for name in whole if found[name] != whole[name]]
    assert (unlike or "equal") == row["expected"], row["why"]


def read_result(run: Path) -> dict[str, object]:
    """Return weights, logs, predictions and metrics, without times."""
    result: dict[str, object] = {
        "steps": sorted(path.parent.name for path in run.glob("*/step.json"))
    }
    for step in ("sft", "sft_control", "grpo"):
        tensors = load_file(run / step / "policy" / "adapter_model.safetensors")
        result[f"{step} weights"] = {name: one.tolist() for name, one in tensors.items()}
        result[f"{step} log"] = drop_times(read_jsonl(run / step / "metrics.jsonl"))
    result["predictions"] = drop_times(read_jsonl(run / "evaluate" / "predictions.jsonl"))
    metrics = drop_times(read_json(run / "evaluate" / "metrics.json", list))
    result["metrics"] = [one for one in metrics if "latency" not in str(one.get("name"))]
    return result


def drop_times(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]
