"""What stands at the end of ``groupwise run``: numbers of every policy, from the run's files."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def print_headline(folder: Path, *, first: str = "") -> None:
    """Print each policy's accuracy as it stands in ``evaluate/metrics.json``.

    Args:
        folder: of the run; nothing is printed if it has no metrics.
        first: a measure that stands before the accuracy; empty for none.
    """
    path = folder / "evaluate" / "metrics.json"
    if not path.is_file():
        return
    metrics: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    found = {(one["name"], one["split"]): one for one in metrics}
    extra = [first.replace("_", " ")] if first else []
    table = Table("policy", "split", *extra, "accuracy", "95 % interval", "n", box=None)
    for metric in metrics:
        policy, _, name = metric["name"].partition("/")
        if name == "accuracy":
            cells = [_describe(found.get((f"{policy}/{first}", metric["split"])))] if first else []
            table.add_row(policy, metric["split"], *cells, *_list_cells(metric), str(metric["n"]))
    Console(highlight=False, markup=False).print(table)


def _describe(metric: dict[str, Any] | None) -> str:
    return "–" if metric is None else "{} ({})".format(*_list_cells(metric))


def _list_cells(metric: dict[str, Any]) -> tuple[str, str]:
    return f"{metric['value']:.1%}", f"{metric['low']:.1%} – {metric['high']:.1%}"
