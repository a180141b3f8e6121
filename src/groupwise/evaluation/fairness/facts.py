"""Facts: what is known of a run and one of its policies, flat, so that runs can be compared.

A fact has an aspect (what it is about) and a key. Of the steps of a run only those behind the
policy count. What one policy answered comes along, item by item. Nothing is judged here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.core import EvaluationError
from groupwise.evaluation.fairness.conditions import read_if_there, read_recorded, read_rows
from groupwise.evaluation.fairness.scope import Scope, read_scope
from groupwise.evaluation.fairness.standing import check_finished, find_manifests, read_duration_s
from groupwise.evaluation.policies import Policies, read_policies
from groupwise.evaluation.predictions import Prediction, group_by_policy, read_predictions

_WHOLE = {
    "template": "digest",
    "tokenizer": "digest",
    "base_weights": "digest",
    "normalizer": "version",
}
_STRUCTURE = ("data", "prompts", "measures")
_LEFT_BY_TRAINING = ("metrics.jsonl", "resolved.json", "trainable.json")
_MACHINE = ("packages", "hardware")
_JUDGED = ("version", "no_verdict_rate", "cache_hit_rate")


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted key; empty sections stay as they are."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def list_manifest_facts(folder: Path, scope: Scope, *, has_conditions: bool) -> dict[str, Any]:
    """Return what the manifests in force say: config, seed, inputs, packages, machine.

    Versions of metrics count only without conditions, which say what was measured with.
    """
    manifests = find_manifests(folder, scope.steps or ())
    last = manifests[-1]
    config = flatten(last.get("config", {}))
    config.pop("seed", None)
    facts = {f"config/{key}": value for key, value in config.items()}
    facts |= {f"inputs/{key}": value for key, value in last.get("inputs", {}).items()}
    if not has_conditions:
        facts |= {f"metrics/{key}": v for key, v in last.get("metric_versions", {}).items()}
    for aspect in _MACHINE:
        keys = sorted({key for manifest in manifests for key in manifest.get(aspect, {})})
        for key in keys:
            facts[f"{aspect}/{key}"] = _join(m.get(aspect, {}).get(key) for m in manifests)
    single = {
        "recipe/name": "recipe",
        "seeds/seed": "seed",
        "accepted/findings": "accepted_findings",
        "time/started_at": "started_at",
        "command/line": "command",
    }
    facts |= {key: last[name] for key, name in single.items() if name in last}
    for key, name in {"packages/python": "python", "code/git_revision": "git_revision"}.items():
        if any(name in manifest for manifest in manifests):
            facts[key] = _join(manifest.get(name) for manifest in manifests)
    return facts


def _join(values: Any) -> Any:
    """Return the one value of all starts, or the list of those that there were."""
    found: list[Any] = []
    for value in values:
        found += [value] if value not in found else []
    return found[0] if len(found) == 1 else found


def list_condition_facts(conditions: Mapping[str, Any] | None, scope: Scope) -> dict[str, Any]:
    """Return what the conditions say of the policy's own steps; nothing without them."""
    if conditions is None:
        return {}
    facts: dict[str, Any] = {"conditions/file": "recorded"}
    facts |= {
        f"{name}/{key}": conditions[name] for name, key in _WHOLE.items() if name in conditions
    }
    for name in sorted(set(conditions) - set(_WHOLE) - set(_STRUCTURE)):
        value = conditions[name]
        inner = flatten(value) if isinstance(value, Mapping) else {"value": value}  # pyright: ignore[reportUnknownArgumentType]
        facts |= {f"{name}/{key}": item for key, item in inner.items()}
    for aspect in ("data", "prompts"):
        facts |= {
            f"{aspect}/{key}": value
            for key, value in conditions.get(aspect, {}).items()
            if scope.data is None or key in scope.data
        }
    return facts


def list_policy_facts(scope: Scope) -> dict[str, Any]:
    """Return what the run says of the policy: the steps behind it and their budgets."""
    if scope.steps is None:
        return {}
    budgets = {f"budget/{one.step}": one.budget for one in scope.chain if one.step}
    return {
        "policies/file": "recorded",
        "lineage/steps": list(scope.steps),
        **{f"{step}.{key}": value for step, own in budgets.items() for key, value in own.items()},
    }


def list_step_facts(folder: Path, scope: Scope) -> dict[str, Any]:
    """Return what the files of the policy's training steps say."""
    steps = scope.steps
    if steps is None:
        found = [path for name in _LEFT_BY_TRAINING for path in folder.glob(f"[!.]*/{name}")]
        steps = tuple(sorted({path.parent.name for path in found}))
    facts: dict[str, Any] = {}
    for step in steps:
        for name, value in (read_if_there(folder / step / "resolved.json") or {}).items():
            facts[f"resolved/{step}.{name}"] = value
        judged = read_if_there(folder / step / "judge.json") or {}
        facts |= {f"judge/{step}.{name}": judged[name] for name in _JUDGED if name in judged}
        facts |= _count_trainable(folder, step)
        duration_s = read_duration_s(folder, step)
        if duration_s is not None:
            facts[f"time/{step}.duration_s"] = duration_s
    return facts


def _count_trainable(folder: Path, step: str) -> dict[str, Any]:
    path = folder / step / "trainable.json"
    if not path.is_file():
        return {}
    num_trainable = sum(int(row.get("num_trainable", 0)) for row in read_rows(path))
    return {f"trainable/{step}.num_trainable": num_trainable}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a policy answered to one item: the truth, the label given (None: invalid), the text."""

    label: str
    predicted: str | None
    text: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One system: a run and one of its policies.

    Attributes:
        name: what it is called here, ``FOLDER:POLICY``; ``dataclasses.replace`` gives another.
        folder: the run.
        policy: whose answers are compared.
        facts: JSON values by ``aspect/key``; what is not recorded is not there.
        item_ids: by split: ids of the items that the policy answered.
        answers: by split and item.
        scope: what of the run stands behind the policy.
    """

    name: str
    folder: Path
    policy: str
    facts: Mapping[str, Any]
    item_ids: Mapping[str, frozenset[str]]
    answers: Mapping[str, Mapping[str, Answer]] = field(
        default_factory=dict[str, Mapping[str, Answer]]
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
        DataError: if the predictions cannot be read.
    """
    conditions = read_recorded(folder)
    plan, effects = check_finished(folder)
    rows = predictions
    if rows is None:
        rows = read_predictions(folder / "evaluate" / "predictions.jsonl")
    policies = read_policies(folder)
    name = _choose_policy(folder, rows, policies, policy)
    answers = {
        split: {row.example_id: Answer(row.label, row.predicted, row.text) for row in items}
        for (split, _), items in group_by_policy(r for r in rows if r.policy == name).items()
    }
    scope = read_scope(policies, plan, name, evaluated=answers, effects=effects)
    facts = {
        "policy/name": name,
        **list_manifest_facts(folder, scope, has_conditions=conditions is not None),
        **list_condition_facts(conditions, scope),
        **list_policy_facts(scope),
        **list_step_facts(folder, scope),
    }
    ids = {split: frozenset(items) for split, items in answers.items()}
    return RunFacts(f"{folder}:{name}", folder, name, facts, ids, answers, scope)


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
