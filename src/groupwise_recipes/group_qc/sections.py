"""What the report of a run says first: missed defects, missions, and what trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from groupwise_recipes.group_qc.verdicts import FALSE_ALARMS, MISSED, OBEYED, TWO_LINES

_COLUMNS = {
    "Missed defects": MISSED,
    "False alarms": FALSE_ALARMS,
    "Accuracy": "accuracy",
    "No verdict": "invalid_rate",
    "Two lines": TWO_LINES,
    "Obeys orders": OBEYED,
}
_BY_MISSION = (
    "The same measures for the photo groups of each mission, then each verdict on its own."
)
_PER_VERDICT = {"Precision": "precision", "Recall": "recall", "F1": "f1"}


def make_sections(
    metrics: Sequence[Metric],
    missions: Mapping[str, Sequence[Metric]],
    *,
    policies: Policies,
    verdicts: Sequence[str],
    stage_a: str,
    trainable: Path,
) -> list[Section]:
    """Return what group_qc adds to the report.

    Args:
        metrics: of all groups of the test split.
        missions: the same measures by mission.
        policies: what they are called.
        verdicts: pass, fail.
        stage_a: what is to be said of Stage A, or an empty text.
        trainable: ``trainable.json`` of GRPO.

    Raises:
        EvaluationError: if ``trainable`` cannot be read.
    """
    by_verdict = {
        f"{title} {verdict}": f"{measure}:{verdict}"
        for verdict in verdicts
        for title, measure in _PER_VERDICT.items()
    }
    tables = [
        table
        for name, rows in missions.items()
        for table in (
            tabulate_policies(rows, _COLUMNS, policies=policies, title=name),
            tabulate_policies(rows, by_verdict, policies=policies, title=f"{name}, by verdict"),
        )
    ]
    return [
        Section(
            "Missed defects",
            _say_missed(metrics),
            (tabulate_policies(metrics, _COLUMNS, policies=policies),),
            _make_tiles(metrics),
        ),
        Section("By mission", f"{_BY_MISSION} {stage_a}".strip(), tuple(tables)),
        Section("What trained in GRPO", tables=(tabulate_trainable(trainable),)),
    ]


def _make_tiles(metrics: Sequence[Metric]) -> tuple[Tile, ...]:
    return tuple(
        make_tile(metric, f"of the failing photo groups missed by GRPO on {metric.split}")
        for metric in metrics
        if metric.name == f"grpo/{MISSED}"
    )


def _say_missed(metrics: Sequence[Metric]) -> str:
    found = {metric.policy: metric for metric in metrics if metric.measure == MISSED}
    if "grpo" not in found:
        return "No photo group of the test split fails, so nothing is known about missed defects."
    trained = describe_metric(found["grpo"])
    before = f"; after its warm-up, {describe_metric(found['sft'])}" if "sft" in found else ""
    return (
        f"After GRPO, {trained} of the photo groups that fail were not judged to fail{before} "
        f"(n = {found['grpo'].n} failing groups; 95 % intervals are drawn by group id). "
        "One without a verdict counts as missed if it fails and as a false alarm if it passes; "
        "how many there are has its own column. "
        "“Obeys orders” counts the photo groups rightly judged to fail that no longer do once a "
        "description orders it."
    )


def say_failed(failed: Mapping[str, int]) -> str:
    """Return how many groups of each mission have no lines from Stage A, if there are any."""
    if not failed:
        return ""
    counts = [
        f"{count} photo group{'s' * (count != 1)} of {name}" for name, count in failed.items()
    ]
    return f"Stage A failed for {' and '.join(counts)}: they are in none of the splits."


def say_given(source: Mapping[str, Any]) -> str:
    """Return that Stage A was not run, with what became of the lines that it gave elsewhere."""
    counts = source["drops"]["counts"].items()
    reasons = ", ".join(f"{count:,} x {reason}" for reason, count in counts)
    dropped = f"; {source['drops']['total']:,} were dropped ({reasons})" if reasons else ""
    return (
        "Stage A was not run here: what it says of the photos was given (data.summaries). "
        f"{source['num_groups']:,} of {source['num_files']:,} lines are used{dropped}."
    )
