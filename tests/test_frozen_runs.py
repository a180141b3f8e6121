"""Runs that an earlier version finished are read as they were: predict, serve, compare, report."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_line import CommandLine
from read_frozen import check, read_comparison, read_methods, read_shown, unpack

from groupwise.core import read_jsonl
from groupwise.evaluation.metrics import compare_pairs, compute_metrics, write_metrics
from groupwise.evaluation.predictions import read_predictions
from groupwise.evaluation.statistics import write_comparisons

MESSAGES = (
    "My parcel is late by three days.",
    "The zip of the tent broke on the first evening.",
    "I was charged twice for the kettle.",
    "",
    "Where is my order?",
)
PHOTOS = Path(__file__).parent / "golden" / "cases" / "group_qc" / "photos" / "BBU接地线检查"
GONE = {"test", "effect_size", "design_effect", "num_items_needed", "num_effective_clusters"}
"""Of comparisons that old runs have: what said how many items it would take, and which test it was.

Quantiles of latency are in their metrics, too; the seconds stand in the predictions.
"""
ANSWER = ("text", "answer", "reason", "confidence", "needs_person", "details", "failed", "row")


def pick_answer(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ANSWER if name in answer}


def ask(command_line: CommandLine, run: Path | str, rows: Path) -> dict[str, Any]:
    """Return what ``predict`` answers, by the id of the row."""
    answers = Path(f"{Path(run).name}.jsonl")
    done = command_line("predict", run, rows, "--out", answers)
    assert done.returncode == 0, done.stderr
    return {one["id"]: pick_answer(one) for one in read_jsonl(answers)}


@contextmanager
def serve(run: Path) -> Iterator[httpx2.Client]:
    """Serve a run by a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "groupwise.cli", "serve", str(run), "--set", f"port={port}"]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            deadline = time.monotonic() + 300
            while time.monotonic() < deadline:
                assert process.poll() is None, "the server has ended"
                with suppress(httpx2.TransportError):
                    if client.get("/readyz").status_code == 200:
                        break
                time.sleep(0.05)
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


class TestLabels:
    def test_predict(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("labels", tmp_path)
        rows = tmp_path / "rows.jsonl"
        rows.write_text("".join(json.dumps({"message": one}) + "\n" for one in MESSAGES))
        found = {name: ask(command_line, f"{run}:{name}", rows) for name in ("sft", "grpo")}
        check("answers/labels", found)

    @pytest.mark.slow
    def test_serve(self, tmp_path: Path) -> None:
        with serve(unpack("labels", tmp_path)) as client:
            found = [client.post("/v1/predict", json={"row": {"message": one}}) for one in MESSAGES]
        answers = [pick_answer(one.json()) for one in found]
        check("answers/labels_served", [[one.status_code for one in found], answers])


class TestGroupQc:
    def test_predict(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("group_qc", tmp_path)
        shutil.copytree(PHOTOS, tmp_path / "asked" / PHOTOS.name)
        check("answers/group_qc", ask(command_line, run, tmp_path / "asked"))

    @pytest.mark.slow
    def test_serve(self, tmp_path: Path) -> None:
        groups = sorted(PHOTOS.glob("*/*"))
        with serve(unpack("group_qc", tmp_path)) as client:
            found = [
                client.post(
                    "/v1/predict",
                    data={"row": json.dumps({"mission": PHOTOS.name})},
                    files=[
                        ("pictures", (one.name, one.read_bytes()))
                        for one in sorted(group.iterdir())
                    ],
                )
                for group in groups
            ]
        answers = [pick_answer(one.json()) for one in found]
        check("answers/group_qc_served", [[one.status_code for one in found], answers])


class TestStatistics:
    def test_metrics_and_tests_of_a_run(self, tmp_path: Path) -> None:
        """What the run wrote itself is what its predictions give now."""
        run = unpack("labels", tmp_path)
        predictions = read_predictions(run / "evaluate" / "predictions.jsonl")
        told = json.loads((run / "evaluate" / "comparisons.json").read_text())
        pairs = [(one["policy_a"], one["policy_b"]) for one in told]
        write_metrics(
            tmp_path / "metrics.json",
            compute_metrics(predictions, labels=("billing", "delivery", "fault"), seed=0),
        )
        write_comparisons(tmp_path / "comparisons.json", compare_pairs(predictions, pairs, seed=0))
        for name in ("metrics", "comparisons"):
            now = json.loads((tmp_path / f"{name}.json").read_text())
            then = json.loads((run / "evaluate" / f"{name}.json").read_text())
            then = [one for one in then if "/latency_p" not in one.get("name", "")]
            assert now == [{k: v for k, v in one.items() if k not in GONE} for one in then]

    def test_report_of_a_run(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("labels", tmp_path)
        done = command_line("report", run)
        assert done.returncode == 0, done.stderr
        check("statistics/run", {"shown": read_shown(run / "report.md")})

    def test_two_policies_of_a_run(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("labels", tmp_path)
        done = command_line("compare", f"{run}:sft", f"{run}:grpo", "--out", "out")
        assert done.returncode == 0, done.stderr
        check("statistics/two_policies", read_comparison(Path("out")))

    def test_two_seeds_of_a_task(self, tmp_path: Path, command_line: CommandLine) -> None:
        runs = [unpack(name, tmp_path) for name in ("labels", "labels_other_seed")]
        named = ("--factor", "seed", "--factor", "budget")
        done = command_line("compare", *runs, *named, "--out", "out")
        assert done.returncode == 0, done.stderr
        check("statistics/two_seeds", read_comparison(Path("out")))

    def test_two_policies_in_pictures(self, tmp_path: Path, command_line: CommandLine) -> None:
        run = unpack("group_qc", tmp_path)
        done = command_line("compare", f"{run}:prompt", f"{run}:grpo", "--out", "out")
        assert done.returncode == 0, done.stderr
        check("statistics/group_qc", read_comparison(Path("out")))

    def test_six_seeds_with_clusters(self, tmp_path: Path, command_line: CommandLine) -> None:
        runs = sorted(unpack("six_seeds", tmp_path).iterdir())
        assert command_line("report", *runs, "--out", "out").returncode == 0
        check("statistics/six_seeds", read_methods(Path("out")))
        named = ("--factor", "seed")
        assert command_line("compare", *runs[:2], *named, "--out", "two").returncode == 0
        check("statistics/six_seeds_two", read_comparison(Path("two")))
