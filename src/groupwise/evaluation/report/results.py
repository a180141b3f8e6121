"""Accuracy, paired comparisons and slices on the page of a run."""

from collections.abc import Iterator, Mapping

from groupwise.evaluation import page
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.page import Block, Part, Words, numbers
from groupwise.evaluation.paired import PairedComparison
from groupwise.evaluation.predictions import ACCURACY, NEAR_DUPLICATE, SEEN, Measure
from groupwise.evaluation.report.content import ByPolicy, Report, list_slices
from groupwise.evaluation.report.findings import (
    describe_comparison,
    judge_difference,
    remark_carrying,
)

_MOST_BESIDE = 4
"""Columns of tables that stand beside each other without being cut."""


def show_accuracy(report: Report, words: Words) -> Part:
    """Return the headline table of every split, and a plot of the main one."""
    headline = report.files.headline
    lead = "accuracy_lead" if headline is ACCURACY else "measures_lead"
    blocks: list[Block] = [page.Paragraph(words.label(lead))]
    for split, by_policy in report.metrics.items():
        blocks += [page.Heading(split), _tabulate_headline(report, by_policy, words)]
        if split == report.split:
            plot = _plot_headline(split, by_policy, headline, words)
            blocks.append(page.Plots((plot,), "wide"))
    return Part("accuracy", words.name_measure(headline), tuple(blocks))


def _tabulate_headline(report: Report, by_policy: ByPolicy, words: Words) -> page.Table:
    """Return the headline; beside it what else is measured of labels, or the run's own measures."""
    headline = report.files.headline
    beside = {"balanced_accuracy": words.label("balanced")}
    if headline is not ACCURACY:
        own = (one for one in report.files.measures if one is not headline)
        beside = {one.name: words.title_measure(one) for one in own}
    beside["invalid_rate"] = words.label("invalid")
    found = {measure for measures in by_policy.values() for measure in measures}
    shown = {name: title for name, title in beside.items() if name in found}
    values = [measures[headline.name].value * headline.sign for measures in by_policy.values()]
    return page.Table(
        "",
        (
            words.label("policy"),
            f"{words.title_measure(headline)}\n{words.label('percent_95')}",
            *shown.values(),
            *words.labels("n_items", "digest"),
        ),
        tuple(
            _show_policy(name, measures, words, columns=(headline.name, *shown), is_best=is_best)
            for (name, measures), is_best in zip(
                by_policy.items(), (value == max(values) for value in values), strict=True
            )
        ),
        kind="headline",
        marks=tuple(page.color_policy(name, words.policies) for name in by_policy),
    )


def _show_policy(
    policy: str,
    measures: Mapping[str, Metric],
    words: Words,
    *,
    columns: tuple[str, ...],
    is_best: bool,
) -> tuple[str | page.Cell, ...]:
    headline, *beside = columns
    one = measures[headline]
    note = words.policies.describe(policy, words.language)
    shown = f"{page.mark_code(policy)} · {note}" if note else page.mark_code(policy)
    return (
        page.Cell(words.title_policy(policy), shown),
        page.Cell(
            numbers.format_share(one.value),
            numbers.format_interval(one),
            is_strong=is_best,
        ),
        *(_share(measures.get(name)) for name in beside),
        numbers.format_count(one.n),
        page.Cell(one.split_digest[:8], hint=one.split_digest, is_code=True),
    )


def _share(metric: Metric | None) -> str:
    return numbers.format_share(metric.value if metric else None)


def _plot_headline(split: str, by_policy: ByPolicy, headline: Measure, words: Words) -> page.Plot:
    bars = [
        page.Bar(
            title=words.title_policy(policy),
            text=f"{numbers.format_share(one.value)} ({numbers.format_interval(one)})",
            value=one.value,
            ends=(one.low, one.high),
            color=page.color_policy(policy, words.policies),
        )
        for policy, one in ((name, found[headline.name]) for name, found in by_policy.items())
    ]
    title = words.label("measure_on", measure=words.name_measure(headline), split=split)
    caption = words.label("accuracy_plot")
    return page.plot_bars(page.name_file("accuracy", split), title, bars, caption=caption)


def show_comparisons(report: Report, words: Words) -> Part:
    """Return the paired comparisons as sentences and as a table."""
    found = report.files.comparisons
    blocks: list[Block] = [page.Paragraph(words.label("comparisons_lead"))]
    if found:
        measures = [report.files.define(one.measure) for one in found]
        both = list(zip(found, measures, strict=True))
        clear = [one for one, measure in both if judge_difference(one, measure)]
        told = [pair for pair in both if pair[1].name == report.files.headline.name]
        said = [*(describe_comparison(*pair) for pair in told), *remark_carrying(clear)]
        names = ("won_lost", "alike", "p_by_clusters", "p_mcnemar", "n_items")
        head = (
            *words.labels("policy", "against"),
            "\n".join(words.labels("points", "percent_95")),
            *words.labels("p_holm", *names),
        )
        rows = tuple(_show_comparison(one, report, words) for one in found)
        blocks += [
            page.Bullets(tuple(map(words.say, said))),
            page.Table("", head, rows, num_heads=2),
        ]
    return Part("comparisons", words.label("paired_comparisons"), tuple(blocks))


def _show_comparison(one: PairedComparison, report: Report, words: Words) -> tuple[page.Cell, ...]:
    measure = report.files.define(one.measure)
    wins, losses = map(numbers.format_count, one.count_wins(measure))
    several = len(report.metrics) > 1
    return (
        page.Cell(words.title_policy(one.policy_b), one.split if several else ""),
        page.Cell(
            words.title_policy(one.policy_a),
            "" if one.measure == "accuracy" else words.name_measure(measure),
        ),
        page.Cell(numbers.format_points(one.difference), words.interval(one.low, one.high)),
        page.Cell(numbers.format_p_cell(one.p_value_holm)),
        page.Cell(f"{wins} : {losses}"),
        page.Cell(numbers.format_count(one.num_same_answer)),
        page.Cell(numbers.format_p_cell(one.p_value_clustered)),
        page.Cell(numbers.format_p_cell(one.p_value)),
        page.Cell(numbers.format_count(one.n)),
    )


def show_slices(report: Report, words: Words) -> Iterator[Part]:
    """Yield the accuracies on parts of the main split, if it was measured on any."""
    tables = [
        _tabulate_slice(field, values, report.main, words)
        for field, values in list_slices(report.main).items()
    ]
    if tables:
        lead = page.Paragraph(words.label("slices_lead", split=report.split))
        is_wide = any(len(table.head) > _MOST_BESIDE for table in tables)
        side = page.Tables(tuple(tables), is_wide=is_wide)
        yield Part("slices", words.label("slices"), (lead, side))


def _tabulate_slice(field: str, values: list[str], main: ByPolicy, words: Words) -> page.Table:
    names = {value: f"accuracy[{field}={value}]" for value in values}
    sized = {value: list(main.values())[-1].get(name) for value, name in names.items()}
    columns = {
        name: f"{_name_value(field, value, words)}\n"
        f"n = {numbers.format_count(one.n) if (one := sized[value]) else page.DASH}"
        for value, name in names.items()
    }
    rows = [
        (words.title_policy(policy), measures)
        for policy, measures in main.items()
        if any(name in measures for name in columns)
    ]
    title = words.label("by_field", field=words.title("fields", field))
    return page.tabulate_metrics(rows, columns, head=words.label("policy"), title=title)


def _name_value(field: str, value: str, words: Words) -> str:
    """Return a value of a field; those of our own marks are yes and no."""
    return words.title("answers", value) if field in (NEAR_DUPLICATE, SEEN) else value
