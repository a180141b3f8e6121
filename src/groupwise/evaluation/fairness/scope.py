"""What of a run stands behind one policy: the starts that count, and steps, data and settings.

A manifest is rewritten at every start, also at one that goes no further than the first step. So
what counts is the row of ``history.jsonl`` that was in force when a step ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel, TypeAdapter

from groupwise.core import (
    Effect,
    EvaluationError,
    check_sealed,
    digest_json,
    read_json,
    read_jsonl,
    read_manifest,
)
from groupwise.evaluation.policies import Policies, RunPolicy
from groupwise.evaluation.predictions import parse_as, parse_open

EVALUATE = "evaluate"
_AGAIN = "finish it with the command that started it, and compare then"
_TIME = TypeAdapter(AwareDatetime)


class _Manifest(BaseModel, extra="allow"):
    """What is read of a manifest; a key may be missing, others are kept as they are."""

    config: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    packages: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    metric_versions: dict[str, Any] = {}
    plan: dict[str, dict[str, list[str]]] = {}
    effects: dict[str, Effect] = {}


Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which parts of a run stand behind a policy.

    Attributes:
        chain: the policy behind all those that it was trained from; empty where the run does not
            say.
        reads: by step behind the policy, ``evaluate`` among them: paths of the config; None where
            the run does not say.
        uses: by step of the run: the steps that it uses.
        effects: of settings that do not simply count, by path.
    """

    chain: tuple[RunPolicy, ...] = ()
    reads: Mapping[str, Sequence[str]] | None = None
    uses: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    effects: Mapping[str, Effect] = field(default_factory=dict[str, Effect])

    @property
    def steps(self) -> tuple[str, ...] | None:
        """Its training steps in order; None where the run does not say."""
        return tuple(one.step for one in self.chain if one.step) if self.chain else None

    def is_behind(self, key: str) -> bool:
        """Return whether a step behind the policy reads a setting, or may read it."""
        reads = None if self.reads is None else [p for paths in self.reads.values() for p in paths]
        return reads is None or _covers(reads, key)

    def prepares(self, key: str) -> bool:
        """Return whether a step that makes data, and trains nothing, reads a setting."""
        making = set(self.reads or ()) - {EVALUATE, *(self.steps or ())}
        return _covers([path for step in making for path in (self.reads or {})[step]], key)

    def list_settings(self, keys: Iterable[str], step: str, *, earlier: bool = False) -> list[str]:
        """Return the settings among ``keys`` that a step reads.

        Args:
            keys: of the config.
            step: whose.
            earlier: also those of the steps that it uses, directly or not.
        """
        steps = _close(self.uses, [step]) if earlier else {step}
        paths = [path for name in steps for path in (self.reads or {}).get(name, ())]
        return [key for key in keys if _covers(paths, key)]


def _covers(paths: Iterable[str], key: str) -> bool:
    """Return whether a setting is one of the paths, in one of them, or a section with one."""
    return any(
        key == path or key.startswith(f"{path}.") or path.startswith(f"{key}.") for path in paths
    )


def _close(
    uses: Mapping[str, Sequence[str]], steps: Iterable[str], *, without: Iterable[str] = ()
) -> set[str]:
    """Return steps and all that they use, directly or not; ``without`` are not entered."""
    left, found = list(steps), set(without)
    while left:
        step = left.pop()
        if step not in found:
            found.add(step)
            left += uses.get(step, ())
    return found - set(without)


def find_scope(manifest: Manifest, policies: Policies, name: str) -> Scope:
    """Return what stands behind a policy.

    That is what its training steps use, and what the evaluation uses beside the trainings of other
    policies.

    Args:
        manifest: in force when the run was evaluated.
        policies: of the run.
        name: of the policy.
    """
    plan: Mapping[str, Mapping[str, Sequence[str]]] = manifest.get("plan", {})
    effects: Mapping[str, Effect] = manifest.get("effects", {})
    chain = policies.list_ancestors(name)
    if any(one.kind == "unknown" for one in chain):
        return Scope(effects=effects)
    uses = {step: row.get("uses", ()) for step, row in plan.items()}
    own = {one.step for one in chain if one.step}
    others = {one.step for one in policies.listed if one.step} - own
    behind = _close(uses, [*own, EVALUATE], without=others - _close(uses, own))
    reads = {step: plan[step].get("reads", ()) for step in plan if step in behind}
    return Scope(chain, reads if plan else None, uses, effects)


def read_finished(folder: Path) -> Manifest:
    """Return the manifest in force when a run was evaluated.

    A step that was done again with the outputs that the evaluation used does not age it. Of a run
    that did not record its plan, all trainings are looked at.

    Raises:
        EvaluationError: with the step that is not finished, if the evaluation is not, or is older
            than a step that it depends on; or if a file is damaged.
    """
    if not (folder / "manifest.json").is_file():
        raise EvaluationError(f"{folder} holds no run", fix="give the folder of a finished run")
    evaluated_at = _read_finish(folder, EVALUATE)
    if evaluated_at is None:
        begun = sorted(path.parent.name for path in folder.glob("[!.]*/started.json"))
        where = f" (it is at the step {begun[0]})" if begun else ""
        raise EvaluationError(f"the run {folder} is not evaluated yet{where}", fix=_AGAIN)
    manifest = find_manifests(folder, ())[-1]
    plan = manifest.get("plan", {})
    known = _close({name: row.get("uses", ()) for name, row in plan.items()}, [EVALUATE])
    trained = {path.parent.name for path in folder.glob("[!.]*/metrics.jsonl")}
    used = read_marker(folder, EVALUATE).get("uses", {})
    for step in sorted((known if plan else trained) - {EVALUATE}):
        finished_at = _read_finish(folder, step)
        is_later = finished_at is not None and finished_at > evaluated_at
        is_other = is_later and used.get(step) != digest_json(
            read_marker(folder, step).get("outputs", {})
        )
        if (folder / step).is_dir() and (finished_at is None or is_other):
            raise EvaluationError(
                f"the evaluation in {folder} is older than its step {step}, which is being redone",
                fix=_AGAIN,
            )
    return manifest


def find_manifests(folder: Path, steps: Sequence[str]) -> list[Manifest]:
    """Return the manifests that were in force when the steps and the evaluation ended.

    Each is there once; that of the evaluation is the last.

    Raises:
        DataError: if a file is not JSON.
        EvaluationError: if one has another shape.
        RunError: if one was changed since.
    """
    history, single = folder / "history.jsonl", folder / "manifest.json"
    rows = read_jsonl(history) if history.is_file() else []
    for row in rows:
        check_sealed(row, history)
    rows = [*rows, read_manifest(single)][: len(rows) or 1]
    starts: list[Manifest] = [parse_open(row, _Manifest, single) for row in rows]
    found: list[Manifest] = []
    for step in (*steps, EVALUATE):
        finished_at = _read_finish(folder, step)
        chosen = [
            row
            for row in starts
            if finished_at and parse_as(row.get("started_at"), _TIME, single) <= finished_at
        ]
        manifest = (chosen or starts[:1])[-1]
        found = [*(one for one in found if one is not manifest), manifest]
    return found


def read_marker(folder: Path, step: str) -> Mapping[str, Any]:
    """Return what a finished step left of itself: times and digests; empty without."""
    path = folder / step / "step.json"
    return read_json(path, dict) if path.is_file() else {}


def _read_finish(folder: Path, step: str) -> datetime | None:
    marker = read_marker(folder, step)
    return (
        parse_as(marker.get("finished_at"), _TIME, folder / step / "step.json") if marker else None
    )
