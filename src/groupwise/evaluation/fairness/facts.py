"""Facts: what is known of a run and one of its policies, flat, so that runs can be compared.

A fact has an aspect (what it is about) and a key. Of the steps of a run only those behind the
policy count. What one policy answered comes along, item by item. Nothing is judged here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from groupwise.core import EvaluationError, drop_folders, flatten_settings
from groupwise.evaluation.fairness.conditions import read_if_there, read_recorded
from groupwise.evaluation.fairness.scope import (
    Scope,
    find_manifests,
    find_scope,
    read_finished,
    read_marker,
)
from groupwise.evaluation.policies import Policies, read_policies
from groupwise.evaluation.predictions import Prediction, group_by_policy, read_as, read_predictions

_WHOLE = {
    "template": "digest",
    "tokenizer": "digest",
    "base_weights": "digest",
    "normalizer": "version",
}
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
Facts = Iterator[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One system: a run and one of its policies.

    Attributes:
        name: what it is called here, ``FOLDER:POLICY``; ``dataclasses.replace`` gives another.
        folder: the run.
        policy: whose answers are compared.
        facts: JSON values by ``aspect/key``; what is not recorded is not there.
        answers: its predictions by split and item.
        scope: what of the run stands behind the policy.
    """

    name: str
    folder: Path
    policy: str
    facts: Mapping[str, Any]
    answers: Mapping[str, Mapping[str, Prediction]] = field(
        default_factory=dict[str, Mapping[str, Prediction]]
    )
    scope: Scope = field(default_factory=Scope)


def read_facts(
    folder: Path,
    *,
    policy: str | None = None,
    predictions: Sequence[Prediction] | None = None,
) -> RunFacts:
    """Read what is known of a run.

    Args:
        folder: a finished run.
        policy: whose answers are compared; None: the last one of the run.
        predictions: those of ``evaluate/predictions.jsonl``, if they have been read already.

    Raises:
        EvaluationError: if the run is not evaluated, has no such policy or answered an item twice,
            or if a file is damaged.
        DataError: if a file cannot be read.
    """
    conditions = read_recorded(folder)
    manifest = read_finished(folder)
    policies = read_policies(folder)
    rows = predictions
    if rows is None:
        rows = read_predictions(folder / "evaluate" / "predictions.jsonl")
    name = _choose_policy(folder, rows, policies, policy)
    answers = {
        split: {row.example_id: row for row in items}
        for (split, _), items in group_by_policy(r for r in rows if r.policy == name).items()
    }
    scope = find_scope(manifest, policies, name)
    facts = {
        "policy/name": name,
        **dict(_list_manifest_facts(folder, scope, has_conditions=conditions is not None)),
        **dict(_list_condition_facts(conditions, scope, answers)),
        **dict(_list_policy_facts(scope)),
        **dict(_list_step_facts(folder, scope)),
    }
    return RunFacts(f"{folder}:{name}", folder, name, facts, answers, scope)


def _choose_policy(
    folder: Path, rows: Sequence[Prediction], policies: Policies, policy: str | None
) -> str:
    names = policies.sort(row.policy for row in rows)
    if not names:
        raise EvaluationError(f"{folder} holds no predictions", fix="evaluate it again")
    if policy is None:
        return policies.choose_last(names)
    if policy not in names:
        raise EvaluationError(
            f"the run {folder} has no policy {policy!r}", expected=f"one of {', '.join(names)}"
        )
    return policy


def _list_manifest_facts(folder: Path, scope: Scope, *, has_conditions: bool) -> Facts:
    """Yield what the manifests in force say: config, seed, inputs, packages, machine.

    Versions of metrics count only without conditions, which say what was measured with.
    """
    manifests = find_manifests(folder, scope.steps or ())
    last = manifests[-1]
    yield from flatten_settings(
        drop_folders({k: v for k, v in last.get("config", {}).items() if k != "seed"}), "config/"
    )
    yield from flatten_settings(last.get("inputs", {}), "inputs/")
    if not has_conditions:
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
) -> Facts:
    """Yield what the conditions say of the policy's own steps; nothing without them."""
    if conditions is None:
        return
    yield "conditions/file", "recorded"
    for name in sorted(set(conditions) - set(_STRUCTURE)):
        value = conditions[name]
        if name in _WHOLE:
            yield f"{name}/{_WHOLE[name]}", value
        else:
            whole = cast("Any", value) if isinstance(value, dict) else {"value": value}
            yield from flatten_settings(whole, f"{name}/")
    known = {*evaluated, *(data for one in scope.chain for data in one.trained_on)}
    for aspect in ("data", "prompts"):
        for key, value in conditions.get(aspect, {}).items():
            if not scope.chain or key in known:
                yield f"{aspect}/{key}", value


def _list_policy_facts(scope: Scope) -> Facts:
    """Yield what the run says of the policy: the steps behind it and their budgets."""
    if scope.steps is not None:
        yield "policies/file", "recorded"
        yield "lineage/steps", list(scope.steps)
        for one in scope.chain:
            if one.step:
                yield from flatten_settings(one.budget, f"budget/{one.step}.")


def _list_step_facts(folder: Path, scope: Scope) -> Facts:
    """Yield what the files of the policy's training steps say."""
    steps = scope.steps
    if steps is None:
        found = [path for name in _LEFT_BY_TRAINING for path in folder.glob(f"[!.]*/{name}")]
        steps = tuple(sorted({path.parent.name for path in found}))
    for step in steps:
        resolved = read_if_there(folder / step / "resolved.json") or {}
        yield from ((f"resolved/{step}.{name}", value) for name, value in resolved.items())
        judged = read_if_there(folder / step / "judge.json") or {}
        yield from ((f"judge/{step}.{name}", judged[name]) for name in _JUDGED if name in judged)
        trainable = folder / step / "trainable.json"
        if trainable.is_file():
            yield f"trainable/{step}.num_trainable", _count_trainable(trainable)
        if "duration_s" in (marker := read_marker(folder, step)):
            yield f"time/{step}.duration_s", marker["duration_s"]


def _count_trainable(path: Path) -> int:
    rows = read_as(path, _ROWS)
    return sum(int(row.get("num_trainable", 0)) for row in rows)
