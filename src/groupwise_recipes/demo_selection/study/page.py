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
    Phrases,
    Statement,
    Table,
    Tables,
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
    phrases = choose_words(language)
    page = lay_out(study, verdict, reasons, phrases)
    html, _ = write_page(page, folder, name=NAME)
    write_json(folder / f"{NAME}.json", _dump(study, verdict, reasons))
    told = [f"{phrases.say(f'level.{one.level}')}: {one.text}" for one in page.notices]
    for box in page.boxes:
        told += [box.title, *(f"- {one}" for one in (*box.paragraphs, *box.points))]
    return [*map(unmark_code, told), f"report: {html}"]


def lay_out(study: Study, verdict: Verdict, reasons: Sequence[Statement], phrases: Phrases) -> Page:
    """Return the page."""
    colors = [(pick_color(place), arm.name) for place, arm in enumerate(study.arms)]
    title = phrases.say(_TITLES.get(verdict.outcome, "no_recommendation"), name=verdict.arm)
    kind = "verdict yes" if verdict.arm else "verdict"
    findings = tuple(map(phrases.say, list_findings(study, verdict)))
    boxes = (
        Box(kind, title=title, points=tuple(map(phrases.say, reasons))),
        *([Box("findings", findings, phrases.say("findings"))] if findings else []),
    )
    return Page(
        title=phrases.say("study_title"),
        lead=phrases.say("study_lead", arms=[arm.name for arm in study.arms]),
        language=phrases.language,
        notices=tuple(Notice(one.level, phrases.say(one)) for one in collect_notices(study)),
        checked=phrases.say("study_checked"),
        legend=tuple(colors),
        boxes=boxes,
        parts=tuple(_list_parts(study, phrases)),
        footer=(
            Fold(
                phrases.say("sources"),
                (Bullets(tuple(mark_code(run.folder) for arm in study.arms for run in arm.runs)),),
            ),
            Paragraph(phrases.say("study_footer"), ""),
        ),
        is_sortable=True,
    )


def _list_parts(study: Study, phrases: Phrases) -> Iterator[Part]:
    def part(name: str, *blocks: Block) -> Part:
        return Part(
            name, phrases.say(f"part_{name}"), (Paragraph(phrases.say(f"lead_{name}")), *blocks)
        )

    yield part("settings", tables.tabulate_settings(study, phrases))
    yield part("training", *_show_training(study, phrases))
    yield part("accuracies", _beside(grids.tabulate_accuracies(study, phrases)))
    if len(study.arms) > 1 and study.epochs:
        yield part("differences", *_show_differences(study, phrases))
    if own := grids.tabulate_own_epochs(study, phrases):
        yield part("own_epochs", _beside(own))
    yield part("lists", tables.tabulate_lists(study, phrases))
    yield part("systems", _beside(grids.tabulate_systems(study, phrases)))
    if len(study.arms) > 1:
        yield part("arms", *_show_arms(study, phrases))


def _beside(found: tuple[Table, ...]) -> Tables:
    return Tables(found, is_wide=True)


def _show_training(study: Study, phrases: Phrases) -> Iterator[Block]:
    warmup, found = (tables.tabulate_training(study, phase, phrases) for phase in tables.PHASES)
    if found.rows:
        yield Heading("GRPO")
        yield found
    changes = tables.tabulate_changes(study, phrases)
    if changes.rows:
        yield Heading(phrases.say("changes_of"))
        yield changes
    readings = [said for arm in study.arms if (said := read_kl(arm)) is not None]
    if readings:
        yield Bullets((*map(phrases.say, readings), phrases.say("policy_loss_says")))
    if len(study.arms) > 1 and study.epochs:
        yield Heading(phrases.say("kl_of_arms"))
        yield tables.tabulate_kl(study, phrases)
    if warmup.rows:
        yield Fold("RCE", (warmup,))


def _show_differences(study: Study, phrases: Phrases) -> Iterator[Block]:
    yield Heading(phrases.say("summary_of_epochs"))
    yield grids.tabulate_summary(study, phrases)
    yield Heading(phrases.say("by_shots"))
    yield _beside(grids.tabulate_by(study, "shots", phrases))
    yield Heading(phrases.say("by_size"))
    yield _beside(grids.tabulate_by(study, "size", phrases))
    yield Heading(phrases.say("every_cell"))
    yield _beside(grids.tabulate_differences(study, phrases))


def _show_arms(study: Study, phrases: Phrases) -> Iterator[Block]:
    for arm in study.arms:
        yield Heading(arm.name)
        good, bad = weigh_arm(study, arm)
        for name, said in (("advantages", good), ("disadvantages", bad)):
            points = tuple(map(phrases.say, said)) or (phrases.say("none_seen"),)
            yield Paragraph(phrases.say(name), "title")
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
