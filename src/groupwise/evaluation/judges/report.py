"""The page about a calibrated judge: one HTML file that needs nothing else.

Lays out what was measured; it computes nothing and changes no number.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from groupwise.core import write_text
from groupwise.evaluation.confusion import count_confusion
from groupwise.evaluation.judges.measures import JudgeMeasures
from groupwise.evaluation.judges.notices import format_kappa, list_notices
from groupwise.evaluation.judges.rows import VerdictRow, split_subsets
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.report import numbers
from groupwise.evaluation.report.canvas import render_svg
from groupwise.evaluation.report.content import Headline, HeadlineRow, PolicyDetail
from groupwise.evaluation.report.plots import (
    Plot,
    plot_confusion,
    plot_forest,
    plot_reliabilities,
)


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the page: one row per subset, one column per measure.

    Attributes:
        title: heading.
        lead: how to read it.
        columns: (measure, heading).
    """

    title: str
    lead: str
    columns: tuple[tuple[str, str], ...]


SECTIONS = (
    Section(
        "Agreement with people",
        "Share of verdicts that are people's, each item counted once; calls without a verdict are "
        "left out and have a column of their own. Over both orders of a pair no verdict is not "
        "right. Kappa is 0 for a judge that agrees no more than "
        "chance would and 1 for one that always agrees.",
        (
            ("agreement", "Agreement"),
            ("kappa", "Cohen's κ"),
            ("right_in_both_orders", "Right in both orders"),
            ("right_on_balance", "Right more often than wrong over both orders"),
            ("agreement_unflipped", "Agreement, same verdict in both orders"),
            ("no_verdict_rate", "No verdict"),
            ("agreement_each", "Agreement with each annotator"),
            ("people_alpha", "Krippendorff's α among people"),
        ),
    ),
    Section(
        "Position",
        "Every pair was judged in both orders. A verdict is flipped if the order changes which "
        "answer is better; a judge that does not look at the position chooses the first one half "
        "of the time.",
        (
            ("flip_rate", "Flipped"),
            ("first_position", "Chose the first"),
            ("option_flip_rate", "Flipped with the order of options"),
        ),
    ),
    Section(
        "Length",
        "Pairs of unequal length in characters. The bias is the judge's share minus people's on "
        "the same pairs.",
        (
            ("longer_judge", "Judge prefers the longer"),
            ("longer_people", "People prefer the longer"),
            ("length_bias", "Bias"),
            ("agreement_if_longer", "Agrees where longer is better"),
            ("agreement_if_shorter", "Agrees where shorter is better"),
        ),
    ),
    Section(
        "Consistency and confidence",
        "Self-consistency: how likely two askings of the same question get the same verdict; a "
        "deterministic judge is asked once and has 100 % by definition. "
        "Calibration error: how far confidence and agreement lie apart.",
        (
            ("self_consistency", "Self-consistency"),
            ("ece", "Calibration error"),
            ("brier", "Brier score"),
        ),
    ),
)


def write_judge_report(
    out: Path,
    measures: JudgeMeasures,
    rows: Sequence[VerdictRow],
    facts: Mapping[str, Any],
) -> Path:
    """Write ``report.html`` into ``out`` and return its path."""
    path = out / "report.html"
    write_text(path, render_judge_report(measures, rows, facts))
    return path


def render_judge_report(
    measures: JudgeMeasures, rows: Sequence[VerdictRow], facts: Mapping[str, Any]
) -> str:
    """Return the page about a judge.

    Args:
        measures: the numbers.
        rows: the verdicts, for the table of people's and the judge's labels.
        facts: what ``calibration.json`` says about judge and data.
    """
    cells = {(metric.split, metric.measure): metric for metric in measures.metrics}
    subsets = list(dict.fromkeys(metric.split for metric in measures.metrics))
    plots = list(_list_plots(measures, rows, cells))
    loaders = [PackageLoader("groupwise.evaluation.judges"), PackageLoader(_STYLE_PACKAGE)]
    environment: Any = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=numbers.format_count, value=format_value, interval=format_interval
    )
    return environment.get_template("judge.html.j2").render(
        judge=measures.judge,
        facts=facts,
        notices=list_notices(measures, facts),
        sections=[_keep_columns(section, cells) for section in SECTIONS],
        subsets=subsets,
        cells=cells,
        plots=[(plot, _to_data_uri(render_svg(plot.draw, plot.size))) for plot in plots],
    )


_COEFFICIENTS = ("kappa", "people_alpha")
_STYLE_PACKAGE = "groupwise.evaluation.report"


def format_value(metric: Metric) -> str:
    """Format a share as ``94.2 %``, kappa and scores as ``0.421``, a bias as ``+12.3``."""
    if metric.measure in _COEFFICIENTS:
        return format_kappa(metric.value)
    if metric.measure == "length_bias":
        return numbers.format_points(metric.value)
    return numbers.format_value(metric)


def format_interval(metric: Metric) -> str:
    """Format a metric's interval as its value is."""
    if metric.measure in _COEFFICIENTS:
        return f"{format_kappa(metric.low)} to {format_kappa(metric.high)}"
    if metric.measure == "length_bias":
        return numbers.format_points_interval(metric.low, metric.high)
    return numbers.format_interval(metric)


def _keep_columns(section: Section, cells: Mapping[tuple[str, str], Metric]) -> Section:
    """Return the section with the columns that there are numbers for."""
    known = {measure for _, measure in cells}
    return replace(section, columns=tuple(c for c in section.columns if c[0] in known))


def _list_plots(
    measures: JudgeMeasures,
    rows: Sequence[VerdictRow],
    cells: Mapping[tuple[str, str], Metric],
) -> Iterator[Plot]:
    agreements = [metric for metric in measures.metrics if metric.measure == "agreement"]
    if agreements:
        plot = plot_forest(Headline("all", tuple(map(_make_row, agreements))))
        yield replace(
            plot,
            title="Agreement by subset",
            caption="Bars: Wilson interval (95 %), for independent questions.",
            alt=plot.alt.replace("Accuracies", "Agreement"),
        )
    details = _list_details(measures, rows, cells)
    for plot in plot_reliabilities(details):
        yield replace(plot, title=f"Reliability: {plot.title}")
    for detail in details[:1]:
        yield replace(plot_confusion(detail), title="People (rows) and judge (columns)")


def _make_row(metric: Metric) -> HeadlineRow:
    return HeadlineRow(metric.split, metric, None, None, None, is_best=False)


def _list_details(
    measures: JudgeMeasures,
    rows: Sequence[VerdictRow],
    cells: Mapping[tuple[str, str], Metric],
) -> list[PolicyDetail]:
    if len(measures.labels) < 2:
        return []
    return [
        PolicyDetail(
            policy=subset,
            confusion=count_confusion([_to_prediction(row) for row in part], measures.labels),
            bins=measures.reliability[subset],
            measures={name: metric for (split, name), metric in cells.items() if split == subset},
        )
        for subset, part in split_subsets(rows).items()
    ]


def _to_prediction(row: VerdictRow) -> Prediction:
    return Prediction(
        example_id=row.item_id,
        group=row.group,
        split="rated",
        policy="judge",
        label=row.label,
        predicted=row.verdict,
        reason=row.cause,
    )


def _to_data_uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
