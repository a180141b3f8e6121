"""The files of a run that a report is made of, each read if it is there.

A file that is not there is remembered with what it would have shown; a file that cannot be
parsed is an error, because a report without it would look complete.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from groupwise.core import EvaluationError, read_jsonl
from groupwise.evaluation.fairness.conditions import read_measures
from groupwise.evaluation.measures import Measure
from groupwise.evaluation.metrics import Metric, read_metrics
from groupwise.evaluation.paired import PairedComparison, read_comparisons
from groupwise.evaluation.predictions import Prediction, rank_policy, read_predictions
from groupwise.evaluation.report.content import TrainingLog
from groupwise.evaluation.report.sections import Section, read_sections

T = TypeVar("T")
_SHOWS = {
    "manifest.json": "the configuration, seeds and versions",
    "evaluate/predictions.jsonl": "confusion, reliability and mistakes",
    "evaluate/metrics.json": "the headline table",
    "evaluate/comparisons.json": "the paired comparisons",
    "audit/audit.json": "the data audit",
}
_USUAL = {
    "sft": "the loss of the supervised warm-up",
    "grpo": "the learning curve",
}


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The contents of a run's files; what is not there is empty or None.

    ``logs`` are those of every step that logged rows, whatever its name; ``gates`` and ``judges``
    are theirs.
    """

    folder: Path
    predictions: list[Prediction]
    metrics: list[Metric]
    comparisons: list[PairedComparison]
    sections: tuple[Section, ...]
    logs: dict[str, TrainingLog]
    warnings: list[tuple[str, Mapping[str, Any]]]
    audit: Mapping[str, Any] | None
    reward_audit: Mapping[str, Any] | None
    gates: Mapping[str, Mapping[str, Any]]
    judges: Mapping[str, Mapping[str, Any]]
    manifest: Mapping[str, Any] | None
    packages: Mapping[str, Mapping[str, str]]
    measures: tuple[Measure, ...]
    absent: Mapping[str, str]


def read_run_files(folder: Path) -> RunFiles:
    """Read what is there of a run.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
    """
    if not folder.is_dir():
        raise EvaluationError(f"there is no run at {folder}", fix="give the folder of a run")
    logs = {log.name: log for log in _read_logs(folder) if log.rows}
    return RunFiles(
        folder=folder,
        predictions=_read(folder / "evaluate/predictions.jsonl", read_predictions, []),
        metrics=_read(folder / "evaluate/metrics.json", read_metrics, []),
        comparisons=_read(folder / "evaluate/comparisons.json", read_comparisons, []),
        sections=_read(folder / "evaluate/sections.json", read_sections, ()),
        logs=logs,
        warnings=_read_warnings(folder),
        audit=_read(folder / "audit/audit.json", _read_object, None),
        reward_audit=_read(folder / "audit_rewards/audit.json", _read_object, None),
        gates={
            name: _read_object(folder / name / "gate.json")
            for name in logs
            if (folder / name / "gate.json").is_file()
        },
        judges={name: _read(folder / name / "judge.json", _read_object, {}) for name in logs},
        manifest=_read(folder / "manifest.json", _read_object, None),
        packages=_read_packages(folder),
        measures=read_measures(folder),
        absent={
            name: shows
            for name, shows in (_SHOWS | _list_expected(logs)).items()
            if not (folder / name).is_file()
        },
    )


def _read(path: Path, read: Callable[[Path], T], default: T) -> T:
    return read(path) if path.is_file() else default


def _read_logs(folder: Path) -> list[TrainingLog]:
    """Return the logs of all steps that have one, the usual steps in their order."""
    names = [path.parent.name for path in folder.glob("[!.]*/metrics.jsonl")]
    return [
        TrainingLog(name, tuple(read_jsonl(folder / name / "metrics.jsonl")))
        for name in sorted(names, key=rank_policy)
    ]


def _list_expected(logs: Mapping[str, TrainingLog]) -> dict[str, str]:
    """Return what training leaves: the usual logs, unless all are of other steps, and gates."""
    is_usual = not logs or any(name in logs for name in _USUAL)
    expected = {f"{name}/metrics.jsonl": shows for name, shows in _USUAL.items() if is_usual}
    gates = {
        f"{name}/gate.json": "what the step-0 gate measured"
        for name, log in logs.items()
        if log.is_rewarded
    }
    return expected | gates


def _read_object(path: Path) -> dict[str, Any]:
    value = _read_json(path)
    if not isinstance(value, dict):
        raise EvaluationError(f"{path} is not a JSON object")
    return value  # pyright: ignore[reportUnknownVariableType]


def _read_warnings(folder: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the rows of every step's warnings.json: ``{"level": ..., "message": ...}``."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for path in sorted(folder.glob("*/warnings.json")):
        rows: Any = _read_json(path)
        if not isinstance(rows, list):
            raise EvaluationError(f"{path} is not a JSON list")
        name = path.relative_to(folder).as_posix()
        found += [(name, row) for row in rows]  # pyright: ignore[reportUnknownVariableType]
    return found


def _read_packages(folder: Path) -> dict[str, Mapping[str, str]]:
    """Return the versions of the libraries that each finished step was made with, by step."""
    markers = {path.parent.name: _read_object(path) for path in folder.glob("[!.]*/step.json")}
    return {step: markers[step].get("packages", {}) for step in sorted(markers)}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvaluationError(
            f"cannot read {path} ({error})", fix="run the step that writes it again"
        ) from error
