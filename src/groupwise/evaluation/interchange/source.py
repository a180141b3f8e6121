"""What an export is made of: one run's predictions, metrics and what they were made with."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.core import EvaluationError, check_records, read_json, read_manifest
from groupwise.evaluation.conditions import read_recorded
from groupwise.evaluation.metrics import Metric, read_metrics
from groupwise.evaluation.predictions import (
    Prediction,
    digest_items,
    find_measure,
    group_by_policy,
    read_predictions,
)


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The records of a run that others can use.

    Attributes:
        name: of the run's folder.
        predictions: of the chosen policies, by split and policy, items by id.
        metrics: of the same policies; empty where the run has none.
        manifest: as it is, empty where there is none.
        conditions: as they are, empty where there are none.
        evaluation: the marker of the step ``evaluate``, empty where there is none.
    """

    name: str
    predictions: tuple[Prediction, ...]
    metrics: tuple[Metric, ...]
    manifest: Mapping[str, Any]
    conditions: Mapping[str, Any]
    evaluation: Mapping[str, Any]

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies, in the order of reports."""
        return tuple(dict.fromkeys(item.policy for item in self.predictions))

    def digest_splits(self) -> dict[str, dict[str, str]]:
        """Return the digest of items and labels by split and policy."""
        found: dict[str, dict[str, str]] = {}
        for (split, policy), items in group_by_policy(self.predictions).items():
            found.setdefault(split, {})[policy] = digest_items(items)
        return found

    @property
    def directions(self) -> Mapping[str, bool]:
        """Whether more is better, by measure; one that nobody defined is left out."""
        own = self.conditions.get("measures", ())
        known = {one.measure: find_measure(one.measure, own) for one in self.metrics}
        return {name: one.is_higher_better for name, one in known.items() if one is not None}

    @property
    def metric_versions(self) -> Mapping[str, int]:
        """Version by metric family as the run recorded them; empty if it did not."""
        return self.conditions.get("metrics") or {}


def read_records(run: Path, *, policy: str | None = None) -> RunRecords:
    """Read the records of a run.

    Args:
        run: the run folder.
        policy: keep only this one.

    Raises:
        EvaluationError: if there are no predictions, none of ``policy``, or a file is damaged.
        DataError: if a JSONL file is damaged.
        RunError: if a file is not what its step wrote.
    """
    path = run / "evaluate/predictions.jsonl"
    if not path.is_file():
        raise EvaluationError(
            f"{run} has nothing to export",
            got=f"no {path.relative_to(run)}",
            fix="run it up to the step evaluate",
        )
    check_records(run)
    manifest = run / "manifest.json"
    found = group_by_policy(read_predictions(path))
    names = list(dict.fromkeys(name for _, name in found))
    if policy is not None and policy not in names:
        raise EvaluationError(f"{run} has no policy {policy!r}", got=", ".join(names))
    items = [item for (_, name), rows in found.items() for item in rows if policy in (None, name)]
    metrics_path = run / "evaluate/metrics.json"
    metrics = read_metrics(metrics_path) if metrics_path.is_file() else []
    return RunRecords(
        name=run.resolve().name,
        predictions=tuple(items),
        metrics=tuple(metric for metric in metrics if policy in (None, metric.policy)),
        manifest=read_manifest(manifest) if manifest.is_file() else {},
        conditions=read_recorded(run) or {},
        evaluation=_read_object(run / "evaluate/step.json"),
    )


def _read_object(path: Path) -> Mapping[str, Any]:
    return read_json(path, dict) if path.is_file() else {}
