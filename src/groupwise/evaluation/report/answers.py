"""Answers and mistakes on the page of a run."""

from collections.abc import Iterator
from pathlib import Path

from groupwise.evaluation.page import (
    Block,
    Card,
    Cards,
    Heading,
    Paragraph,
    Part,
    Plot,
    Plots,
    Table,
    Tables,
    Words,
    color_policy,
    name_file,
    numbers,
    plot_reliability,
    shorten,
    show_metric,
    tabulate_confusion,
    tabulate_metrics,
)
from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.prompts import MAX_TEXT, Prompts
from groupwise.evaluation.report.content import Report
from groupwise.evaluation.report.items import MAX_ANSWER, show_item

_MAX_BESIDE = 4
_KINDS = ("precision", "recall", "f1")


def show_answers(report: Report, words: Words) -> Part:
    """Return confusion, scores per label, reliability and latency of every policy."""
    return Part("answers", words.label("answers"), tuple(_list_blocks(report, words)))


def _list_blocks(report: Report, words: Words) -> Iterator[Block]:
    if report.details:
        yield from _list_details(report, words)
    timed = {name: found for name, found in report.main.items() if "latency_p50_s" in found}
    if timed:
        yield Heading(words.label("latency"))
        yield tabulate_metrics(
            [(words.title_policy(name), found) for name, found in timed.items()],
            {name: words.label(name) for name in ("latency_p50_s", "latency_p95_s")},
            head=words.label("policy"),
            count="latency_p50_s",
        )


def _list_details(report: Report, words: Words) -> Iterator[Block]:
    yield Paragraph(words.label("answers_lead", split=report.split))
    confusions = (
        tabulate_confusion(words.title_policy(one.policy), one.confusion, words)
        for one in report.details
    )
    is_wide = len(report.details[0].confusion.labels) > _MAX_BESIDE
    yield Tables(tuple(confusions), is_wide=is_wide)
    yield Heading(words.label("per_label"))
    yield _tabulate_labels(report, words)
    if reliabilities := tuple(_plot_reliabilities(report, words)):
        yield Heading(words.label("reliability"))
        yield Paragraph(words.label("reliability_lead"))
        yield Plots(reliabilities)


def _tabulate_labels(report: Report, words: Words) -> Table:
    head = words.labels("policy", "label", *_KINDS)
    rows = tuple(
        (
            words.title_policy(one.policy) if place == 0 else "",
            label,
            *(
                show_metric(report.main.get(one.policy, {}).get(f"{kind}:{label}"))
                for kind in _KINDS
            ),
        )
        for one in report.details
        for place, label in enumerate(one.confusion.labels)
    )
    return Table("", head, rows, num_heads=2)


def _plot_reliabilities(report: Report, words: Words) -> Iterator[Plot]:
    for one in report.details:
        if any(part.num_items for part in one.bins):
            measures = report.main.get(one.policy, {})
            scores = [
                f"{words.label(name)} {numbers.format_value(measures[name])}"
                for name in ("brier", "ece")
                if name in measures
            ]
            yield plot_reliability(
                name_file("reliability", one.policy),
                words.title_policy(one.policy),
                one.bins,
                words,
                color=color_policy(one.policy, words.policies),
                caption=words.join(scores),
            )


def show_mistakes(report: Report, words: Words) -> Part:
    """Return the most confident mistakes of the last policy with their pictures."""
    found, blocks = report.mistakes, list[Block]()
    if found is not None:
        name = "some_wrong" if found.num_wrong else "none_wrong"
        values = {"num": found.num_wrong, "all": found.num_items, "shown": len(found.shown)}
        policy = words.title_policy(found.policy)
        lead = words.label(name, policy=policy, split=report.split, **values)
        cards = [
            _show_mistake(one, picture, report.files.prompts, words)
            for one, picture in zip(found.shown, found.pictures, strict=True)
        ]
        blocks = [Paragraph(lead), *([Cards(tuple(cards))] if cards else [])]
    return Part("mistakes", words.label("mistakes"), tuple(blocks))


def _show_mistake(one: Prediction, picture: Path | None, asked: Prompts, words: Words) -> Card:
    sure = "" if one.confidence is None else words.label("sure", share=one.confidence)
    wrong = words.label("invalid_answer")
    if one.predicted is not None:
        wrong = words.label("answered", answer=shorten(one.predicted, MAX_ANSWER))
    said = words.label("said_nothing")
    if one.text:
        said = words.label("said", text=shorten(one.text, MAX_TEXT))
    reason = words.label("in_brackets", text=one.reason) if one.reason else ""
    pills = [("wrong", f"{wrong}{sure}")]
    return show_item(one, f"{said}{reason}", words, pills=pills, picture=picture, asked=asked)
