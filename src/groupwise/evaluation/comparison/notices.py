"""What must be known before any number of a comparison, the worst first.

Each rule looks at the cells and their items only and says what it saw; none changes a number.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from groupwise.core import digest_json
from groupwise.evaluation.comparison.content import Versus
from groupwise.evaluation.comparison.material import Answers, Coordinates, GridCell, Material
from groupwise.evaluation.page import LEVELS, Statement
from groupwise.evaluation.predictions import find_constant
from groupwise.evaluation.report.notices import MAX_INVALID_RATE, MIN_CLUSTERS, MIN_ITEMS
from groupwise.evaluation.sameness import summarize_same


def collect_notices(material: Material, versus: Sequence[Versus]) -> tuple[Statement, ...]:
    """Return all notices: those of the fairness gate first, then errors before warnings."""
    found = [
        *_note_other_items(versus),
        *_note_idle_axes(material),
        *_note_cells(material.cells),
        *_note_direction(material),
        *_note_invalid(material),
        *_note_constant(material),
        *_note_untested(material),
        *_note_sizes(material),
        *_note_nested(material),
        *material.looks,
    ]
    by_level = sorted(found, key=lambda one: LEVELS.index(one.level))
    gate = material.gate.notices
    return (
        *(one for one in gate if one.level == "error"),
        *(one for one in by_level if one.level == "error"),
        *(one for one in (*gate, *by_level) if one.level == "warning"),
        *(one for one in (*gate, *by_level) if one.level == "info"),
    )


def _note_other_items(versus: Sequence[Versus]) -> Iterator[Statement]:
    for pair in versus:
        if len(pair.gaps) == 1:
            continue  # the fairness gate says it
        num = sum(gap.why_none == "other_items" for gap in pair.gaps)
        if num:
            values = {"first": pair.first, "second": pair.second, "num_cells": num}
            yield Statement("notice.other_items", values, "error")


def _note_cells(cells: Sequence[GridCell]) -> Iterator[Statement]:
    failed = [cell for cell in cells if cell.state == "failed"]
    for cell in failed[:5]:
        values = {"name": cell.system, "at": cell.coordinates, "error": cell.error}
        yield Statement("notice.failed", values, "warning")
    missing = sum(cell.is_missing for cell in cells)
    if missing:
        values = {"num_missing": missing, "num_cells": len(cells), "num_failed": len(failed)}
        yield Statement("notice.missing", values, "warning")


def _note_direction(material: Material) -> Iterator[Statement]:
    if not material.is_direction_known:
        yield Statement("notice.direction", {"measure": material.measure}, "warning")


def _note_invalid(material: Material) -> Iterator[Statement]:
    """Say once for each system how many answers are invalid where they are most."""
    for one in material.systems:
        cells = [cell for cell in material.cells if cell.system == one.name]
        worst = max((cell.invalid_rate or 0.0 for cell in cells), default=0.0)
        if worst > MAX_INVALID_RATE:
            values = {"name": one.name, "rate": worst, "num_cells": len(cells)}
            kind = "notice.invalid_most" if len(cells) > 1 else "notice.invalid"
            yield Statement(kind, values, "warning")


def _note_constant(material: Material) -> Iterator[Statement]:
    """Say of each system that gives one answer to all items of a cell, in how many it does."""
    for one in material.systems:
        cells = [answers for (name, _), answers in material.answers.items() if name == one.name]
        given = [find_constant(list(answers.predictions.values())) for answers in cells]
        constant = [answer for answer in given if answer is not None]
        values = {"name": one.name, "answers": sorted(set(constant)), "num_cells": len(cells)}
        if constant and len(cells) == 1:
            num = len(cells[0].predictions)
            yield Statement("notice.constant", values | {"n": num}, "warning")
        elif constant:
            yield Statement("notice.constant_cells", values | {"num": len(constant)}, "warning")


def _note_untested(material: Material) -> Iterator[Statement]:
    done = [cell for cell in material.cells if cell.value is not None]
    if done and not material.answers:
        yield Statement("notice.no_items", {}, "warning")


def _note_sizes(material: Material) -> Iterator[Statement]:
    """Say once how small the smallest set of items and of clusters is."""
    sizes = [cell.n for cell in material.cells if cell.n is not None]
    if sizes and min(sizes) < MIN_ITEMS:
        small = sum(size < MIN_ITEMS for size in sizes)
        values = {"n": min(sizes), "num_small": small, "num_cells": len(material.cells)}
        yield Statement("notice.few_items", values, "warning")
    clusters = [cell.num_clusters for cell in material.cells if cell.num_clusters is not None]
    if clusters and min(clusters) < MIN_CLUSTERS:
        yield Statement("notice.few_clusters", {"num_clusters": min(clusters)}, "warning")


def _note_nested(material: Material) -> Iterator[Statement]:
    for index, axis in enumerate(material.axes):
        is_nested = axis.is_nested if not material.answers else is_axis_nested(material, index)
        if is_nested:
            yield Statement("notice.nested", {"axis": axis.key}, "info")


def is_axis_nested(material: Material, index: int) -> bool:
    """Whether along an axis every smaller item set is a part of every larger one."""
    by_rest: dict[tuple[str, Coordinates], set[frozenset[str]]] = {}
    for (system, place), answers in material.answers.items():
        rest = (system, place[:index] + place[index + 1 :])
        by_rest.setdefault(rest, set()).add(frozenset(answers.items.ids))
    sets = [sorted(found, key=len) for found in by_rest.values() if len(found) > 1]
    return bool(sets) and all(a < b for found in sets for a, b in pairwise(found))


def _note_idle_axes(material: Material) -> Iterator[Statement]:
    """Say which values of an axis gave exactly the same results: nothing changed between them."""
    if not material.axes:
        return
    names = [material.system_axis or "", *(axis.key for axis in material.axes)]
    results = [
        (
            dict(zip(names, (cell.system, *cell.coordinates), strict=True)),
            _digest_result(cell, material.answers),
        )
        for cell in material.cells
    ]
    for remark in summarize_same(results):
        values = {"reason": remark.name, "words": remark.words}
        yield Statement("notice.gate", values, remark.level)


def _digest_result(
    cell: GridCell, answers: Mapping[tuple[str, Coordinates], Answers]
) -> str | float | None:
    """Return the digest of a cell's answers, its value where there are none, None if not run."""
    found = answers.get((cell.system, cell.coordinates))
    if found is None:
        return cell.value
    rows = found.predictions
    return digest_json([[name, rows[name].predicted, rows[name].text] for name in sorted(rows)])
