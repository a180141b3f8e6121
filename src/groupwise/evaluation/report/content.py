"""What the report of a run says, as data: the files, and what is arranged from them.

``layout`` makes a page of it in either language.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.evaluation.label_metrics import (
    Confusion,
    ReliabilityBin,
    bin_reliability,
    count_confusion,
)
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.page import Statement
from groupwise.evaluation.policies import Policies
from groupwise.evaluation.predictions import Prediction, group_by_policy
from groupwise.evaluation.report.changes import Changes, find_changes
from groupwise.evaluation.report.files import RunFiles, read_run_files
from groupwise.evaluation.report.findings import state_findings
from groupwise.evaluation.report.mistakes import Mistakes, choose_mistakes
from groupwise.evaluation.report.notices import collect_notices
from groupwise.evaluation.scoring import MAX_LABELS

MAIN_SPLIT = "test"
_SLICE = re.compile(r"accuracy\[(?P<field>[^=\]]+)=(?P<value>.*)\]")
ByPolicy = Mapping[str, Mapping[str, Metric]]


@dataclass(frozen=True, slots=True)
class PolicyDetail:
    """Confusion and calibration of one policy on the main split."""

    policy: str
    confusion: Confusion
    bins: tuple[ReliabilityBin, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report says.

    Attributes:
        files: of the run, as they are.
        title: recipe and run.
        split: the main split, which plots and details are about ("" without predictions).
        notices: what must be known first, the worst first.
        findings: what the numbers say.
        metrics: of every split, the main one first: by policy, in order, and measure.
        details: confusion and calibration by policy; empty where answers are open.
        mistakes: what the last policy got wrong, None without predictions.
        changes: what the last training changed, None where its start was not asked.
    """

    files: RunFiles
    title: str
    split: str
    notices: tuple[Statement, ...]
    findings: tuple[Statement, ...]
    metrics: Mapping[str, ByPolicy]
    details: tuple[PolicyDetail, ...]
    mistakes: Mistakes | None
    changes: Changes | None

    @property
    def main(self) -> ByPolicy:
        """The metrics of the main split."""
        return self.metrics.get(self.split, {})


def build_report(run_folder: Path) -> Report:
    """Build the report of a run from its files; each may be missing and is then named.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        DataError: if a JSONL file in it is damaged.
    """
    files = read_run_files(run_folder)
    metrics = _arrange_metrics(files.metrics, files.policies)
    split = next(iter(metrics), _choose_split(p.split for p in files.predictions))
    items = [item for item in files.predictions if item.split == split]
    found = {policy: rows for (_, policy), rows in group_by_policy(items).items()}
    by_policy = {name: found[name] for name in files.policies.sort(found)}
    last = list(by_policy)[-1:] or [""]
    num_clusters = len({item.cluster for item in items})
    return Report(
        files=files,
        title=_make_title(files),
        split=split,
        notices=collect_notices(files),
        findings=state_findings(
            split,
            metrics.get(split, {}),
            files.comparisons,
            files.policies,
            num_clusters=num_clusters,
        ),
        metrics=metrics,
        details=_arrange_details(by_policy),
        mistakes=choose_mistakes(by_policy.get(last[0], []), run_folder),
        changes=find_changes(by_policy, files.policies),
    )


def _make_title(files: RunFiles) -> str:
    recipe = (files.manifest or {}).get("recipe")
    name = files.folder.resolve().name
    return f"{recipe} · {name}" if recipe and recipe != name else name


def _choose_split(splits: Iterable[str]) -> str:
    names = sorted(set(splits))
    return MAIN_SPLIT if MAIN_SPLIT in names else (names or [""])[0]


def _arrange_metrics(metrics: Sequence[Metric], policies: Policies) -> dict[str, ByPolicy]:
    """Return the metrics of policies with an accuracy, by split, policy and measure."""
    names = dict.fromkeys((m.split, m.policy) for m in metrics if m.measure == "accuracy")
    main = _choose_split(split for split, _ in names)
    found: dict[str, dict[str, dict[str, Metric]]] = {}
    for split, policy in sorted(names, key=lambda n: (n[0] != main, n[0], policies.rank(n[1]))):
        here = {m.measure: m for m in metrics if (m.split, m.policy) == (split, policy)}
        found.setdefault(split, {})[policy] = here
    return {split: table for split, table in found.items()}


def list_slices(by_policy: ByPolicy) -> dict[str, list[str]]:
    """Return the values of every field that accuracy was measured by."""
    found: dict[str, set[str]] = {}
    for measures in by_policy.values():
        for name in measures:
            if part := _SLICE.fullmatch(name):
                found.setdefault(part["field"], set()).add(part["value"])
    return {field: sorted(values) for field, values in sorted(found.items())}


def _arrange_details(by_policy: Mapping[str, Sequence[Prediction]]) -> tuple[PolicyDetail, ...]:
    labels = find_labels([item for items in by_policy.values() for item in items])
    # Open answers are as many as items: a row for each shows nothing and takes minutes to draw.
    if not 2 <= len(labels) <= MAX_LABELS:
        return ()
    return tuple(
        PolicyDetail(policy, count_confusion(items, labels), bin_reliability(items, labels))
        for policy, items in by_policy.items()
    )


def find_labels(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return every label that occurs, in the order of the fullest probabilities, then by name."""
    tables = [list(item.probabilities) for item in predictions if item.probabilities is not None]
    known = max(tables, key=len) if tables else []
    seen = {item.label for item in predictions}
    seen |= {item.predicted for item in predictions if item.predicted is not None}
    seen |= {name for table in tables for name in table}
    return (*known, *sorted(seen - set(known)))
