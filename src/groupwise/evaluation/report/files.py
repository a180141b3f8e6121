"""The files of a run that a report is made of, each read if it is there.

A file that is not there is remembered with what it would have shown; a file that cannot be
parsed is an error, because a report without it would look complete.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from groupwise.core import EvaluationError, check_records, read_json, read_jsonl, read_manifest
from groupwise.evaluation.conditions import read_measures
from groupwise.evaluation.facts import find_manifests
from groupwise.evaluation.looks import state_looks
from groupwise.evaluation.metrics import Metric, read_metrics
from groupwise.evaluation.monitor import History
from groupwise.evaluation.page import Statement
from groupwise.evaluation.paired import PairedComparison, read_comparisons
from groupwise.evaluation.policies import Policies, read_policies
from groupwise.evaluation.predictions import (
    Measure,
    Prediction,
    Prompts,
    choose_headline,
    find_measure,
    read_predictions,
    read_prompts,
)
from groupwise.evaluation.report.sections import Section, read_sections

T = TypeVar("T")
_EXPECTED = (
    "manifest.json",
    "evaluate/predictions.jsonl",
    "evaluate/metrics.json",
    "evaluate/comparisons.json",
    "audit/audit.json",
)


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The contents of a run's files; what is not there is empty or None.

    ``logs`` are those of every step that logged rows, whatever its name; ``on_policy`` and
    ``judges`` are theirs, and so is ``hardware``: of the start of the run in which the step ended.
    ``verbs`` are the commands that the run can be given to. ``durations`` are the seconds of
    finished steps. ``looks`` say how often the splits were looked at. ``absent`` are the files
    that are not there.
    """

    folder: Path
    predictions: list[Prediction]
    prompts: Prompts
    verbs: Sequence[str]
    metrics: list[Metric]
    comparisons: list[PairedComparison]
    sections: tuple[Section, ...]
    logs: dict[str, History]
    warnings: list[tuple[str, Mapping[str, Any]]]
    audit: Mapping[str, Any] | None
    reward_audit: Mapping[str, Any] | None
    on_policy: Mapping[str, Mapping[str, Any]]
    judges: Mapping[str, Mapping[str, Any]]
    manifest: Mapping[str, Any] | None
    packages: Mapping[str, Mapping[str, str]]
    durations: Mapping[str, float]
    hardware: Mapping[str, Mapping[str, Any]]
    policies: Policies
    measures: tuple[Measure, ...]
    looks: tuple[Statement, ...]
    absent: tuple[str, ...]

    @property
    def headline(self) -> Measure:
        """What heads the report."""
        return choose_headline({one.measure for one in self.metrics}, self.measures)

    def define(self, name: str) -> Measure:
        """Return a measure; one that nobody defined is better when it is higher."""
        return find_measure(name, self.measures) or Measure(name, name, name)


def read_run_files(folder: Path) -> RunFiles:
    """Read what is there of a run.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        RunError: if a file is not what its step wrote.
    """
    if not folder.is_dir():
        raise EvaluationError(f"there is no run at {folder}", fix="give the folder of a run")
    check_records(folder)
    policies = read_policies(folder)
    logs = _read_logs(folder, policies)
    markers = {path.parent.name: _read_object(path) for path in folder.glob("[!.]*/step.json")}
    metrics = _read(folder / "evaluate/metrics.json", read_metrics, [])
    return RunFiles(
        folder=folder,
        predictions=_read(folder / "evaluate/predictions.jsonl", read_predictions, []),
        prompts=_read(folder / "evaluate/prompts.json", read_prompts, Prompts()),
        verbs=_read(folder / "evaluate/verbs.json", _read_list, ()),
        metrics=metrics,
        comparisons=_read(folder / "evaluate/comparisons.json", read_comparisons, []),
        sections=_read(folder / "evaluate/sections.json", read_sections, ()),
        logs=logs,
        warnings=_read_warnings(folder),
        audit=_read(folder / "audit/audit.json", _read_object, None),
        reward_audit=_read(folder / "audit_rewards/audit.json", _read_object, None),
        on_policy={
            name: _read_object(folder / name / "on_policy.json")
            for name in logs
            if (folder / name / "on_policy.json").is_file()
        },
        judges={name: _read(folder / name / "judge.json", _read_object, {}) for name in logs},
        manifest=_read(folder / "manifest.json", read_manifest, None),
        packages={step: markers[step].get("packages", {}) for step in sorted(markers)},
        durations={k: found["duration_s"] for k, found in markers.items() if "duration_s" in found},
        hardware=dict(_read_hardware(folder, {name: markers.get(name, {}) for name in logs})),
        policies=policies,
        measures=read_measures(folder),
        looks=tuple(_state_looks(folder, metrics)),
        absent=tuple(
            name
            for name in (*_EXPECTED, *_list_expected(logs, policies))
            if not (folder / name).is_file()
        ),
    )


def _read(path: Path, read: Callable[[Path], T], default: T) -> T:
    return read(path) if path.is_file() else default


def _read_logs(folder: Path, policies: Policies) -> dict[str, History]:
    """Return the logs of all steps that have rows, in the order of what they trained."""
    names = sorted(path.parent.name for path in folder.glob("[!.]*/metrics.jsonl"))
    logs = {
        name: History(read_jsonl(folder / name / "metrics.jsonl")) for name in policies.sort(names)
    }
    return {name: log for name, log in logs.items() if not log.is_empty}


def _list_expected(logs: Mapping[str, History], policies: Policies) -> Iterator[str]:
    """Yield what trainings leave: logs, and the on_policy of those on rewards."""
    trained = (one.step for one in policies.listed if one.kind == "trained")
    yield from (f"{name}/metrics.jsonl" for name in trained)
    yield from (f"{name}/on_policy.json" for name, log in logs.items() if log.is_rewarded)


def _state_looks(folder: Path, metrics: Sequence[Metric]) -> Iterator[Statement]:
    for items in sorted({one.split_digest for one in metrics}):
        yield from state_looks(folder, items)


def _read_object(path: Path) -> dict[str, Any]:
    return read_json(path, dict)


def _read_list(path: Path) -> list[Any]:
    return read_json(path, list)


def _read_warnings(folder: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the rows of every step's warnings.json: ``{"level": ..., "message": ...}``."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for path in sorted(folder.glob("*/warnings.json")):
        name = path.relative_to(folder).as_posix()
        found += [(name, row) for row in read_json(path, list)]
    return found


def _read_hardware(
    folder: Path, markers: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each step with the machine that it ended on, as far as that was recorded."""
    if (folder / "manifest.json").is_file():
        for step in (name for name, found in markers.items() if "finished_at" in found):
            yield step, find_manifests(folder, (step,))[0].get("hardware", {})
