"""What the report says beside accuracies: how demonstrations are used, and what GRPO changed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from groupwise.core import read_json
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.predictions import Policies
from groupwise.evaluation.report.page import Table, Tile
from groupwise.evaluation.report.phrases import DASH, LANGUAGES, Phrases, format_share
from groupwise.evaluation.report.tables import Section, make_tile, tabulate_policies
from groupwise_recipes.demo_selection.cells import Cell, CellRow
from groupwise_recipes.demo_selection.demonstration_use import UseFigure
from groupwise_recipes.demo_selection.evaluation import REVERSED
from groupwise_recipes.demo_selection.results import MEAN, list_policies

_FIGURES = TypeAdapter(tuple[UseFigure, ...])
_PHRASES = Path(__file__).with_name("phrases.yaml")


def make_sections(
    metrics: Sequence[Metric],
    cells: Mapping[Cell, Sequence[CellRow]],
    *,
    use: Path,
    shots: Sequence[int],
) -> list[Section]:
    """Return the sections of a run's report, by language.

    Args:
        metrics: of the run.
        cells: rows of the last epoch of each training, among others.
        use: file of ``UseFigure``, where the answerer was taught here.
        shots: numbers of demonstrations.
    """
    by_shots = [one for one in metrics if one.measure.startswith("vqa_")]
    policies = Policies(tuple(list_policies({one.policy for one in by_shots})))
    figures = _FIGURES.validate_python(read_json(use, list)) if use.is_file() else ()
    found: list[Section] = []
    for language in LANGUAGES:
        phrases = Phrases(language, policies=policies, own=_PHRASES)
        found.append(_write_by_shots(by_shots, phrases))
        if any(cell.system == "grpo" for cell in cells):
            found.append(_write("changed", _tabulate_changes(cells, shots, phrases), phrases))
        if figures:
            found.append(_write("use", _tabulate_use(figures, phrases), phrases))
    return found


def _write(name: str, table: Table, phrases: Phrases, tiles: Sequence[Tile] = ()) -> Section:
    title, lead = phrases.say_each(name, f"{name}_lead")
    return Section(title, lead, (table,), tuple(tiles), language=phrases.language)


def _write_by_shots(shown: Sequence[Metric], phrases: Phrases) -> Section:
    """Return the measures by number of shots, the mean of GRPO among the report's first numbers."""
    columns = {_title_shots(name, phrases): name for name in sorted({m.measure for m in shown})}
    tiles = [
        make_tile(one, phrases.say("by_shots_tile", split=one.split))
        for one in shown
        if one.name == f"grpo/{MEAN}"
    ]
    return _write("by_shots", tabulate_policies(shown, columns, phrases=phrases), phrases, tiles)


def _title_shots(measure: str, phrases: Phrases) -> str:
    if measure == MEAN:
        return phrases.say("mean")
    return phrases.count(int(measure.removeprefix("vqa_")), "shot")


def _tabulate_use(figures: Sequence[UseFigure], phrases: Phrases) -> Table:
    rows = [
        (
            _title_situation(one, phrases),
            _share(one.num_right, one.num_asked),
            _share(one.num_right_reversed, one.num_asked),
            _share(one.num_changed, one.num_asked),
            f"{one.num_asked:,}",
        )
        for one in figures
    ]
    names = ("demonstrations", "right", "right_reversed", "use_changed")
    return Table("", (*phrases.say_each(*names), "n"), tuple(rows))


def _title_situation(one: UseFigure, phrases: Phrases) -> str:
    situation = phrases.title("situations", one.situation)
    if not one.num_shots:
        return situation
    return phrases.say("use_row", situation=situation, num=one.num_shots)


def _tabulate_changes(
    cells: Mapping[Cell, Sequence[CellRow]], shots: Sequence[int], phrases: Phrases
) -> Table:
    by_system = {(cell.system, cell.shots): rows for cell, rows in cells.items()}
    rows = [
        (
            phrases.count(number, "shot"),
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
    head = phrases.say_each("lists_changed", "answers_changed", "answers_changed_reversed")
    return Table("", ("", *head, "n"), tuple(rows))


def _count(ours: Sequence[CellRow], theirs: Sequence[CellRow], name: str) -> int:
    return sum(getattr(a, name) != getattr(b, name) for a, b in zip(ours, theirs, strict=True))


def _share(number: int, total: int) -> str:
    return format_share(number / total) if total else DASH
