"""What finished runs found, for the README: every policy's numbers, and what the main one is above.

    python benchmarks/demos.py runs/demo --json benchmarks/results/demos.json

Results that the file has of other recipes and seeds stay.
"""

import argparse
import json
from pathlib import Path
from typing import Any


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
        "metrics": {r["name"]: [r["value"], r["low"], r["high"], r["n"]] for r in metrics},
        "above": {
            f"{r['policy_b']} - {r['policy_a']}": [
                *(r[key] for key in ("difference", "low", "high", "p_value"))
            ]
            for r in comparisons
        },
    }
    return f"{manifest['recipe']}-{manifest['seed']}", result


def main() -> None:
    """Add the runs to the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    results = read(given.json) if given.json.is_file() else {}
    results |= dict(map(read_run, given.runs))
    text = json.dumps(dict(sorted(results.items())), indent=1, ensure_ascii=False)
    given.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
