"""Facts: what is known of a run and one of its policies, flat, so that runs can be compared.

A fact has an aspect (what it is about) and a key. Of the steps of a run only those behind the
policy count, and of its starts those that were in force when these steps ended: a manifest is
rewritten at every start. What the policy answered comes along, item by item. Nothing is judged.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    drop_folders,
    flatten_settings,
    read_json,
    read_jsonl,
    read_manifest,
)
from groupwise.evaluation.conditions import read_recorded
from groupwise.evaluation.predictions import (
    Prediction,
    RunPolicy,
    group_by_policy,
    parse_as,
    parse_open,
    read_as,
    read_policies,
    read_predictions,
)

EVALUATE = "evaluate"
_DIGESTS = ("template", "tokenizer", "base_weights")
_WHOLE: Mapping[str, str] = {**dict.fromkeys(_DIGESTS, "digest"), "normalizer": "version"}
_STRUCTURE = ("data", "prompts", "measures")
_OF_START = {
    "recipe/name": "recipe",
    "seeds/seed": "seed",
    "accepted/findings": "accepted_findings",
    "time/started_at": "started_at",
    "command/line": "command",
}
_OF_ALL_STARTS = {"packages/python": "python", "code/git_revision": "git_revision"}
_LEFT_BY_TRAINING = ("metrics.jsonl", "resolved.json", "trainable.json")
_JUDGED = ("version", "no_verdict_rate", "cache_hit_rate")
_ROWS = TypeAdapter(list[dict[str, Any]])
_TIME = TypeAdapter(AwareDatetime)
Manifest = Mapping[str, Any]


class _Manifest(BaseModel, extra="allow"):
    """What is read of a manifest; a key may be missing, others are kept as they are."""

    config: dict[str, Any] = {}
    inputs: dict[str, Any] = {}
    packages: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    metric_versions: dict[str, Any] = {}
    plan: dict[str, dict[str, list[str]]] = {}
    effects: dict[str, Effect] = {}


@dataclass(frozen=True, slots=True)
class Scope:
    """Which parts of a run stand behind a policy."""

    # The policy behind all those that it was trained from; empty where the run does not say.
    chain: tuple[RunPolicy, ...] = ()
    # Paths of the config by step behind the policy, ``evaluate`` among them; None: not told.
    reads: Mapping[str, Sequence[str]] | None = None
    # By step of the run: the steps that it uses.
    uses: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    # Of settings that do not simply count, by path.
    effects: Mapping[str, Effect] = field(default_factory=dict[str, Effect])

    @property
    def steps(self) -> tuple[str, ...] | None:
        """Its training steps in order; None where the run does not say."""
        return tuple(one.step for one in self.chain if one.step) if self.chain else None

    def is_behind(self, key: str) -> bool:
        """Return whether a step behind the policy reads a setting, or may read it."""
        return self.reads is None or _covers((p for ps in self.reads.values() for p in ps), key)

    def prepares(self, key: str) -> bool:
        """Return whether a step that makes data, and trains nothing, reads a setting."""
        making = set(self.reads or ()) - {EVALUATE, *(self.steps or ())}
        return _covers([path for step in making for path in (self.reads or {})[step]], key)

    def list_settings(self, keys: Iterable[str], step: str, *, earlier: bool = False) -> list[str]:
        """Return those of the settings that a step, or ``earlier`` one that it uses, reads."""
        steps = _close(self.uses, [step]) if earlier else {step}
        paths = [path for name in steps for path in (self.reads or {}).get(name, ())]
        return [key for key in keys if _covers(paths, key)]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One system: a run and one of its policies."""

    name: str  # ``FOLDER:POLICY``; ``dataclasses.replace`` gives another
    folder: Path
    policy: str  # whose answers are compared
    facts: Mapping[str, Any]  # JSON values by ``aspect/key``; what is not recorded is not there
    answers: Mapping[str, Mapping[str, Prediction]] = field(  # by split and item
        default_factory=dict[str, Mapping[str, Prediction]]
    )
    scope: Scope = field(default_factory=Scope)


