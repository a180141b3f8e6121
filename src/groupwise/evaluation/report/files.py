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
from groupwise.evaluation.predictions import Prediction, read_predictions
from groupwise.evaluation.report.content import TrainingLog
from groupwise.evaluation.report.sections import Section, read_sections

T = TypeVar("T")
TRAINING_STEPS = ("sft", "sft_same_labels", "grpo")
_SHOWS = {
    "manifest.json": "the configuration, seeds and versions",
    "evaluate/predictions.jsonl": "confusion, reliability and mistakes",
    "evaluate/metrics.json": "the headline table",
    "evaluate/comparisons.json": "the paired comparisons",
    "audit/audit.json": "the data audit",
    "sft/metrics.jsonl": "the loss of the supervised warm-up",
    "grpo/metrics.jsonl": "the learning curve",
    "grpo/gate.json": "what the step-0 gate measured",
}


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The contents of a run's files; what is not there is empty or None."""

    folder: Path
    predictions: list[Prediction]
    metrics: list[Metric]
    comparisons: list[PairedComparison]
    sections: tuple[Section, ...]
    logs: dict[str, TrainingLog]
    warnings: list[tuple[str, Mapping[str, Any]]]
    audit: Mapping[str, Any] | None
    reward_audit: Mapping[str, Any] | None
    gate: Mapping[str, Any] | None
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
    logs = {name: _read_log(folder, name) for name in TRAINING_STEPS}
    return RunFiles(
        folder=folder,
        predictions=_read(folder / "evaluate/predictions.jsonl", read_predictions, []),
        metrics=_read(folder / "evaluate/metrics.json", read_metrics, []),
        comparisons=_read(folder / "evaluate/comparisons.json", read_comparisons, []),
        sections=_read(folder / "evaluate/sections.json", read_sections, ()),
        logs={name: log for name, log in logs.items() if log.rows},
        warnings=_read_warnings(folder),
        audit=_read(folder / "audit/audit.json", _read_object, None),
        reward_audit=_read(folder / "audit_rewards/audit.json", _read_object, None),
        gate=_read(folder / "grpo/gate.json", _read_object, None),
        judges={name: _read(folder / name / "judge.json", _read_object, {}) for name in logs},
        manifest=_read(folder / "manifest.json", _read_object, None),
        packages=_read_packages(folder),
        measures=read_measures(folder),
        absent={name: shows for name, shows in _SHOWS.items() if not (folder / name).is_file()},
    )


def _read(path: Path, read: Callable[[Path], T], default: T) -> T:
    return read(path) if path.is_file() else default


def _read_log(folder: Path, name: str) -> TrainingLog:
    return TrainingLog(name, tuple(_read(folder / name / "metrics.jsonl", read_jsonl, [])))


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
