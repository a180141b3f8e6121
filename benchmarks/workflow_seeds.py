r"""What a sweep of the workflows recipe found by type of problem, for each seed.

    python benchmarks/workflow_seeds.py runs/workflow-seeds \
        --command "groupwise sweep workflows --config demo --seeds 6 --out runs/workflow-seeds" \
        --json benchmarks/results/workflow_seeds.json

For every seed and type it says how many test problems each policy got right, which program the
trained policy writes most often (its shape: names and comments do not count), and how far it is
from the operator that does best alone on that type (paired, with a 95 % interval). ``methods`` and
``above`` are of the sweep's own report over seeds.
"""

import argparse
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupwise.evaluation.metrics import compare_policies
from groupwise.evaluation.predictions import Prediction, read_predictions

_TRAINED, _WARMUP, _OPERATOR = "grpo", "sft", "best_operator"


def read(path: Path) -> Any:
    """Return what a JSON file says."""
    return json.loads(path.read_text(encoding="utf-8"))


def describe_run(run: Path) -> dict[str, Any]:
    """Return what one seed found, by type and over all of them."""
    rows = read_predictions(run / "evaluate" / "predictions.jsonl")
    types = sorted({str(one.fields["problem_type"]) for one in rows})
    by_type = {
        kind: describe_type([one for one in rows if one.fields["problem_type"] == kind])
        for kind in types
    }
    trained = [one for one in rows if one.policy == _TRAINED]
    return {
        "seed": read(run / "manifest.json")["seed"],
        "types": by_type,
        "all": describe_type(rows),
        "modal_programs": len({one["program"] for one in by_type.values()}),
        "refused": sum(not one.fields["program"] for one in trained) / len(trained),
        "executed": sum(one.scores["executed"] for one in trained) / len(trained),
    }


def describe_type(rows: Sequence[Prediction]) -> dict[str, Any]:
    """Return shares of right answers, the commonest program and the differences."""
    policies = list(dict.fromkeys(one.policy for one in rows))
    right = {name: [o.predicted == o.label for o in rows if o.policy == name] for name in policies}
    shapes = Counter(str(one.fields["program"]) for one in rows if one.policy == _TRAINED)
    shape, count = shapes.most_common(1)[0]
    above = {
        name: compare_policies(rows, name, _TRAINED, split="test") for name in (_WARMUP, _OPERATOR)
    }
    return {
        "n": len(right[_TRAINED]),
        "right": {name: sum(found) / len(found) for name, found in right.items()},
        "program": shape,
        "program_share": count / shapes.total(),
        "above": {name: [one.difference, one.low, one.high] for name, one in above.items()},
    }


def main() -> None:
    """Read the runs of a sweep and write what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweep", type=Path)
    parser.add_argument("--command", required=True)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    report = read(arguments.sweep / "comparison.json")
    first = report["cells"][0]["system"]
    results = [one for one in report["table"]["results"] if one["system"] == first]
    runs = [Path(one["folder"]) for one in results]
    manifest = read(runs[0] / "manifest.json")
    found = {
        "command": shlex.split(arguments.command),
        **{name: manifest[name] for name in ("git_revision", "packages", "hardware")},
        "seed": [one["seed"] for one in results],
        "data": read(runs[0] / "evaluate" / "conditions.json")["data"]["test"],
        "seeds": [describe_run(run) for run in runs],
        "methods": {one["system"]: one["value"] for one in report["cells"]},
        "above": {
            f"{one['first']} - {one['second']}": one["gaps"][0]["test"] for one in report["pairs"]
        },
    }
    arguments.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
