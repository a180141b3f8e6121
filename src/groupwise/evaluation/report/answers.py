"""Answers on the page of a run: confusion, scores per label, reliability and latency."""

from collections.abc import Iterator, Sequence

from groupwise.evaluation import page
from groupwise.evaluation.label_metrics import bin_reliability, count_confusion
from groupwise.evaluation.metrics import MAX_LABELS
from groupwise.evaluation.page import Block, Part, Words
from groupwise.evaluation.predictions import Prediction, have_truths
from groupwise.evaluation.report.content import Report

_MAX_BESIDE = 4
_KINDS = ("precision", "recall", "f1")


def show_answers(report: Report, words: Words) -> Part:
    """Return confusion, scores per label, reliability and latency of every policy."""
    return Part("answers", words.label("answers"), tuple(_list_blocks(report, words)))


def _list_blocks(report: Report, words: Words) -> Iterator[Block]:
    items = [item for items in report.answers.values() for item in items]
    labels = find_labels(items) if have_truths(items) else ()
    # Open answers are as many as items: a row for each shows nothing and takes minutes to draw.
    if 2 <= len(labels) <= MAX_LABELS:
        yield from _list_details(report, labels, words)
    timed = {name: found for name, found in report.main.items() if "latency_p50_s" in found}
    if timed:
        yield page.Heading(words.label("latency"))
        yield page.tabulate_metrics(
            [(words.title_policy(name), found) for name, found in timed.items()],
            {name: words.label(name) for name in ("latency_p50_s", "latency_p95_s")},
            head=words.label("policy"),
            count="latency_p50_s",
        )


def find_labels(predictions: Sequence[Prediction]) -> tuple[str, ...]:
    """Return every label that occurs, in the order of the fullest probabilities, then by name."""
    tables = [list(item.probabilities) for item in predictions if item.probabilities is not None]
    known = max(tables, key=len) if tables else []
    answers = (answer for item in predictions for answer in (item.label, item.predicted))
    seen = {answer for answer in answers if answer is not None}
    seen |= {name for table in tables for name in table}
    return (*known, *sorted(seen - set(known)))


def _list_details(report: Report, labels: tuple[str, ...], words: Words) -> Iterator[Block]:
    yield page.Paragraph(words.label("answers_lead", split=report.split))
    confusions = (
        page.tabulate_confusion(words.title_policy(policy), count_confusion(items, labels), words)
        for policy, items in report.answers.items()
    )
    yield page.Tables(tuple(confusions), is_wide=len(labels) > _MAX_BESIDE)
    yield page.Heading(words.label("per_label"))
    yield _tabulate_labels(report, labels, words)
    if reliabilities := tuple(_plot_reliabilities(report, labels, words)):
        yield page.Heading(words.label("reliability"))
        yield page.Paragraph(words.label("reliability_lead"))
        yield page.Plots(reliabilities)


def _tabulate_labels(report: Report, labels: tuple[str, ...], words: Words) -> page.Table:
    head = words.labels("policy", "label", *_KINDS)
    rows = tuple(
        (
            words.title_policy(policy) if place == 0 else "",
            label,
            *(
                page.show_metric(report.main.get(policy, {}).get(f"{kind}:{label}"))
                for kind in _KINDS
            ),
        )
        for policy in report.answers
        for place, label in enumerate(labels)
    )
    return page.Table("", head, rows, num_heads=2)


def _plot_reliabilities(
    report: Report, labels: tuple[str, ...], words: Words
) -> Iterator[page.Plot]:
    for policy, items in report.answers.items():
        bins = bin_reliability(items, labels)
        if any(part.num_items for part in bins):
            yield page.plot_reliability(
                page.name_file("reliability", policy),
                words.title_policy(policy),
                bins,
                words,
                color=page.color_policy(policy, words.policies),
                caption=page.tell_calibration(report.main.get(policy, {}), words),
            )