def read_facts(
    folder: Path, *, policy: str | None = None, predictions: Sequence[Prediction] | None = None
) -> RunFacts:
    """Read what is known of a finished run.

    Without a ``policy`` it is the last one of the run; ``predictions`` are those of the run, if
    they have been read already.

    Raises:
        EvaluationError: if the run is not evaluated, has no such policy or answered an item twice,
            or if a file is damaged.
        DataError: if a file cannot be read.
    """
    conditions, manifest = read_recorded(folder), read_finished(folder)
    policies, rows = read_policies(folder), predictions
    if rows is None:
        rows = read_predictions(folder / EVALUATE / "predictions.jsonl")
    names = policies.sort(row.policy for row in rows)
    if not names:
        raise EvaluationError(f"{folder} holds no predictions", fix="evaluate it again")
    name = policies.choose_last(names) if policy is None else policy
    if name not in names:
        what = f"the run {folder} has no policy {policy!r}"
        raise EvaluationError(what, expected=f"one of {', '.join(names)}")
    answers = {
        split: {row.example_id: row for row in items}
        for (split, _), items in group_by_policy(r for r in rows if r.policy == name).items()
    }
    plan: Mapping[str, Mapping[str, Sequence[str]]] = manifest.get("plan", {})
    chain, effects = policies.list_ancestors(name), manifest.get("effects", {})
    if any(one.kind == "unknown" for one in chain):
        scope = Scope(effects=effects)
    else:
        # What its trainings use, and the evaluation beside the trainings of other policies.
        uses = {step: row.get("uses", ()) for step, row in plan.items()}
        own = {one.step for one in chain if one.step}
        others = {one.step for one in policies.listed if one.step} - own
        behind = _close(uses, [*own, EVALUATE], without=others - _close(uses, own))
        reads = {step: plan[step].get("reads", ()) for step in plan if step in behind}
        scope = Scope(chain, reads if plan else None, uses, effects)
    facts = {
        "policy/name": name,
        **dict(_list_manifest_facts(folder, scope, has_conditions=conditions is not None)),
        **dict(_list_condition_facts(conditions, scope, answers)),
        **dict(_list_step_facts(folder, scope)),
    }
    return RunFacts(f"{folder}:{name}", folder, name, facts, answers, scope)


def _list_manifest_facts(
    folder: Path, scope: Scope, *, has_conditions: bool
) -> Iterator[tuple[str, Any]]:
    """Yield what the manifests in force say: config, seed, inputs, packages, machine."""
    manifests = find_manifests(folder, scope.steps or ())
    last = manifests[-1]
    yield from flatten_settings(
        drop_folders({k: v for k, v in last.get("config", {}).items() if k != "seed"}), "config/"
    )
    yield from flatten_settings(last.get("inputs", {}), "inputs/")
    if not has_conditions:  # these say what was measured with
        yield from flatten_settings(last.get("metric_versions", {}), "metrics/")
    for aspect in ("packages", "hardware"):
        for key in sorted({key for manifest in manifests for key in manifest.get(aspect, {})}):
            yield f"{aspect}/{key}", _join([m.get(aspect, {}).get(key) for m in manifests])
    yield from ((fact, last[name]) for fact, name in _OF_START.items() if name in last)
    for fact, name in _OF_ALL_STARTS.items():
        if any(name in manifest for manifest in manifests):
            yield fact, _join([manifest.get(name) for manifest in manifests])


def _join(values: Sequence[Any]) -> Any:
    """Return the one value of all starts, or the list of those that there were."""
    found: list[Any] = []
    for value in values:
        found += [value] if value not in found else []
    return found[0] if len(found) == 1 else found


