"""Accuracy, paired comparisons and slices on the page of a run."""

from collections.abc import Iterator, Mapping

from groupwise.evaluation import page
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.page import Block, Part, Words, numbers
from groupwise.evaluation.paired import PairedComparison
from groupwise.evaluation.report.content import ByPolicy, Report, list_slices
from groupwise.evaluation.report.findings import (
    describe_comparison,
    judge_difference,
    remark_carrying,
)


def show_accuracy(report: Report, words: Words) -> Part:
    """Return the headline table of every split, and a plot of the main one."""
    blocks: list[Block] = [page.Paragraph(words.label("accuracy_lead"))]
    for split, by_policy in report.metrics.items():
        blocks += [page.Heading(split), _tabulate_accuracy(by_policy, words)]
        if split == report.split:
            blocks.append(page.Plots((_plot_accuracy(split, by_policy, words),), "wide"))
    return Part("accuracy", words.label("accuracy"), tuple(blocks))


def _tabulate_accuracy(by_policy: ByPolicy, words: Words) -> page.Table:
    titles = words.labels("policy", "accuracy", "percent_95")
    names = ("balanced", "invalid", "n_items", "digest")
    best = max(measures["accuracy"].value for measures in by_policy.values())
    return page.Table(
        "",
        (titles[0], "\n".join(titles[1:]), *words.labels(*names)),
        tuple(_show_policy(name, found, best, words) for name, found in by_policy.items()),
        kind="headline",
        marks=tuple(page.color_policy(name, words.policies) for name in by_policy),
    )


def _show_policy(
    policy: str, measures: Mapping[str, Metric], best: float, words: Words
) -> tuple[str | page.Cell, ...]:
    one = measures["accuracy"]
    note = words.policies.describe(policy, words.language)
    shown = f"{page.mark_code(policy)} · {note}" if note else page.mark_code(policy)
    return (
        page.Cell(words.title_policy(policy), shown),
        page.Cell(
            numbers.format_share(one.value),
            numbers.format_interval(one),
            is_strong=one.value == best,
        ),
        _share(measures.get("balanced_accuracy")),
        _share(measures.get("invalid_rate")),
        numbers.format_count(one.n),
        page.Cell(one.split_digest[:8], hint=one.split_digest, is_code=True),
    )


def _share(metric: Metric | None) -> str:
    return numbers.format_share(metric.value if metric else None)


def _plot_accuracy(split: str, by_policy: ByPolicy, words: Words) -> page.Plot:
    bars = [
        page.Bar(
            title=words.title_policy(policy),
            text=f"{numbers.format_share(one.value)} ({numbers.format_interval(one)})",
            value=one.value,
            ends=(one.low, one.high),
            color=page.color_policy(policy, words.policies),
        )
        for policy, one in ((name, found["accuracy"]) for name, found in by_policy.items())
    ]
    title = words.label("accuracy_on", split=split)
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
        said = [*(describe_comparison(*pair) for pair in both), *remark_carrying(clear)]
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
        yield Part("slices", words.label("slices"), (lead, page.Tables(tuple(tables))))


def _tabulate_slice(field: str, values: list[str], main: ByPolicy, words: Words) -> page.Table:
    names = {value: f"accuracy[{field}={value}]" for value in values}
    sized = {value: list(main.values())[-1].get(name) for value, name in names.items()}
    columns = {
        name: f"{value}\nn = {numbers.format_count(one.n) if (one := sized[value]) else page.DASH}"
        for value, name in names.items()
    }
    rows = [
        (words.title_policy(policy), measures)
        for policy, measures in main.items()
        if any(name in measures for name in columns)
    ]
    title = words.label("by_field", field=field)
    return page.tabulate_metrics(rows, columns, head=words.label("policy"), title=title)
