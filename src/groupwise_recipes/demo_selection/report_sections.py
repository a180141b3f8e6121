"""What the report says beside accuracies: how demonstrations are used, and what GRPO changed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from groupwise.core import read_json
from groupwise.evaluation import (
    Metric,
    Policies,
    Section,
    Table,
    make_tile,
    tabulate_policies,
)
from groupwise_recipes.demo_selection.cells import Cell, CellRow
from groupwise_recipes.demo_selection.demonstration_use import UseFigure
from groupwise_recipes.demo_selection.evaluation import REVERSED
from groupwise_recipes.demo_selection.results import MEAN, list_policies, name_shots

_FIGURES = TypeAdapter(tuple[UseFigure, ...])
_USE = (
    "Lists made for that, of train items, asked of anchors: an answerer that does not use "
    "demonstrations, or one that never errs, leaves nothing to choose. Of contradicting "
    "demonstrations the last one counts."
)
_BY_SHOTS = (
    "How often the answerer is right behind so many demonstrations. The best of the tried has seen "
    "the answers: it is an upper bound, not a rival."
)
_CHANGED = (
    "Shares of the test items: lists that differ from those of RCE, in items or in order; answers "
    "that differ from those behind RCE's lists; and answers that differ when GRPO's own lists are "
    "turned round."
)


def make_sections(
    cells: Mapping[Cell, Sequence[CellRow]], *, use: Path, shots: Sequence[int]
) -> list[Section]:
    """Return the sections of a run's report.

    Args:
        cells: rows of the last epoch of each training, among others.
        use: file of ``UseFigure``, where the answerer was taught here.
        shots: numbers of demonstrations.
    """
    found = [Section("What GRPO changed", _CHANGED, (_tabulate_changes(cells, shots),))]
    if use.is_file():
        figures = _FIGURES.validate_python(read_json(use, list))
        found.append(Section("How the answerer uses demonstrations", _USE, (_tabulate(figures),)))
    return found


def make_first_section(metrics: Sequence[Metric]) -> Section:
    """Return the measures by number of shots, the mean of GRPO among the report's first numbers."""
    shown = [one for one in metrics if one.measure.startswith("vqa_")]
    columns = {
        ("mean" if name == MEAN else name_shots(int(name.removeprefix("vqa_")))): name
        for name in dict.fromkeys(one.measure for one in sorted(shown, key=lambda one: one.measure))
    }
    policies = Policies(tuple(list_policies({one.policy for one in shown})))
    tiles = [
        make_tile(one, f"VQA accuracy of GRPO on {one.split}, mean over the numbers of shots")
        for one in shown
        if one.name == f"grpo/{MEAN}"
    ]
    table = tabulate_policies(shown, columns, policies=policies)
    return Section("VQA accuracy by shots", _BY_SHOTS, (table,), tuple(tiles))


def _tabulate(figures: Sequence[UseFigure]) -> Table:
    rows = [
        (
            f"{one.situation}, {name_shots(one.num_shots)}" if one.num_shots else one.situation,
            _share(one.num_right, one.num_asked),
            _share(one.num_right_reversed, one.num_asked),
            _share(one.num_changed, one.num_asked),
            f"{one.num_asked:,}",
        )
        for one in figures
    ]
    return Table("", ("Demonstrations", "Right", "Right, reversed", "Changed", "n"), tuple(rows))


def _tabulate_changes(cells: Mapping[Cell, Sequence[CellRow]], shots: Sequence[int]) -> Table:
    by_system = {(cell.system, cell.shots): rows for cell, rows in cells.items()}
    rows = [
        (
            name_shots(number),
            _share(_count(trained, before, "demos"), len(trained)),
            _share(_count(trained, before, "answer"), len(trained)),
            _share(_count(trained, turned, "answer"), len(trained)),
            f"{len(trained):,}",
        )
        for number in shots
        for before, trained, turned in [
            tuple(by_system[name, number] for name in ("rce", "grpo", f"grpo{REVERSED}"))
        ]
    ]
    head = ("", "Lists changed", "Answers changed", "Answers changed, reversed", "n")
    return Table("", head, tuple(rows))


def _count(ours: Sequence[CellRow], theirs: Sequence[CellRow], name: str) -> int:
    return sum(getattr(a, name) != getattr(b, name) for a, b in zip(ours, theirs, strict=True))


def _share(number: int, total: int) -> str:
    return f"{number / total:.1%}" if total else "–"
