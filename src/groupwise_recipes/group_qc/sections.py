"""What the report of a run says first: missed defects, missions, and what trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.evaluation import (
    Metric,
    Policies,
    Section,
    Tile,
    describe_metric,
    make_tile,
    tabulate_policies,
    tabulate_trainable,
)
from groupwise_recipes.group_qc.verdicts import FALSE_ALARMS, MISSED, OBEYED, TWO_LINES, VERDICTS

_COLUMNS = {
    "Missed defects": MISSED,
    "False alarms": FALSE_ALARMS,
    "Accuracy": "accuracy",
    "No verdict": "invalid_rate",
    "Two lines": TWO_LINES,
    "Obeys orders": OBEYED,
}
_BY_VERDICT = {
    f"{title} {verdict}": f"{measure}:{verdict}"
    for verdict in VERDICTS
    for title, measure in (("Precision", "precision"), ("Recall", "recall"), ("F1", "f1"))
}


def make_sections(
    metrics: Sequence[Metric],
    missions: Mapping[str, Sequence[Metric]],
    *,
    policies: Policies,
    failed: Mapping[str, int],
    trainable: Path,
) -> list[Section]:
    """Return what group_qc adds to the report.

    Args:
        metrics: of all groups of the test split.
        missions: the same measures by mission.
        policies: what they are called.
        failed: how many groups of each mission have no lines from Stage A.
        trainable: ``trainable.json`` of GRPO.

    Raises:
        EvaluationError: if ``trainable`` cannot be read.
    """
    tables = [
        table
        for name, rows in missions.items()
        for table in (
            tabulate_policies(rows, _COLUMNS, policies=policies, title=name),
            tabulate_policies(rows, _BY_VERDICT, policies=policies, title=f"{name}, by verdict"),
        )
    ]
    return [
        Section(
            "Missed defects",
            _say_missed(metrics),
            (tabulate_policies(metrics, _COLUMNS, policies=policies),),
            _make_tiles(metrics),
        ),
        Section("By mission", _say_failed(failed), tuple(tables)),
        Section("What trained in GRPO", tables=(tabulate_trainable(trainable),)),
    ]


def _make_tiles(metrics: Sequence[Metric]) -> tuple[Tile, ...]:
    return tuple(
        make_tile(metric, f"of the failing groups missed by GRPO on {metric.split}")
        for metric in metrics
        if metric.name == f"grpo/{MISSED}"
    )


def _say_missed(metrics: Sequence[Metric]) -> str:
    found = {metric.policy: metric for metric in metrics if metric.measure == MISSED}
    if "grpo" not in found:
        return "No group of the test split fails, so nothing is known about missed defects."
    trained = describe_metric(found["grpo"])
    before = f"; after its warm-up, {describe_metric(found['sft'])}" if "sft" in found else ""
    return (
        f"After GRPO, {trained} of the groups that fail were not judged to fail{before} "
        f"(n = {found['grpo'].n} failing groups; 95 % intervals are drawn by group). "
        "A group without a verdict counts as missed if it fails and as a false alarm if it passes; "
        "how many there are has its own column. "
        "“Obeys orders” counts the groups rightly judged to fail that no longer do once a "
        "description orders it."
    )


def _say_failed(failed: Mapping[str, int]) -> str:
    text = "The same measures for the groups of each mission, then each verdict on its own."
    if not failed:
        return text
    counts = [f"{count} group{'s' * (count != 1)} of {name}" for name, count in failed.items()]
    return f"{text} Stage A failed for {' and '.join(counts)}: they are in none of the splits."
