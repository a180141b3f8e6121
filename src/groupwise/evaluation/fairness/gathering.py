"""Gathering facts from the files of a run: manifest, conditions and its training steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.evaluation.fairness.conditions import read_if_there, read_rows
from groupwise.evaluation.fairness.scope import Scope
from groupwise.evaluation.fairness.standing import find_manifests, read_duration_s

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
