"""The tables of a study's accuracies: grids, differences, their summary, shots and sizes."""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from groupwise.evaluation import Cell, Phrases, Scale, Table, format_share
from groupwise_recipes.demo_selection.study.arms import Arm
from groupwise_recipes.demo_selection.study.values import Place, Study, Summary, has_same_items
from groupwise_recipes.demo_selection.study.words import NOT_RUN, name_arms, show_points

OTHER_ITEMS = "≠"
BASELINES = (
    *("none", "random", "nearest_text", "nearest_picture", "nearest_both"),
    *("mmices", "knn_few_shot", "pointwise", "pointwise_reversed", "oracle"),
)
REVERSED = "grpo_reversed"
Axis = Literal["shots", "size"]


def tabulate_accuracies(study: Study, phrases: Phrases) -> tuple[Table, ...]:
    """Return the accuracies of each arm by epoch, size and shots; epoch 0 is where GRPO starts."""
    values = [
        value
        for arm in study.arms
        for place in study.list_places((0, *study.epochs))
        if (value := study.measure(arm, place)) is not None
    ]
    scale = Scale(min(values, default=0.0), max(values, default=0.0))

    def show(arm: Arm, place: Place) -> Cell:
        value = study.measure(arm, place)
        if value is None:
            return Cell(NOT_RUN)
        return Cell(format_share(value), order=value, style=scale.shade_value(value))

    return tuple(
        _tabulate(
            study,
            phrases,
            arm.name,
            {one: show(arm, one) for one in study.list_places((0, *study.epochs))},
        )
        for arm in study.arms
    )


def tabulate_own_epochs(study: Study, phrases: Phrases) -> tuple[Table, ...]:
    """Return the accuracies of epochs that not every arm has."""
    return tuple(
        _tabulate(
            study,
            phrases,
            arm.name,
            {one: _show_value(study.measure(arm, one)) for one in study.list_places(epochs)},
        )
        for arm in study.arms
        if (epochs := study.list_own_epochs(arm))
    )


def _show_value(value: float | None) -> Cell:
    return Cell(NOT_RUN if value is None else format_share(value), order=value)


def tabulate_differences(study: Study, phrases: Phrases) -> tuple[Table, ...]:
    """Return the signed differences of each pair of arms."""
    places = study.list_places(study.epochs)
    gaps = {pair: [study.subtract(*pair, one) for one in places] for pair in study.pairs}
    known = [gap.value for one in gaps.values() for gap in one if gap.value is not None]
    scale = Scale(min(known, default=0.0), max(known, default=0.0))

    def show(value: float | None, *, is_alike: bool) -> Cell:
        if value is None:
            return Cell(NOT_RUN if is_alike else OTHER_ITEMS)
        return show_points(value, style=scale.shade_difference(value))

    return tuple(
        _tabulate(
            study,
            phrases,
            name_arms(*pair),
            {gap.place: show(gap.value, is_alike=has_same_items(*pair)) for gap in one},
        )
        for pair, one in gaps.items()
    )


def _tabulate(study: Study, phrases: Phrases, title: str, cells: dict[Place, Cell]) -> Table:
    """Return a grid: a row per epoch and size, a column per number of shots."""
    heads = (*phrases.say_each("epoch", "size"), *(_head(shots, phrases) for shots in study.shots))
    starts = dict.fromkeys((place.epoch, place.size) for place in cells)
    rows = tuple(
        (
            Cell(str(epoch) if epoch else phrases.say("start"), order=epoch),
            Cell(str(size), order=size),
            *(cells[Place(epoch, size, shots)] for shots in study.shots),
        )
        for epoch, size in starts
    )
    return Table(title, heads, rows, num_heads=2, kind="heat")


def _head(shots: int, phrases: Phrases) -> str:
    return phrases.say("shots_of", shots=shots)


def tabulate_summary(study: Study, phrases: Phrases) -> Table:
    """Return a row per pair and epoch: mean, best gain, worst loss, cells up and down."""
    rows = [
        (
            Cell(name_arms(first, second)),
            Cell(str(epoch), order=epoch),
            *_show_summary(study.summarize(first, second, study.list_places([epoch])), phrases),
        )
        for first, second in study.pairs
        for epoch in study.epochs
    ]
    names = ("pair", "epoch", "mean_difference", "best_gain", "worst_loss", "up", "down", "cells")
    return Table("", phrases.say_each(*names), tuple(rows), num_heads=2)


