"""Counts of the data audit side by side: rows read and not used, findings, sizes of splits."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import read_json
from groupwise.evaluation.comparison.content import SideRow

_FILE = Path("audit") / "audit.json"
_SIZES = ("num_examples", "num_clusters")
_MAX_VALUES = 4


def arrange_audits(folders: Mapping[str, Sequence[Path]]) -> tuple[SideRow, ...]:
    """Return a row per count, a value per system; of several runs every different value.

    Args:
        folders: the finished runs of each system.

    Raises:
        EvaluationError: if an audit is damaged.
    """
    counts = {
        name: [dict(_count(read_audit(run))) for run in runs] for name, runs in folders.items()
    }
    keys = dict.fromkeys(key for runs in counts.values() for run in runs for key in run)
    return tuple(
        SideRow("audit", key, tuple(_join([r.get(key) for r in runs]) for runs in counts.values()))
        for key in keys
    )


def _join(values: Sequence[int | None]) -> str | None:
    shown = list(dict.fromkeys(str(value) for value in values if value is not None))
    return " / ".join(shown[:_MAX_VALUES]) or None


def read_audit(folder: Path) -> Mapping[str, Any]:
    """Return the data audit of a run; empty where it has none."""
    path = folder / _FILE
    return read_json(path, dict) if path.is_file() else {}


def _count(audit: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    if isinstance(audit.get("num_rows"), int):
        yield "num_rows", audit["num_rows"]
    drops: Mapping[str, Any] = audit.get("drops") or {}
    if isinstance(drops.get("total"), int):
        yield "num_rows_not_used", drops["total"]
    findings: Sequence[Mapping[str, Any]] = audit.get("findings") or ()
    if audit:
        for level in ("error", "warning"):
            yield f"num_{level}s", sum(one.get("level") == level for one in findings)
    splits: Mapping[str, Mapping[str, Any]] = audit.get("splits") or {}
    for name, split in splits.items():
        for size in _SIZES:
            if isinstance(split.get(size), int):
                yield f"{name}.{size}", split[size]
