"""Which start of a run its evaluation belongs to, and whether it is finished and not stale.

A manifest is rewritten at every start, also at one that goes no further than the first step. So
what counts is the row of ``history.jsonl`` that was in force when a step ended.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from groupwise.core import DataError, Effect, EvaluationError, digest_json, read_json, read_jsonl
from groupwise.evaluation.fairness.scope import EVALUATE, Plan, close

_SECTIONS = ("config", "inputs", "packages", "hardware", "metric_versions", "plan", "effects")
_DONE = "step.json"
_PLAN = TypeAdapter(dict[str, dict[str, list[str]]])
_EFFECTS = TypeAdapter(dict[str, Effect])
T = TypeVar("T")
_AGAIN = "finish it with the command that started it, and compare then"


def check_finished(folder: Path) -> tuple[Plan, Mapping[str, Effect]]:
    """Refuse a run whose evaluation is not finished, or older than a step that it depends on.

    A step that was done again with the outputs that the evaluation used does not age it. Of a run
    that did not record its plan, all trainings are looked at.

    Returns:
        The plan of the run and the effects of its settings; empty if it did not record them.

    Raises:
        EvaluationError: with the step that is not finished, or if a file is damaged.
    """
    if not (folder / "manifest.json").is_file():
        raise EvaluationError(f"{folder} holds no run", fix="give the folder of a finished run")
    evaluated_at = _read_finish(folder, EVALUATE)
    if evaluated_at is None:
        begun = sorted(path.parent.name for path in folder.glob("[!.]*/started.json"))
        where = f" (it is at the step {begun[0]})" if begun else ""
        raise EvaluationError(f"the run {folder} is not evaluated yet{where}", fix=_AGAIN)
    manifest = find_manifests(folder, ())[-1]
    plan = _read(manifest, "plan", _PLAN, folder)
    known = close({name: row.get("uses", ()) for name, row in plan.items()}, [EVALUATE])
    trained = {path.parent.name for path in folder.glob("[!.]*/metrics.jsonl")}
    used = read_json(folder / EVALUATE / _DONE, dict).get("uses", {})
    for step in sorted(known if plan else trained):
        if step == EVALUATE or not (folder / step).is_dir():
            continue
        finished_at = _read_finish(folder, step)
        is_later = finished_at is not None and finished_at > evaluated_at
        is_other = is_later and used.get(step) != _digest_outputs(folder, step)
        if finished_at is None or is_other:
            raise EvaluationError(
                f"the evaluation in {folder} is older than its step {step}, which is being redone",
                fix=_AGAIN,
            )
    return plan, _read(manifest, "effects", _EFFECTS, folder)


def _read(manifest: Mapping[str, Any], name: str, parser: TypeAdapter[T], folder: Path) -> T:
    try:
        return parser.validate_python(manifest.get(name, {}))
    except ValidationError as error:
        got = f"{name} {manifest[name]!r}"
        raise EvaluationError(f"the manifest of {folder} is damaged", got=got) from error


def find_manifests(folder: Path, steps: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the manifests that were in force when the steps and the evaluation ended.

    Each is there once; that of the evaluation is the last.

    Raises:
        EvaluationError: if a file is damaged.
    """
    starts = _read_starts(folder)
    found: list[Mapping[str, Any]] = []
    for step in (*steps, EVALUATE):
        finished_at = _read_finish(folder, step)
        chosen = [row for row in starts if finished_at and _read_start(row) <= finished_at]
        manifest = (chosen or starts[:1])[-1]
        found = [*(one for one in found if one is not manifest), manifest]
    return found


def read_duration_s(folder: Path, step: str) -> float | None:
    """Return the seconds of a step's last attempt."""
    path = folder / step / "step.json"
    return read_json(path, dict).get("duration_s") if path.is_file() else None


def _digest_outputs(folder: Path, step: str) -> str:
    return digest_json(read_json(folder / step / _DONE, dict).get("outputs", {}))


def _read_starts(folder: Path) -> list[Mapping[str, Any]]:
    path = folder / "history.jsonl"
    try:
        starts: list[Mapping[str, Any]] = [*read_jsonl(path)] if path.is_file() else []
    except DataError as error:
        raise EvaluationError(f"{path} is damaged ({error})", fix="restore or delete it") from error
    starts = starts or [read_json(folder / "manifest.json", dict)]
    for start in starts:
        for name in _SECTIONS:
            if not isinstance(start.get(name, {}), dict):
                raise EvaluationError(
                    f"the manifest of {folder} is damaged", got=f"{name} {start[name]!r}"
                )
    return starts


def _read_start(row: Mapping[str, Any]) -> datetime:
    return _parse_time(row.get("started_at"), "the start of a run")


def _read_finish(folder: Path, step: str) -> datetime | None:
    path = folder / step / "step.json"
    if not path.is_file():
        return None
    return _parse_time(read_json(path, dict).get("finished_at"), str(path))


def _parse_time(value: object, where: str) -> datetime:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise EvaluationError(
            f"{where} is damaged", got=f"the time {value!r}", fix="run the step again"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)
