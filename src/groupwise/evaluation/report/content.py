"""What the report of a run says, as data: the files, and what is arranged from them.

``layout`` makes a page of it in either language.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.page import Statement
from groupwise.evaluation.policies import Policies
from groupwise.evaluation.predictions import Prediction, group_by_policy
from groupwise.evaluation.report.files import RunFiles, read_run_files
from groupwise.evaluation.report.findings import state_findings
from groupwise.evaluation.report.notices import collect_notices

MAIN_SPLIT = "test"
_SLICE = re.compile(r"accuracy\[(?P<field>[^=\]]+)=(?P<value>.*)\]")
ByPolicy = Mapping[str, Mapping[str, Metric]]


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
        answers: those of each policy to the items of the main split, in order.
    """

    files: RunFiles
    title: str
    split: str
    notices: tuple[Statement, ...]
    findings: tuple[Statement, ...]
    metrics: Mapping[str, ByPolicy]
    answers: Mapping[str, Sequence[Prediction]]

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
    metrics = _arrange_metrics(files.metrics, files.policies, files.headline.name)
    split = next(iter(metrics), _choose_split(p.split for p in files.predictions))
    items = [item for item in files.predictions if item.split == split]
    found = {policy: rows for (_, policy), rows in group_by_policy(items).items()}
    num_clusters = len({item.cluster for item in items})
    main = metrics.get(split, {})
    return Report(
        files=files,
        title=_make_title(files),
        split=split,
        notices=collect_notices(files),
        findings=state_findings(
            split,
            main,
            files.comparisons,
            files.policies,
            headline=files.headline,
            num_clusters=num_clusters,
        ),
        metrics=metrics,
        answers={name: found[name] for name in files.policies.sort(found)},
    )


def _make_title(files: RunFiles) -> str:
    recipe = (files.manifest or {}).get("recipe")
    name = files.folder.resolve().name
    return f"{recipe} · {name}" if recipe and recipe != name else name


def _choose_split(splits: Iterable[str]) -> str:
    names = sorted(set(splits))
    return MAIN_SPLIT if MAIN_SPLIT in names else (names or [""])[0]


def _arrange_metrics(
    metrics: Sequence[Metric], policies: Policies, headline: str
) -> dict[str, ByPolicy]:
    """Return the metrics of policies with the headline's, by split, policy and measure."""
    names = dict.fromkeys((m.split, m.policy) for m in metrics if m.measure == headline)
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
