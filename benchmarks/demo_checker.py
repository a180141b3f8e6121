"""What runs of the demo with its rivals found over seeds, and how GRPO compares by the method.

make demo-rivals
python benchmarks/demo_checker.py runs/demo-rivals/* --json benchmarks/results/demo_checker.json
"""

import argparse
import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

from groupwise.evaluation.metrics import read_items, read_metrics
from groupwise.evaluation.predictions import read_predictions
from groupwise.evaluation.statistics import compare_methods

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "demo"))
rewards: Any = import_module("rewards")

POLICIES = ("prompt", "best_of", "rejection", "grpo")
MEASURES = ("good", "passes", "fluent", "new_words", "reward")


def read(path: Path) -> Any:
    """Return what a JSON file says."""
    return json.loads(path.read_text(encoding="utf-8"))


def describe(run: Path) -> dict[str, Any]:
    """Return a run's shares with their 95 % intervals, samples, minutes and threshold."""
    manifest = read(run / "manifest.json")
    metrics = {one.name: one for one in read_metrics(run / "evaluate" / "metrics.json")}
    steps = {path.parent.name: read(path)["duration_s"] for path in run.glob("*/step.json")}
    return {
        "seed": manifest["seed"],
        "threshold": read(run / "fluency" / "threshold.json"),
        "num_samples": read(run / "grpo" / "budget.json")["num_samples"],
        "good_by_present_checks": check_again(run),
        "selection": read(run / "grpo" / "selection.json"),
        "minutes": {name: round(seconds / 60, 1) for name, seconds in sorted(steps.items())},
        "metrics": {
            name: [one.value, one.low, one.high, one.n]
            for policy in POLICIES
            for measure in MEASURES
            if (one := metrics.get(name := f"{policy}/{measure}"))
        },
    }


def check_again(run: Path) -> dict[str, float]:
    """Return the share of each policy's answers that are fluent and pass the checks of today."""
    found: dict[str, list[bool]] = {}
    for one in read_predictions(run / "evaluate" / "predictions.jsonl"):
        asked, said = SimpleNamespace(fields=one.fields), SimpleNamespace(text=one.text)
        is_good = one.scores["fluent"] == 1.0 and rewards.passes(asked, said)
        found.setdefault(one.policy, []).append(is_good)
    return {name: fmean(values) for name, values in found.items()}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    runs: list[Path] = arguments.runs
    manifest = read(runs[0] / "manifest.json")
    predictions = [read_predictions(run / "evaluate" / "predictions.jsonl") for run in runs]
    there = [
        name for name in POLICIES if all(name in {p.policy for p in one} for one in predictions)
    ]

    def collect(policy: str) -> list[Any]:
        return [read_items(one, policy=policy, split="test", measure="good") for one in predictions]

    found = {
        **{name: manifest[name] for name in ("command", "git_revision", "packages", "hardware")},
        "config": manifest["config"],
        "runs": [describe(run) for run in runs],
        "means": {name: sum(one.value for one in collect(name)) / len(runs) for name in there},
        "above": {
            f"grpo - {name}": asdict(
                compare_methods(collect(name), collect("grpo"), is_paired=True)
            )
            for name in there
            if name != "grpo"
        },
    }
    text = json.dumps(found, indent=1, ensure_ascii=False)
    arguments.json.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
