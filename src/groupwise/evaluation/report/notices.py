"""What a reader must know before any number: the report's warnings, the worst first.

Each rule looks at files only and says what it saw; none changes a number.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.monitor import History, find_alarms, state_alarm
from groupwise.evaluation.page import LEVELS, Level, Statement
from groupwise.evaluation.policies import Policies
from groupwise.evaluation.predictions import (
    Prediction,
    digest_items,
    find_constant,
    group_by_policy,
)
from groupwise.evaluation.report.files import RunFiles

MAX_INVALID_RATE = 0.05
MIN_ITEMS = 100
MIN_CLUSTERS = 20
MAX_DEAD_SHARE = 0.8
_METRICS = "evaluate/metrics.json"
_PREDICTIONS = "evaluate/predictions.jsonl"
_NEEDED = (_PREDICTIONS, _METRICS, "audit/audit.json", "manifest.json")


def collect_notices(files: RunFiles) -> tuple[Statement, ...]:
    """Return all notices, errors first."""
    found = [
        *(_warn("run.absent", name, name=name) for name in _NEEDED if name in files.absent),
        *_note_audit(files.audit),
        *_note_reward_audit(files.reward_audit),
        *_note_steps(files.warnings),
        *_note_packages(files.packages),
        *_note_mismatch(files),
        *_note_digests(files.metrics),
        *_note_invalid(files.metrics),
        *_note_size(files.predictions),
        *_note_baselines(files.metrics, files.policies),
        *_note_same_answers(files.predictions, files.policies),
        *_note_constant(files.predictions, files.policies),
        *_note_training(files),
        *(one for one in files.looks if one.level == "warning"),
    ]
    return tuple(sorted(found, key=lambda notice: LEVELS.index(notice.level)))


def _warn(kind: str, source: str, **values: object) -> Statement:
    return Statement(kind, values, "warning", source)


def _note_audit(audit: Mapping[str, Any] | None) -> Iterator[Statement]:
    rows: list[Mapping[str, Any]] = list((audit or {}).get("findings", ()))
    for row in rows:
        level, is_accepted = row.get("level"), bool(row.get("accepted"))
        if level in ("error", "warning") or is_accepted:
            kind = "run.accepted" if is_accepted else "run.data"
            values = {"message": row.get("message", row.get("name", ""))}
            shown: Level = "error" if level == "error" else "warning"
            yield Statement(kind, values, shown, "audit/audit.json")


def _note_reward_audit(audit: Mapping[str, Any] | None) -> Iterator[Statement]:
    """Faults of the rewards that a run was told to go on with are errors, not footnotes."""
    rows: list[Mapping[str, Any]] = list((audit or {}).get("findings", ()))
    for row in rows:
        if row.get("level") == "info" and not row.get("accepted"):
            continue
        name, where = row.get("name", ""), list(row.get("where", ()))
        example = Statement("run.example", {"place": where[0]}) if where else None
        kind = "run.accepted_reward" if row.get("accepted") else "run.reward"
        values = {"name": name, "message": row.get("message", name), "example": example}
        level: Level = "error" if row.get("level") == "error" else "warning"
        yield Statement(kind, values, level, "audit_rewards/audit.json")


def _note_steps(warnings: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Statement]:
    for name, row in warnings:
        level: Level = row["level"] if row.get("level") in LEVELS else "warning"
        yield Statement("run.step", {"message": str(row.get("message", row))}, level, name)


def _note_packages(packages: Mapping[str, Mapping[str, str]]) -> Iterator[Statement]:
    """Steps that were made with different versions of a library."""
    for name in sorted({name for found in packages.values() for name in found}):
        steps: dict[str, list[str]] = {}
        for step, found in packages.items():
            if found:
                steps.setdefault(found.get(name, "none"), []).append(step)
        if len(steps) > 1:
            shown = "; ".join(f"{version}: {', '.join(own)}" for version, own in steps.items())
            yield _warn("run.packages", "manifest.json", name=name, versions=shown)


def _note_mismatch(files: RunFiles) -> Iterator[Statement]:
    """Metrics that were computed on other items than those in the predictions."""
    if not files.predictions or not files.metrics:
        return
    items = group_by_policy(files.predictions)
    digests = {key: digest_items(rows) for key, rows in items.items()}
    wrong = sorted(
        {
            metric.policy
            for metric in files.metrics
            if digests.get((metric.split, metric.policy)) != metric.split_digest
        }
    )
    if wrong:
        yield Statement("run.mismatch", {"policies": wrong}, "error", _METRICS)


def _note_digests(metrics: Sequence[Metric]) -> Iterator[Statement]:
    """Policies of one table that were measured on different items."""
    for split in sorted({metric.split for metric in metrics}):
        digests = {metric.split_digest for metric in metrics if metric.split == split}
        if len(digests) > 1:
            values = {"split": split, "num": len(digests)}
            yield Statement("run.digests", values, "error", _METRICS)


def _note_invalid(metrics: Sequence[Metric]) -> Iterator[Statement]:
    for one in metrics:
        if one.measure == "invalid_rate" and one.value > MAX_INVALID_RATE:
            where = {"policy": one.policy, "split": one.split, "n": one.n}
            yield _warn("run.invalid", _METRICS, rate=one.value, **where)


def _note_size(predictions: Sequence[Prediction]) -> Iterator[Statement]:
    for split in sorted({item.split for item in predictions}):
        here = [item for item in predictions if item.split == split]
        num_items = len({item.example_id for item in here})
        num_clusters = len({item.cluster for item in here})
        if num_items < MIN_ITEMS or num_clusters < MIN_CLUSTERS:
            yield _warn(
                "run.small", _PREDICTIONS, split=split, n=num_items, num_clusters=num_clusters
            )


def _note_baselines(metrics: Sequence[Metric], policies: Policies) -> Iterator[Statement]:
    """A last policy not clearly above the best baseline, or a blind baseline above chance."""
    for split in sorted({metric.split for metric in metrics}):
        found = {m.policy: m for m in metrics if m.split == split and m.measure == "accuracy"}
        baselines = [metric for name, metric in found.items() if policies.is_baseline(name)]
        others = policies.sort(name for name in found if not policies.is_baseline(name))
        if not baselines or not others:
            continue
        best, last = max(baselines, key=lambda metric: metric.value), found[others[-1]]
        if last.low <= best.value:
            values = {"policy": last.policy, "value": last.value, "ends": (last.low, last.high)}
            values |= {"split": split, "best": best.policy, "baseline": best.value}
            yield _warn("run.not_above", _METRICS, **values)
        yield from _note_shortcut(split, found, policies)


def _note_shortcut(
    split: str, found: Mapping[str, Metric], policies: Policies
) -> Iterator[Statement]:
    """Half of a task that is better than seeing nothing of it."""
    unseen = {name: policies.find(name).blind_to for name in policies.sort(found)}
    floors = [found[name].value for name, what in unseen.items() if "everything" in what]
    for name, what in unseen.items():
        if floors and what in (("picture",), ("text",)) and found[name].low > floors[0]:
            values = {"policy": name, "value": found[name].value, "floor": floors[0]}
            yield _warn(f"run.shortcut_without_{what[0]}", _METRICS, split=split, **values)


def _note_same_answers(
    predictions: Sequence[Prediction], policies: Policies
) -> Iterator[Statement]:
    """Two policies of which one was trained from the other and that answer all alike."""
    answers: dict[str, dict[str, dict[str, str]]] = {}
    for (split, policy), items in group_by_policy(predictions).items():
        if not policies.is_baseline(policy):
            texts = {item.example_id: item.text for item in items}
            answers.setdefault(split, {})[policy] = texts
    for split, by_policy in answers.items():
        for a, b in combinations(policies.sort(by_policy), 2):
            if by_policy[a] == by_policy[b]:
                yield _warn("run.same_answers", _PREDICTIONS, a=a, b=b, split=split)


def _note_constant(predictions: Sequence[Prediction], policies: Policies) -> Iterator[Statement]:
    """Policies that give one answer whatever they are asked; one that sees nothing always does."""
    for (split, policy), items in group_by_policy(predictions).items():
        answer = find_constant(items)
        if answer is not None and "everything" not in policies.find(policy).blind_to:
            values = {"policy": policy, "n": len(items), "split": split, "answer": answer}
            yield _warn("run.constant", _PREDICTIONS, **values)


def _note_training(files: RunFiles) -> Iterator[Statement]:
    for name, log in files.logs.items():
        if log.is_rewarded and name not in files.on_policy:
            yield _warn("run.no_on_policy", f"{name}/on_policy.json", policy=name)
        if log.is_rewarded:
            yield from _note_dead(name, log)
    for name, log in files.logs.items():
        for alarm in find_alarms(log, judge=files.judges.get(name)):
            values = {"policy": name, "step": alarm.step, **state_alarm(alarm)}
            yield Statement("run.alarm", values, alarm.level, f"{name}/metrics.jsonl")


def _note_dead(name: str, log: History) -> Iterator[Statement]:
    dead = log.read("dead_groups").values
    last = dead[-max(1, len(dead) // 4) :]
    if last and sum(last) / len(last) > MAX_DEAD_SHARE:
        values = {"policy": name, "share": sum(last) / len(last)}
        yield Statement("run.dead", values, "info", f"{name}/metrics.jsonl")
