"""What stands at the end of ``groupwise run``: numbers of every policy, from the run's files."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from groupwise.core import read_json

_INVALID = "invalid_rate"


def print_headline(folder: Path, *, first: str = "") -> None:
    """Print each policy's accuracy as it stands in ``evaluate/metrics.json``.

    Its interval is by clusters where there is one; replies without an answer are reported:
    they are wrong and yet no other answer.

    Args:
        folder: of the run; nothing is printed if it has no metrics.
        first: a measure that stands before the accuracy; empty for none.
    """
    path = folder / "evaluate" / "metrics.json"
    if not path.is_file():
        return
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for metric in read_json(path, list):
        policy, _, measure = metric["name"].partition("/")
        rows.setdefault((policy, metric["split"]), {})[measure] = metric
    shown = [first] if first else []
    if any(own.get(_INVALID, {}).get("value") for own in rows.values()):
        shown.append(_INVALID)
    splits = sorted({split for _, split in rows})
    keys = ["policy", "split"] if splits[1:] else [f"on {split}" for split in splits]
    heads = ("no answer" if name == _INVALID else name.replace("_", " ") for name in shown)
    table = Table(*keys, *heads, "accuracy", "95 % interval", "n", box=None, pad_edge=False)
    for key, own in rows.items():
        if "accuracy" in own:
            cells = [*key[: len(keys)], *(_describe(own.get(name)) for name in shown)]
            accuracy = own.get("accuracy_clustered", own["accuracy"])
            table.add_row(*cells, *_list_cells(accuracy), str(accuracy["n"]))
    Console(highlight=False, markup=False).print(table)


def _describe(metric: dict[str, Any] | None) -> str:
    if metric is None:
        return "–"
    value, ends = _list_cells(metric)
    return value if metric["name"].endswith(f"/{_INVALID}") else f"{value} ({ends})"


def _list_cells(metric: dict[str, Any]) -> tuple[str, str]:
    return f"{metric['value']:.1%}", f"{100 * metric['low']:.1f}–{metric['high']:.1%}"