def _list_condition_facts(
    conditions: Mapping[str, Any] | None, scope: Scope, evaluated: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield what the conditions say of the policy's own steps; nothing without them."""
    if conditions is None:
        return
    yield "conditions/file", "recorded"
    for name in sorted(set(conditions) - set(_STRUCTURE)):
        value = conditions[name]
        if name in _WHOLE:
            yield f"{name}/{_WHOLE[name]}", value
        else:
            whole: Any = value if isinstance(value, dict) else {"value": value}
            yield from flatten_settings(whole, f"{name}/")
    known = {*evaluated, *(data for one in scope.chain for data in one.trained_on)}
    for aspect in ("data", "prompts"):
        for key, value in conditions.get(aspect, {}).items():
            if not scope.chain or key in known:
                yield f"{aspect}/{key}", value


def _list_step_facts(folder: Path, scope: Scope) -> Iterator[tuple[str, Any]]:
    """Yield the steps behind the policy, their budgets, and what the files of its trainings say."""
    steps = scope.steps
    if steps is not None:
        yield "policies/file", "recorded"
        yield "lineage/steps", list(steps)
        for one in scope.chain:
            if one.step:
                yield from flatten_settings(one.budget, f"budget/{one.step}.")
    else:
        found = [path for name in _LEFT_BY_TRAINING for path in folder.glob(f"[!.]*/{name}")]
        steps = tuple(sorted({path.parent.name for path in found}))
    for step in steps:
        paths = (folder / step / name for name in ("resolved.json", "judge.json"))
        resolved, judged = (read_json(path, dict) if path.exists() else {} for path in paths)
        yield from ((f"resolved/{step}.{name}", value) for name, value in resolved.items())
        yield from ((f"judge/{step}.{name}", judged[name]) for name in _JUDGED if name in judged)
        trainable = folder / step / "trainable.json"
        if trainable.is_file():
            counts = (int(row.get("num_trainable", 0)) for row in read_as(trainable, _ROWS))
            yield f"trainable/{step}.num_trainable", sum(counts)
        if "duration_s" in (marker := _read_marker(folder, step)):
            yield f"time/{step}.duration_s", marker["duration_s"]


def _covers(paths: Iterable[str], key: str) -> bool:
    """Return whether a setting is one of the paths, in one of them, or a section with one."""
    return any(f"{key}.".startswith(f"{path}.") or path.startswith(f"{key}.") for path in paths)


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


def read_finished(folder: Path) -> Manifest:
    """Return the manifest in force when a run was evaluated; refuse one unfinished or too old.

    A step that was done again with the outputs that the evaluation used does not age it. Of a run
    that did not record its plan, all trainings are looked at.
    """
    again = "finish it with the command that started it, and compare then"
    if not (folder / "manifest.json").is_file():
        raise EvaluationError(f"{folder} holds no run", fix="give the folder of a finished run")
    evaluated_at = _read_finish(folder, EVALUATE)
    if evaluated_at is None:
        begun = sorted(path.parent.name for path in folder.glob("[!.]*/started.json"))
        where = f" (it is at the step {begun[0]})" if begun else ""
        raise EvaluationError(f"the run {folder} is not evaluated yet{where}", fix=again)
    manifest = find_manifests(folder, ())[-1]
    plan = manifest.get("plan", {})
    known = _close({name: row.get("uses", ()) for name, row in plan.items()}, [EVALUATE])
    trained = {path.parent.name for path in folder.glob("[!.]*/metrics.jsonl")}
    used = _read_marker(folder, EVALUATE).get("uses", {})
    for step in sorted((known if plan else trained) - {EVALUATE}):
        finished_at = _read_finish(folder, step)
        is_other = finished_at is not None and finished_at > evaluated_at
        if is_other:
            is_other = used.get(step) != digest_json(_read_marker(folder, step).get("outputs", {}))
        if (folder / step).is_dir() and (finished_at is None or is_other):
            older = f"the evaluation in {folder} is older than its step {step}"
            raise EvaluationError(f"{older}, which is being redone", fix=again)
    return manifest


def find_manifests(folder: Path, steps: Sequence[str]) -> list[Manifest]:
    """Return the manifests, each once, in force when the steps and last the evaluation ended."""
    history, single = folder / "history.jsonl", folder / "manifest.json"
    rows = read_jsonl(history) if history.is_file() else []
    for row in rows:
        check_sealed(row, history)
    rows = [*rows, read_manifest(single)][: len(rows) or 1]
    starts: list[Manifest] = [parse_open(row, _Manifest, single) for row in rows]
    found: list[Manifest] = []
    for step in (*steps, EVALUATE):
        end = _read_finish(folder, step)
        begun = [r for r in starts if end and parse_as(r.get("started_at"), _TIME, single) <= end]
        manifest = (begun or starts[:1])[-1]
        found = [*(one for one in found if one is not manifest), manifest]
    return found


def _read_marker(folder: Path, step: str) -> Mapping[str, Any]:
    """Return what a finished step left of itself: times and digests; empty without."""
    path = folder / step / "step.json"
    return read_json(path, dict) if path.is_file() else {}


def _read_finish(folder: Path, step: str) -> datetime | None:
    marker, where = _read_marker(folder, step), folder / step / "step.json"
    return parse_as(marker.get("finished_at"), _TIME, where) if marker else None
