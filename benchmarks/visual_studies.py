r"""What the tables of the visual_reasoning studies say, for the README.

    groupwise compare runs/bias --out runs/tables/bias
    python benchmarks/visual_studies.py runs/tables/bias/study.json \
        --command "groupwise sweep visual_reasoning --config bias --grid data.keep=1,0" \
        --json benchmarks/results/visual_studies.json

Of each table that has runs it keeps the rows and the differences between them, with the revision,
the machine and the test data of the runs, and how long the longest of them took. Tables that the
file has of other studies stay. Paths of runs are read from where the report was made.
"""

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.evaluation.predictions import Language
from groupwise_recipes.visual_reasoning.study_tables import StudyTable, read_tables


def read(path: Path) -> Any:
    """Return what a JSON file says."""
    return json.loads(path.read_text(encoding="utf-8"))


def describe_table(
    table: StudyTable, rows: Sequence[Mapping[str, Any]], differences: Sequence[Any]
) -> dict[str, Any]:
    """Return a table with what its runs were made from."""
    folders = sorted({Path(folder) for row in rows for folder in row["runs"]})
    manifests = [read(folder / "manifest.json") for folder in folders]
    data = [read(folder / "evaluate" / "conditions.json")["data"]["test"] for folder in folders]
    if len({one["git_revision"] for one in manifests}) > 1:
        raise SystemExit(f"the runs of {table.name} were not made by one revision")
    return {
        **{name: manifests[0][name] for name in ("git_revision", "packages", "hardware")},
        "seed": sorted({one["seed"] for one in manifests}),
        "data": sorted({one["digest"] for one in data}),
        "num_runs": len(folders),
        "longest_min": max(measure_minutes(folder) for folder in folders),
        "title": dict(table.title),
        "columns": {one.name: dict(one.title) for one in table.columns},
        "rows": [describe_row(table, row) for row in rows if row["runs"]],
        "differences": [
            {
                "title": join_titles(table, one["second"], one["first"]),
                "num_seeds": min(found["num_seeds_a"] for found in one["values"].values()),
                "values": {
                    name: [found[key] for key in ("estimate", "low", "high")]
                    for name, found in one["values"].items()
                },
            }
            for one in differences
            if one["values"]
        ],
    }


def describe_row(table: StudyTable, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the title, seeds and values of a row, and what tells it from others of its name."""
    seeds = sorted({seed for one in row["values"].values() for seed, _ in one["by_seed"]})
    titles = {one.name: dict(one.title) for one in table.rows}
    values = dict(list_values(row["values"]))
    return {"title": titles[row["row"]], "apart": row["apart"], "seed": seeds, "values": values}


def join_titles(table: StudyTable, *names: str) -> dict[str, str]:
    """Return the titles of two rows as a difference, by language."""
    titles = {one.name: one.title for one in table.rows}
    languages: tuple[Language, ...] = ("en", "zh")
    return {
        language: " \u2212 ".join(titles[name][language] for name in names)
        for language in languages
    }


def list_values(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield value, ends of the interval and n of each cell; what does not apply is its state."""
    for name, one in values.items():
        is_done = one["state"] == "done"
        yield name, [one[key] for key in ("value", "low", "high", "n")] if is_done else one["state"]


def measure_minutes(run: Path) -> float:
    """Return how long the steps of a run took together."""
    steps = (read(path) for path in run.glob("*/step.json"))
    return sum(one["duration_s"] for one in steps) / 60


def main() -> None:
    """Add the tables to the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("--command", action="append", required=True, help="that made the runs")
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    study = read(given.study)
    results = read(given.json) if given.json.is_file() else {}
    tables = {one.name: one for one in read_tables()}
    for name, rows in study["tables"].items():
        if any(row["runs"] for row in rows):
            found = describe_table(tables[name], rows, study["differences"][name])
            results[name] = {"command": [shlex.split(one) for one in given.command], **found}
    text = json.dumps(dict(sorted(results.items())), indent=1, ensure_ascii=False)
    given.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
