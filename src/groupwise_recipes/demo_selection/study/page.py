"""The page of a study: warnings, findings and the recommendation first, then every table."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groupwise.core import write_json
from groupwise.evaluation import (
    Block,
    Box,
    Bullets,
    Fold,
    Heading,
    Language,
    Notice,
    Page,
    Paragraph,
    Part,
    Statement,
    Table,
    Tables,
    Words,
    mark_code,
    pick_color,
    unmark_code,
    write_page,
)
from groupwise_recipes.demo_selection.study import grids, tables
from groupwise_recipes.demo_selection.study.arms import read_arms
from groupwise_recipes.demo_selection.study.notices import collect_notices, list_unlike
from groupwise_recipes.demo_selection.study.reading import (
    list_findings,
    list_reasons,
    read_kl,
    weigh_arm,
    write_command,
)
from groupwise_recipes.demo_selection.study.values import Study, make_study
from groupwise_recipes.demo_selection.study.verdict import Verdict, judge
from groupwise_recipes.demo_selection.study.words import choose_words

NAME = "study"
_TITLES = {"recommended": "study_recommended", "checkpoint": "recommended"}


def write_study(runs: Sequence[Path], folder: Path, *, language: Language = "en") -> list[str]:
    """Write ``study.html``, ``.md`` and ``.json`` of runs that differ in β and seed.

    Args:
        runs: evaluated runs.
        folder: where to.
        language: of the page.

    Returns:
        What a terminal shows: warnings, findings, the recommendation, and where the page is.

    Raises:
        EvaluationError: as ``read_arms``.
        DataError: if a file is damaged.
    """
    study = make_study(read_arms(runs))
    verdict = judge(study, is_alike=not list_unlike(study))
    command = write_command(study)
    reasons = list(list_reasons(study, verdict, command=command))
    words = choose_words(language)
    page = lay_out(study, verdict, reasons, words)
    html, _ = write_page(page, folder, name=NAME)
    write_json(folder / f"{NAME}.json", _dump(study, verdict, reasons))
    told = [f"{words.label(f'level_{one.level}')}: {one.text}" for one in page.notices]
    for box in page.boxes:
        told += [box.title, *(f"- {one}" for one in (*box.paragraphs, *box.points))]
    return [*map(unmark_code, told), f"report: {html}"]


def lay_out(study: Study, verdict: Verdict, reasons: Sequence[Statement], words: Words) -> Page:
    """Return the page."""
    colors = [(pick_color(place), arm.name) for place, arm in enumerate(study.arms)]
    title = words.label(_TITLES.get(verdict.outcome, "no_recommendation"), name=verdict.arm)
    kind = "verdict yes" if verdict.arm else "verdict"
    findings = tuple(map(words.say, list_findings(study, verdict)))
    boxes = (
        Box(kind, title=title, points=tuple(map(words.say, reasons))),
        *([Box("findings", findings, words.label("findings"))] if findings else []),
    )
    return Page(
        title=words.label("study_title"),
        lead=words.label("study_lead", arms=[arm.name for arm in study.arms]),
        language=words.language,
        notices=tuple(Notice(one.level, words.say(one)) for one in collect_notices(study)),
        checked=words.label("study_checked"),
        legend=tuple(colors),
        boxes=boxes,
        parts=tuple(_list_parts(study, words)),
        footer=(
            Fold(
                words.label("sources"),
                (Bullets(tuple(mark_code(run.folder) for arm in study.arms for run in arm.runs)),),
            ),
            Paragraph(words.label("study_footer"), ""),
        ),
        is_sortable=True,
    )


def _list_parts(study: Study, words: Words) -> Iterator[Part]:
    def part(name: str, *blocks: Block) -> Part:
        return Part(
            name, words.label(f"part_{name}"), (Paragraph(words.label(f"lead_{name}")), *blocks)
        )

    yield part("settings", tables.tabulate_settings(study, words))
    yield part("training", *_show_training(study, words))
    yield part("accuracies", _beside(grids.tabulate_accuracies(study, words)))
    if len(study.arms) > 1 and study.epochs:
        yield part("differences", *_show_differences(study, words))
    if own := grids.tabulate_own_epochs(study, words):
        yield part("own_epochs", _beside(own))
    yield part("lists", tables.tabulate_lists(study, words))
    yield part("systems", _beside(grids.tabulate_systems(study, words)))
    if len(study.arms) > 1:
        yield part("arms", *_show_arms(study, words))


def _beside(found: tuple[Table, ...]) -> Tables:
    return Tables(found, is_wide=True)


def _show_training(study: Study, words: Words) -> Iterator[Block]:
    warmup, found = (tables.tabulate_training(study, phase, words) for phase in tables.PHASES)
    if found.rows:
        yield Heading("GRPO")
        yield found
    changes = tables.tabulate_changes(study, words)
    if changes.rows:
        yield Heading(words.label("changes_of"))
        yield changes
    readings = [said for arm in study.arms if (said := read_kl(arm)) is not None]
    if readings:
        yield Bullets((*map(words.say, readings), words.label("policy_loss_says")))
    if len(study.arms) > 1 and study.epochs:
        yield Heading(words.label("kl_of_arms"))
        yield tables.tabulate_kl(study, words)
    if warmup.rows:
        yield Fold("RCE", (warmup,))


def _show_differences(study: Study, words: Words) -> Iterator[Block]:
    yield Heading(words.label("summary_of_epochs"))
    yield grids.tabulate_summary(study, words)
    yield Heading(words.label("by_shots"))
    yield _beside(grids.tabulate_by(study, "shots", words))
    yield Heading(words.label("by_size"))
    yield _beside(grids.tabulate_by(study, "size", words))
    yield Heading(words.label("every_cell"))
    yield _beside(grids.tabulate_differences(study, words))


def _show_arms(study: Study, words: Words) -> Iterator[Block]:
    for arm in study.arms:
        yield Heading(arm.name)
        good, bad = weigh_arm(study, arm)
        for name, said in (("advantages", good), ("disadvantages", bad)):
            points = tuple(map(words.say, said)) or (words.label("none_seen"),)
            yield Paragraph(words.label(name), "title")
            yield Bullets(points)


def _dump(study: Study, verdict: Verdict, reasons: Sequence[Statement]) -> dict[str, Any]:
    """Return the numbers of the page."""
    return {
        "verdict": asdict(verdict),
        "reasons": [asdict(one) for one in reasons],
        "notices": [asdict(one) for one in collect_notices(study)],
        "findings": [asdict(one) for one in list_findings(study, verdict)],
        "arms": [
            {
                "name": arm.name,
                "beta": arm.beta,
                "seeds": arm.seeds,
                "runs": [str(run.folder) for run in arm.runs],
                "training": {
                    run.seed: {
                        phase: [asdict(one) for one in epochs]
                        for phase, epochs in run.training.items()
                    }
                    for run in arm.runs
                },
                "cells": [
                    {**asdict(place), "accuracy": study.measure(arm, place)}
                    for place in study.list_places((0, *study.epochs))
                ],
            }
            for arm in study.arms
        ],
    }
