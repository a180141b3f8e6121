"""Seconds from 100 finished runs to the written report, in both languages.

    python benchmarks/compare_report.py --json results.json

The runs are a grid of 4 × 5 × 5 cells with 500 items in 125 clusters each, a training log of 300
steps, and everything the fairness gate reads; they are built first and not measured. "read" is
from the folders to the table of results (predictions, facts, gate, curves), "build" all paired
comparisons with their tests and Holm's method, "write" plots, HTML, Markdown and JSON.
"""

import argparse
import random
import statistics
import tempfile
import time
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from groupwise.core import describe_machine, digest_json, write_json, write_jsonl
from groupwise.evaluation.compare import compare_results
from groupwise.evaluation.predictions import (
    METRIC_VERSIONS,
    Prediction,
    RunPolicy,
    write_policies,
    write_predictions,
)
from groupwise.evaluation.report.comparison import write_comparison
from groupwise.evaluation.result_table import Question, Result, read_runs

BETAS = ("0.05", "0.1", "0.15", "0.2")
RATES = ("1e-05", "2e-05", "5e-05", "1e-04", "2e-04")
GROUP_SIZES = ("4", "5", "6", "8", "16")
NUM_ITEMS = 500
ITEMS_PER_CLUSTER = 4
NUM_STEPS = 300
LABELS = ("on-task", "off-task")
POLICY = RunPolicy(
    name="grpo",
    title="GRPO",
    title_zh="GRPO",
    kind="trained",
    step="grpo",
    trained_on=("train",),
    budget={"num_steps": NUM_STEPS},
)
_FINISHED = "2026-05-01T10:0{}:00+00:00"


def write_run(folder: Path, beta: str, rate: str, group_size: str) -> None:
    """Write a finished run: manifest, conditions, training log and predictions."""
    settings = {"beta": float(beta), "learning_rate": float(rate), "group_size": int(group_size)}
    manifest = {
        "recipe": "bench",
        "config": {"seed": 0, "grpo": settings, "evaluation": {"num_items": NUM_ITEMS}},
        "plan": {
            "grpo": {"reads": ["grpo"], "uses": [], "inputs": []},
            "evaluate": {"reads": ["evaluation"], "uses": ["grpo"], "inputs": []},
        },
        "seed": 0,
        "started_at": _FINISHED.format(0),
        "packages": {"groupwise": "0.1.0"},
        "hardware": {"machine": "x86_64"},
    }
    write_json(folder / "manifest.json", manifest)
    write_json(folder / "evaluate" / "conditions.json", describe_conditions())
    write_policies(folder, [POLICY])
    for number, step in enumerate(("grpo", "evaluate"), start=1):
        marker = {"key": step, "outputs": {}, "finished_at": _FINISHED.format(number)}
        write_json(folder / step / "step.json", marker)
    write_jsonl(folder / "grpo" / "metrics.jsonl", log_training(beta, rate, group_size))
    write_predictions(folder / "evaluate" / "predictions.jsonl", answer(beta, rate, group_size))


def describe_conditions() -> dict[str, Any]:
    """Return the conditions that all runs share."""
    return {
        "data": {name: {"digest": name, "num_rows": NUM_ITEMS} for name in ("train", "test")},
        "prompts": {"test": "prompts"},
        "template": "template",
        "tokenizer": "tokenizer",
        "base_weights": "base",
        "decoding": {"temperature": 0.0},
        "parser": {"labels": list(LABELS)},
        "normalizer": None,
        "metrics": dict(METRIC_VERSIONS),
        "is_nested_subset_of": {},
    }


def log_training(*names: str) -> list[dict[str, float]]:
    """Return a log with the numbers that a report draws."""
    dice = random.Random(" ".join(names))
    return [
        {
            "step": step,
            "epoch": step / 100,
            "loss": dice.gauss(0.1, 0.02),
            "reward": 0.5 + 0.3 * step / NUM_STEPS + dice.gauss(0, 0.03),
            "kl": 0.001 * step * dice.random(),
            "entropy": 1 - step / NUM_STEPS / 2 + dice.gauss(0, 0.02),
            "dead_groups": dice.random() / 2,
            "completion_length": dice.gauss(40, 3),
        }
        for step in range(1, NUM_STEPS + 1)
    ]


def answer(*names: str) -> list[Prediction]:
    """Return answers that are right with a chance by run and cluster."""
    dice = random.Random(" ".join(names))
    accuracy = 0.7 + float(names[0])
    rows: list[Prediction] = []
    for number in range(NUM_ITEMS):
        label = LABELS[number % 2]
        is_right = dice.random() < accuracy
        given = label if is_right else LABELS[1 - number % 2]
        rows.append(
            Prediction(
                example_id=digest_json(f"item {number}"),
                cluster=f"session-{number // ITEMS_PER_CLUSTER:03}",
                split="test",
                policy="grpo",
                label=label,
                predicted=given,
                text=f"Task {number}: {given}",
                fields={"task": f"整理第 {number} 份预算"},
            )
        )
    return rows


def build_runs(folder: Path) -> list[Result]:
    """Write all runs and return them as systems (beta) and cells."""
    sources: list[Result] = []
    for names in product(BETAS, RATES, GROUP_SIZES):
        place = folder / "-".join(names)
        write_run(place, *names)
        sources.append(Result(names[0], folder=str(place), cell=names[1:]))
    return sources


def measure_report(sources: list[Result], out: Path) -> dict[str, float]:
    """Return the seconds of each part of one report."""
    axes = {"grpo.learning_rate": RATES, "grpo.group_size": GROUP_SIZES}
    factors = ("grpo.beta",)
    question = Question(factors=factors, title="bench", system_axis="grpo.beta")
    starts = [time.perf_counter()]
    table = read_runs(sources, question, axes)
    starts.append(time.perf_counter())
    comparison = compare_results(table)
    starts.append(time.perf_counter())
    write_comparison(comparison, out, language="zh")
    starts.append(time.perf_counter())
    parts = dict(zip(("read_s", "build_s", "write_s"), _subtract(starts), strict=True))
    return {**parts, "total_s": starts[-1] - starts[0]}


def _subtract(times: list[float]) -> list[float]:
    return [b - a for a, b in pairwise(times)]


def main() -> None:
    """Build the runs, write their report a few times and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="keep runs and report in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        sources = build_runs(folder / "runs")
        found = [measure_report(sources, folder / "report") for _ in range(options.repeats)]
        size = (folder / "report" / "comparison.html").stat().st_size
    result: dict[str, Any] = {key: statistics.median(one[key] for one in found) for key in found[0]}
    result |= {"num_runs": len(sources), "num_items": NUM_ITEMS, "html_bytes": size}
    for key, value in result.items():
        print(f"{key:12} {value:.2f}" if isinstance(value, float) else f"{key:12} {value}")
    if options.json:
        write_json(options.json, {**result, "repeats": found, "machine": describe_machine()})


if __name__ == "__main__":
    main()
