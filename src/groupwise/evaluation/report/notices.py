"""What a reader must know before any number: the report's warnings, the worst first.

Each rule looks at files only and says what it saw; none changes a number.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import (
    Prediction,
    digest_items,
    find_constant,
    group_by_policy,
    rank_policy,
)
from groupwise.evaluation.report.content import (
    BLIND_POLICIES,
    Level,
    Notice,
    TrainingLog,
    title_policy,
)
from groupwise.evaluation.report.files import RunFiles
from groupwise.evaluation.report.numbers import (
    count_things,
    format_share,
    format_share_interval,
)
from groupwise.evaluation.report.training import note_alarms

MAX_INVALID_RATE = 0.05
MIN_ITEMS = 100
MIN_GROUPS = 20
MAX_DEAD_SHARE = 0.8
_METRICS = "evaluate/metrics.json"
_PREDICTIONS = "evaluate/predictions.jsonl"
_LEVELS: tuple[Level, ...] = ("error", "warning", "info")
_NEEDED = (_PREDICTIONS, _METRICS, "audit/audit.json", "manifest.json")


def collect_notices(files: RunFiles) -> tuple[Notice, ...]:
    """Return all notices, errors first."""
    found = [
        *_note_absent(files.absent),
        *_note_audit(files.audit),
        *_note_reward_audit(files.reward_audit),
        *_note_steps(files.warnings),
        *_note_packages(files.packages),
        *_note_mismatch(files),
        *_note_digests(files.metrics),
        *_note_invalid(files.metrics),
        *_note_size(files.predictions),
        *_note_blind(files.metrics),
        *_note_same_answers(files.predictions),
        *_note_constant(files.predictions),
        *_note_training(files),
        *note_alarms(files.logs, files.judges),
    ]
    return tuple(sorted(found, key=lambda notice: _LEVELS.index(notice.level)))


def _note_absent(absent: Mapping[str, str]) -> Iterator[Notice]:
    for name in _NEEDED:
        if name in absent:
            yield Notice("warning", f"{name} is not there, so {absent[name]} are missing.", name)


def _note_audit(audit: Mapping[str, Any] | None) -> Iterator[Notice]:
    rows: list[Mapping[str, Any]] = list((audit or {}).get("findings", ()))
    for row in rows:
        level, is_accepted = row.get("level"), bool(row.get("accepted"))
        if level in ("error", "warning") or is_accepted:
            prefix = "Accepted by the configuration: " if is_accepted else "Data: "
            text = f"{prefix}{row.get('message', row.get('name', ''))}"
            yield Notice("error" if level == "error" else "warning", text, "audit/audit.json")


def _note_reward_audit(audit: Mapping[str, Any] | None) -> Iterator[Notice]:
    """Faults of the rewards that a run was told to go on with are errors, not footnotes."""
    rows: list[Mapping[str, Any]] = list((audit or {}).get("findings", ()))
    for row in rows:
        name, where = row.get("name", ""), list(row.get("where", ()))
        prefix = f"Accepted with --accept {name}: " if row.get("accepted") else "Rewards: "
        shown = f" For example, {where[0]}." if where else ""
        text = f"{prefix}{row.get('message', name)}{shown}"
        is_error = row.get("level") == "error"
        yield Notice("error" if is_error else "warning", text, "audit_rewards/audit.json")


def _note_steps(warnings: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Notice]:
    for name, row in warnings:
        level: Level = row["level"] if row.get("level") in _LEVELS else "warning"
        yield Notice(level, str(row.get("message", row)), name)


def _note_packages(packages: Mapping[str, Mapping[str, str]]) -> Iterator[Notice]:
    """Steps that were made with different versions of a library."""
    for name in sorted({name for found in packages.values() for name in found}):
        steps: dict[str, list[str]] = {}
        for step, found in packages.items():
            if found:
                steps.setdefault(found.get(name, "none"), []).append(step)
        if len(steps) > 1:
            shown = "; ".join(f"{version}: {', '.join(own)}" for version, own in steps.items())
            text = f"The steps were made with different versions of {name} ({shown})."
            yield Notice("warning", text, "manifest.json")


def _note_mismatch(files: RunFiles) -> Iterator[Notice]:
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
        names = ", ".join(map(title_policy, wrong))
        text = f"The metrics of {names} were computed on other items than the predictions here."
        yield Notice("error", f"{text} Run the evaluate step again.", _METRICS)


def _note_digests(metrics: Sequence[Metric]) -> Iterator[Notice]:
    """Policies of one table that were measured on different items."""
    for split in sorted({metric.split for metric in metrics}):
        digests = {metric.split_digest for metric in metrics if metric.split == split}
        if len(digests) > 1:
            text = f"The policies of split {split} were measured on {len(digests)} different sets"
            yield Notice("error", f"{text} of items; their numbers cannot be compared.", _METRICS)


def _note_invalid(metrics: Sequence[Metric]) -> Iterator[Notice]:
    for metric in metrics:
        if metric.measure == "invalid_rate" and metric.value > MAX_INVALID_RATE:
            text = (
                f"{format_share(metric.value)} of the answers of {title_policy(metric.policy)} "
                f"on {metric.split} are invalid (n = {metric.n}); each counts as wrong."
            )
            yield Notice("warning", text, _METRICS)


def _note_size(predictions: Sequence[Prediction]) -> Iterator[Notice]:
    for split in sorted({item.split for item in predictions}):
        here = [item for item in predictions if item.split == split]
        num_items = len({item.example_id for item in here})
        num_groups = len({item.group for item in here})
        if num_items < MIN_ITEMS or num_groups < MIN_GROUPS:
            text = (
                f"Split {split} is small: {count_things(num_items, 'item')} in "
                f"{count_things(num_groups, 'group')}. Intervals are wide, and those that draw "
                "groups are too optimistic with so few of them."
            )
            yield Notice("warning", text, _PREDICTIONS)


def _note_blind(metrics: Sequence[Metric]) -> Iterator[Notice]:
    """A last policy not clearly above the best baseline, or a blind baseline above chance."""
    for split in sorted({metric.split for metric in metrics}):
        found = {m.policy: m for m in metrics if m.split == split and m.measure == "accuracy"}
        blind = [found[name] for name in BLIND_POLICIES if name in found]
        others = sorted((p for p in found if p not in BLIND_POLICIES), key=rank_policy)
        if not blind or not others:
            continue
        best, last = max(blind, key=lambda metric: metric.value), found[others[-1]]
        if last.low <= best.value:
            text = (
                f"On {split}, {title_policy(last.policy)} is not clearly above a baseline that "
                f"does not see the whole task: {format_share(last.value)} "
                f"({format_share_interval(last.low, last.high)}) against "
                f"{format_share(best.value)} of {title_policy(best.policy)}."
            )
            yield Notice("warning", text, _METRICS)
        yield from _note_shortcut(split, found)


def _note_shortcut(split: str, found: Mapping[str, Metric]) -> Iterator[Notice]:
    floor = found.get("majority")
    for name in ("text_only", "picture_only"):
        if floor is not None and name in found and found[name].low > floor.value:
            half = "text" if name == "text_only" else "picture"
            text = (
                f"On {split}, the {half} alone gives part of the answer away: "
                f"{title_policy(name)} reaches {format_share(found[name].value)}, the majority "
                f"label {format_share(floor.value)}."
            )
            yield Notice("warning", text, _METRICS)


def _note_same_answers(predictions: Sequence[Prediction]) -> Iterator[Notice]:
    """Two policies of which one was trained from the other and that answer all alike."""
    answers: dict[str, dict[str, dict[str, str]]] = {}
    for (split, policy), items in group_by_policy(predictions).items():
        if policy not in BLIND_POLICIES:
            texts = {item.example_id: item.text for item in items}
            answers.setdefault(split, {})[policy] = texts
    for split, by_policy in answers.items():
        for a, b in combinations(by_policy, 2):
            if by_policy[a] == by_policy[b]:
                text = (
                    f"{title_policy(a)} and {title_policy(b)} give the same text for every item "
                    f"of {split}: training may have changed nothing."
                )
                yield Notice("warning", text, _PREDICTIONS)


def _note_constant(predictions: Sequence[Prediction]) -> Iterator[Notice]:
    """Policies that give one answer whatever they are asked; the majority label always does."""
    for (split, policy), items in group_by_policy(predictions).items():
        answer = find_constant(items)
        if answer is not None and policy != "majority":
            num = count_things(len(items), "item")
            text = f"{title_policy(policy)} gives one answer for all {num} of {split}: {answer}."
            yield Notice("warning", text, _PREDICTIONS)


def _note_training(files: RunFiles) -> Iterator[Notice]:
    for name, log in files.logs.items():
        if log.is_rewarded:
            yield from _note_rewarded(log, has_gate=name in files.gates)


def _note_rewarded(log: TrainingLog, *, has_gate: bool) -> Iterator[Notice]:
    title = title_policy(log.name)
    if not has_gate:
        text = (
            f"The step-0 gate left no result for {title}, so that ratio 1 and KL 0 at the start "
            "are unproven."
        )
        yield Notice("warning", text, f"{log.name}/gate.json")
    _, dead = log.read_series("dead_groups")
    last = dead[-max(1, len(dead) // 4) :]
    if last and sum(last) / len(last) > MAX_DEAD_SHARE:
        share = format_share(sum(last) / len(last))
        text = (
            f"In the last quarter of {title}, {share} of the groups were dead (all completions "
            "earned the same), so they taught nothing."
        )
        yield Notice("info", text, f"{log.name}/metrics.jsonl")
