r"""What finished runs found, for the README: numbers of policies, and what the main one is above.

    python benchmarks/demos.py runs/demo --json benchmarks/results/demos.json
    python benchmarks/demos.py runs/seeds --json benchmarks/results/demo_seeds.json \
        --command "groupwise sweep on_task --config demo --seeds 6 --out runs/seeds"

Of a sweep over seeds, which does not keep its command, or of another report of its runs
(``groupwise compare --together RUN… --metric test/NAME --out DIR``), it is what the methods found.
Results that the file has of other recipes, measures and seeds stay.
"""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from groupwise.evaluation.results import list_looks


def read(path: Path) -> Any:
    """Return what a JSON file says."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_run(run: Path) -> tuple[str, dict[str, Any]]:
    """Return a name of the run by its recipe and seed, and its numbers with 95 % intervals."""
    manifest = read(run / "manifest.json")
    metrics = read(run / "evaluate" / "metrics.json")
    comparisons = read(run / "evaluate" / "comparisons.json")
    result = {
        "command": manifest["command"],
        **{name: manifest[name] for name in ("git_revision", "packages", "hardware", "seed")},
        "data": read(run / "evaluate" / "conditions.json")["data"],
        "looks": len(list_looks(run, metrics[0]["split_digest"])),
        "metrics": {r["name"]: [r["value"], r["low"], r["high"], r["n"]] for r in metrics},
        "above": {
            f"{r['policy_b']} - {r['policy_a']}": [
                *(r[key] for key in ("difference", "low", "high", "p_value"))
            ]
            for r in comparisons
        },
    }
    return f"{manifest['recipe']}-{manifest['seed']}", result


def read_seeds(sweep: Path, command: str) -> tuple[str, dict[str, Any]]:
    """Return recipe and measure of a report over seeds, and what it says of the methods."""
    report = read(sweep / "comparison.json")
    first = report["cells"][0]["system"]
    results = [one for one in report["table"]["results"] if one["system"] == first]
    runs = [Path(one["folder"]) for one in results]
    manifests = [read(run / "manifest.json") for run in runs]
    same = {name: manifests[0][name] for name in ("git_revision", "packages", "hardware")}
    if any(one["git_revision"] != same["git_revision"] for one in manifests):
        raise SystemExit(f"{sweep} was not made by one revision")
    result = {
        "command": shlex.split(command),
        **same,
        "seed": [one["seed"] for one in results],
        "data": [read(run / "evaluate" / "conditions.json")["data"]["test"] for run in runs],
        "methods": {
            one["system"]: {
                "mean": one["value"],
                "lowest": min(value for _, value in one["seeds"]),
                "highest": max(value for _, value in one["seeds"]),
                "values": [value for _, value in one["seeds"]],
            }
            for one in report["cells"]
        },
        "above": {
            f"{one['first']} - {one['second']}": gap["test"]
            | {
                "p_value_holm": gap["p_holm"],
                "alone": [
                    dict(zip(("seed", "difference", "p_value"), alone, strict=True))
                    for alone in gap["alone"]
                ],
            }
            for one in report["pairs"]
            for gap in one["gaps"]
        },
    }
    measure = report["table"]["measure"]["name"]
    name = manifests[0]["recipe"]
    return name if measure == "accuracy" else f"{name} {measure}", result


def main() -> None:
    """Add the runs to the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--command", help="with which a sweep over seeds was made")
    given = parser.parse_args()
    results = read(given.json) if given.json.is_file() else {}
    results |= dict(
        read_seeds(one, given.command) if (one / "comparison.json").is_file() else read_run(one)
        for one in given.runs
    )
    text = json.dumps(dict(sorted(results.items())), indent=1, ensure_ascii=False)
    given.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
