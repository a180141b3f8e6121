"""Building a report: from the files of a run to what the report says.

Reads and arranges; layout is the job of ``rendering`` and ``plots``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from groupwise.evaluation.calibration import bin_reliability
from groupwise.evaluation.confusion import count_confusion
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Prediction, group_by_policy, rank_policy
from groupwise.evaluation.report.content import (
    Headline,
    HeadlineRow,
    PolicyDetail,
    Report,
    SliceTable,
)
from groupwise.evaluation.report.files import RunFiles, read_run_files
from groupwise.evaluation.report.findings import state_findings
from groupwise.evaluation.report.mistakes import choose_mistakes
from groupwise.evaluation.report.notices import collect_notices
from groupwise.evaluation.report.training import tabulate_trainings

MAIN_SPLIT = "test"
_SLICE = re.compile(r"accuracy\[(?P<field>[^=\]]+)=(?P<value>.*)\]")


def build_report(run_folder: Path) -> Report:
    """Build the report of a run from its files; each may be missing and is then named.

    Raises:
        EvaluationError: if the folder does not exist or a file in it cannot be parsed.
        DataError: if a JSONL file in it is damaged.
    """
    files = read_run_files(run_folder)
    headlines = _arrange_headlines(files.metrics)
    split = headlines[0].split if headlines else _choose_split(p.split for p in files.predictions)
    items = [item for item in files.predictions if item.split == split]
    by_policy = {policy: rows for (_, policy), rows in group_by_policy(items).items()}
    last = list(by_policy)[-1:] or [""]
    return Report(
        title=_make_title(files),
        notices=collect_notices(files),
        findings=state_findings(
            headlines[0] if headlines else None,
            files.comparisons,
            files.metrics,
            len({item.group for item in items}),
        ),
        sections=files.sections,
        split=split,
        headlines=headlines,
        comparisons=tuple(files.comparisons),
        slices=_arrange_slices([m for m in files.metrics if m.split == split]),
        details=_arrange_details(by_policy, [m for m in files.metrics if m.split == split]),
        logs=files.logs,
        trainings=tabulate_trainings(files.logs),
        mistakes=choose_mistakes(by_policy.get(last[0], []), run_folder),
        audit=files.audit,
        gates=files.gates,
        manifest=files.manifest,
        measures=files.measures,
        absent=files.absent,
    )


def _make_title(files: RunFiles) -> str:
    recipe = (files.manifest or {}).get("recipe")
    name = files.folder.resolve().name
    return f"{recipe} · {name}" if recipe and recipe != name else name


def _choose_split(splits: Iterable[str]) -> str:
    names = sorted(set(splits))
    return MAIN_SPLIT if MAIN_SPLIT in names else (names or [""])[0]


def _arrange_headlines(metrics: Sequence[Metric]) -> tuple[Headline, ...]:
    splits = {metric.split for metric in metrics if metric.measure == "accuracy"}
    main = _choose_split(splits)
    return tuple(
        Headline(split, _arrange_rows([m for m in metrics if m.split == split]))
        for split in sorted(splits, key=lambda name: (name != main, name))
    )


def _arrange_rows(metrics: Sequence[Metric]) -> tuple[HeadlineRow, ...]:
    found = {metric.name: metric for metric in metrics}
    names = {m.policy for m in metrics if m.measure == "accuracy"}
    best = max(found[f"{name}/accuracy"].value for name in names)
    return tuple(
        HeadlineRow(
            policy=name,
            accuracy=found[f"{name}/accuracy"],
            clustered=found.get(f"{name}/accuracy_clustered"),
            balanced=found.get(f"{name}/balanced_accuracy"),
            invalid_rate=found.get(f"{name}/invalid_rate"),
            is_best=found[f"{name}/accuracy"].value == best,
        )
        for name in sorted(names, key=rank_policy)
    )


def _arrange_slices(metrics: Sequence[Metric]) -> tuple[SliceTable, ...]:
    cells: dict[str, dict[tuple[str, str], Metric]] = {}
    for metric in metrics:
        found = _SLICE.fullmatch(metric.measure)
        if found:
            cells.setdefault(found["field"], {})[found["value"], metric.policy] = metric
    return tuple(
        SliceTable(
            field=field,
            values=tuple(sorted({value for value, _ in table})),
            cells=table,
            policies=tuple(sorted({policy for _, policy in table}, key=rank_policy)),
        )
        for field, table in sorted(cells.items())
    )


def _arrange_details(
    by_policy: Mapping[str, Sequence[Prediction]], metrics: Sequence[Metric]
) -> tuple[PolicyDetail, ...]:
    labels = find_labels([item for items in by_policy.values() for item in items])
    if len(labels) < 2:
        return ()
    return tuple(
        PolicyDetail(
            policy=policy,
            confusion=count_confusion(items, labels),
            bins=bin_reliability(items, labels),
            measures={m.measure: m for m in metrics if m.policy == policy},
        )
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
