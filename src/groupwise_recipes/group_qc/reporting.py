"""The report step: missed defects first, then missions, what was frozen, and the whole report."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import write_text
from groupwise.evaluation import Metric, read_metrics, write_report
from groupwise.pipeline import StepContext
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.measure import FALSE_ALARMS, MISSED, TWO_LINES
from groupwise_recipes.group_qc.verdicts import VERDICTS

MISSIONS_FILE = "missions.md"
_COLUMNS = (
    ("missed defects", MISSED),
    ("false alarms", FALSE_ALARMS),
    ("accuracy", "accuracy"),
    ("no verdict", "invalid_rate"),
    ("two lines", TWO_LINES),
)


def run_report(config: GroupQcConfig, context: StepContext) -> None:
    """Write ``report.html``, ``report.md`` and, by missions, ``missions.md``."""
    del config
    write_report(context.run)
    text = write_missions(context.run)
    write_text(context.folder / MISSIONS_FILE, text)
    whole = context.run / "report.md"
    write_text(whole, text + "\n" + whole.read_text(encoding="utf-8"))


def write_missions(run: Path) -> str:
    """Return the headline, the tables by mission and what trained, as Markdown."""
    metrics = read_metrics(run / "evaluate" / "metrics.json")
    missions: Mapping[str, Any] = json.loads((run / "evaluate/missions.json").read_text("utf-8"))
    failed: Mapping[str, int] = json.loads((run / "stage_b_data/failed.json").read_text("utf-8"))
    lines = ["# Missed defects", "", *_headline(metrics), "", *_tabulate(metrics), ""]
    lines += [f"Stage A failed for {count} groups of {name}." for name, count in failed.items()]
    for name, rows in missions.items():
        own = [Metric(**row) for row in rows]
        lines += [f"## {name}", "", *_tabulate(own), "", *_tabulate_classes(own), ""]
    lines += ["## What trained in GRPO", "", "```"]
    lines += [(run / "grpo" / "trainable.txt").read_text("utf-8").rstrip(), "```", ""]
    return "\n".join(lines)


def _headline(metrics: Sequence[Metric]) -> Iterator[str]:
    found = {metric.name: metric for metric in metrics}
    missed = found.get(f"grpo/{MISSED}")
    if missed is not None:
        yield (
            f"**After GRPO, {_show(missed)} of the groups that fail were judged to pass** "
            f"(n = {missed.n} failing groups; intervals are drawn by group)."
        )


def _tabulate(metrics: Sequence[Metric]) -> list[str]:
    found = {metric.name: metric for metric in metrics}
    policies = list(dict.fromkeys(metric.policy for metric in metrics))
    head = ["policy", *(title for title, _ in _COLUMNS), "n"]
    rows = [
        [
            policy,
            *(_show(found.get(f"{policy}/{name}")) for _, name in _COLUMNS),
            str(found[f"{policy}/accuracy"].n),
        ]
        for policy in policies
    ]
    return _write_table(head, rows)


def _tabulate_classes(metrics: Sequence[Metric]) -> list[str]:
    found = {metric.name: metric for metric in metrics}
    policies = list(dict.fromkeys(metric.policy for metric in metrics))
    kinds = [(kind, label) for label in VERDICTS for kind in ("precision", "recall", "f1")]
    head = ["policy", *(f"{kind} {label}" for kind, label in kinds)]
    rows = [
        [policy, *(_show(found.get(f"{policy}/{kind}:{label}")) for kind, label in kinds)]
        for policy in policies
    ]
    return _write_table(head, rows)


def _write_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _show(metric: Metric | None) -> str:
    if metric is None:
        return "–"
    return f"{metric.value:.1%} ({metric.low:.1%} to {metric.high:.1%})"