def _show_summary(found: Summary, phrases: Phrases) -> Sequence[Cell]:
    best, worst = (
        show_points(
            gap and gap.value,
            phrases.say("at_place", size=gap.place.size, shots=gap.place.shots) if gap else "",
        )
        for gap in (found.best, found.worst)
    )
    counts = (found.num_up, found.num_down)
    return (
        show_points(found.mean),
        best,
        worst,
        *(Cell(str(one) if found.num_known else NOT_RUN, order=one) for one in counts),
        Cell(phrases.say("of", part=found.num_known, all=found.num_cells), order=found.num_known),
    )


def tabulate_by(study: Study, axis: Axis, phrases: Phrases) -> tuple[Table, ...]:
    """Return a table per pair: mean difference by shots or size and epoch, with its trend."""
    values = study.shots if axis == "shots" else study.sizes
    heads = (
        phrases.say("shots" if axis == "shots" else "size"),
        *(f"{phrases.say('epoch')} {epoch}" for epoch in study.epochs),
        phrases.say("trend"),
    )
    return tuple(
        Table(
            name_arms(*pair),
            heads,
            tuple(
                (
                    Cell(str(value), order=value),
                    *_show_course(study, pair, {axis: [value]}, phrases),
                )
                for value in values
            ),
        )
        for pair in study.pairs
    )


def _show_course(
    study: Study, pair: tuple[Arm, Arm], chosen: dict[str, list[int]], phrases: Phrases
) -> list[Cell]:
    """Return the mean difference of each epoch, and its change from the first to the last.

    The trend is computed only where all epochs ran the same cells.
    """
    sizes = chosen.get("size")
    shots = chosen.get("shots")
    by_epoch = [
        {(gap.place.size, gap.place.shots): gap.value for gap in found}
        for found in (
            [study.subtract(*pair, one) for one in study.list_places([e], sizes=sizes, shots=shots)]
            for e in study.epochs
        )
    ]
    known = [{at: v for at, v in one.items() if v is not None} for one in by_epoch]
    means = [fmean(one.values()) if one else None for one in known]
    cells = [
        show_points(
            mean,
            "" if len(own) == len(every) else phrases.say("of", part=len(own), all=len(every)),
        )
        for mean, own, every in zip(means, known, by_epoch, strict=True)
    ]
    is_comparable = len(known) > 1 and len({frozenset(one) for one in known}) == 1
    first, last = (means[0], means[-1]) if means else (None, None)
    if not is_comparable or first is None or last is None:
        return [*cells, show_points(None)]
    return [*cells, show_points(last - first)]


def tabulate_systems(study: Study, phrases: Phrases) -> tuple[Table, ...]:
    """Return what each arm stands beside, on all test items: baselines and selectors by shots."""
    size = max(study.sizes, default=0)
    return tuple(_tabulate_systems(study, arm, size, phrases) for arm in study.arms)


def _tabulate_systems(study: Study, arm: Arm, size: int, phrases: Phrases) -> Table:
    last = max(arm.list_epochs(), default=None)
    rows = [
        (Cell(phrases.title("systems", name)), *_show_system(study, arm, name, size=size))
        for name in BASELINES
    ]
    if last is not None:
        name = phrases.title("systems", REVERSED)
        rows.append((Cell(name), *_show_system(study, arm, REVERSED, size=size, epoch=last)))
    for epoch in (0,) if last is None else (0, last):
        name = phrases.say("grpo_of", epoch=epoch) if epoch else phrases.say("start_of")
        cells = [_show_value(study.measure(arm, Place(epoch, size, one))) for one in study.shots]
        rows.append((Cell(name, is_strong=True), *cells))
    heads = (phrases.say("system"), *(_head(shots, phrases) for shots in study.shots))
    return Table(arm.name, heads, tuple(rows), kind="headline")


def _show_system(
    study: Study, arm: Arm, system: str, *, size: int, epoch: int | None = None
) -> list[Cell]:
    return [
        _show_value(study.measure_system(arm, system, size=size, shots=shots, epoch=epoch))
        for shots in study.shots
    ]
