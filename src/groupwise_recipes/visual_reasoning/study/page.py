"""The page of the studies: what must be known first, then a table each."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from groupwise.core import EvaluationError, write_json
from groupwise.evaluation import (
    DASH,
    Bullets,
    Cell,
    Fold,
    Language,
    MethodDifference,
    Notice,
    Page,
    Paragraph,
    Part,
    Phrases,
    Table,
    Verbatim,
    format_points,
    format_share,
    format_share_interval,
    mark_code,
    unmark_code,
    write_page,
)
from groupwise_recipes.visual_reasoning.study.arms import Arm, list_arms, read_run
from groupwise_recipes.visual_reasoning.study.notices import Filled, collect_notices
from groupwise_recipes.visual_reasoning.study.tables import (
    FOLDER,
    Column,
    Published,
    StudyTable,
    read_tables,
)
from groupwise_recipes.visual_reasoning.study.values import Value, measure_arm, measure_difference

NAME = "study"
NOT_RUN = "?"
_PHRASES = Path(__file__).with_name("phrases.yaml")
_MAX_APART = 4
# As many as published values have.
_write_share = partial(format_share, decimals=2)
_write_interval = partial(format_share_interval, decimals=2)
_write_points = partial(format_points, decimals=2)


def write_study(
    folders: Sequence[Path], out: Path, *, language: Language = "en", tables: Path = FOLDER
) -> list[str]:
    """Write ``study.html``, ``.md`` and ``.json``: the table of the runs' study, or all of several.

    Args:
        folders: finished runs, in any order.
        out: where to.
        language: of the page.
        tables: folder of the tables.

    Returns:
        What a terminal shows: notices, and where the page is.

    Raises:
        EvaluationError: if a run was not evaluated, or none of them is of a study.
        DataError: if a file is damaged.
        ConfigError: if a table is damaged.
    """
    runs = [read_run(folder) for folder in dict.fromkeys(folders)]
    every = read_tables(tables)
    shown = [one for one in every if any(one.fits(run.settings) for run in runs)]
    if not shown:
        raise EvaluationError(
            "none of these runs is of a study",
            got=[str(run.folder) for run in runs],
            fix="make one by a command of the recipe's README, or report on a run alone",
        )
    filled = [
        fill_table(table, list_arms(table, runs)) for table in (shown if len(shown) == 1 else every)
    ]
    phrases = Phrases(language, own=_PHRASES)
    notices = [
        Notice(one.level, phrases.say(one))
        for one in collect_notices(filled, runs, every, language)
    ]
    page = Page(
        title=phrases.say("study_title"),
        lead=phrases.say("study_lead", num=len(runs), dash=DASH),
        language=language,
        notices=tuple(notices),
        checked=phrases.say("study_checked"),
        parts=tuple(_lay_out(one, phrases) for one in filled),
        footer=(
            Fold(
                phrases.say("sources"),
                (Bullets(tuple(mark_code(run.folder) for run in runs)),),
            ),
        ),
        is_sortable=True,
    )
    html, _ = write_page(page, out, name=NAME)
    told_tables = {one.table.name: _dump(one) for one in filled}
    told_pairs = {one.table.name: _dump_pairs(one) for one in filled}
    write_json(out / f"{NAME}.json", {"tables": told_tables, "differences": told_pairs})
    told = [f"{phrases.say(f'level.{one.level}')}: {one.text}" for one in notices]
    return [*map(unmark_code, told), f"report: {html}"]


def fill_table(table: StudyTable, arms: Sequence[Arm]) -> Filled:
    """Return a table with its values, and the differences between its rows.

    A row of several unlike arms is compared with none.
    """
    rows = tuple(
        (arm, tuple(measure_arm(arm, column, table.split) for column in table.columns))
        for arm in arms
    )
    alone = {arm.row.name: arm for arm in arms if not arm.apart}
    pairs = tuple(
        (
            alone[one],
            alone[two],
            tuple(
                measure_difference(alone[one], alone[two], column, table.split)
                for column in table.columns
            ),
        )
        for one, two in table.pairs
        if one in alone and two in alone
    )
    return Filled(table, rows, pairs)


def _lay_out(filled: Filled, phrases: Phrases) -> Part:
    table, language = filled.table, phrases.language
    lead = phrases.say("study_table_lead", lead=table.lead.choose(language), split=table.split)
    blocks = [Paragraph(lead), _tabulate(filled, phrases)]
    if apart := _take_apart(filled):
        blocks += [Paragraph(phrases.say("study_apart_lead")), _tabulate(apart, phrases)]
    if any(row.published or row.published_apart for row in table.rows):
        blocks.append(Paragraph(phrases.say("study_published_lead")))
    if any(found for _, _, found in filled.pairs):
        blocks += [Paragraph(phrases.say("study_pairs_lead")), _tabulate_pairs(filled, phrases)]
    runs = [one.run for arm, _ in filled.arms for one in arm.runs]
    like = next((run.folder for run in runs if run.checkpoint is None), None)
    commands = dict.fromkeys(
        table.write_command(arm.row, like)
        for arm, values in filled.arms
        if any(one.state == "waiting" for one in values)
    )
    if commands:
        real = f"configs/{table.config}-qwen2.5-vl-3b.yaml"
        lead = phrases.say("study_commands_lead", seed="--set seed=1", config=real)
        told = Verbatim("\n".join(commands))
        blocks.append(Fold(phrases.say("study_commands"), (Paragraph(lead), told)))
    return Part(table.name, table.title.choose(language), tuple(blocks))


def _take_apart(filled: Filled) -> Filled | None:
    """Return the rows and columns alone that have published values of other items, if any have."""
    columns = filled.table.columns
    typed = {name for arm, _ in filled.arms for name in arm.row.published_apart}
    kept = [place for place, column in enumerate(columns) if column.name in typed]
    if not kept:
        return None
    table = filled.table.model_copy(update={"columns": tuple(columns[place] for place in kept)})
    arms = tuple(
        (
            replace(
                arm,
                row=arm.row.model_copy(
                    update={"published": arm.row.published_apart, "published_apart": {}}
                ),
            ),
            tuple(values[place] for place in kept),
        )
        for arm, values in filled.arms
        if arm.row.published_apart
    )
    return replace(filled, table=table, arms=arms, pairs=())


def _tabulate(filled: Filled, phrases: Phrases) -> Table:
    columns = filled.table.columns
    typed = {name for arm, _ in filled.arms for name in arm.row.published}
    head = [
        title
        for column in columns
        for title in _name_column(column, phrases, has_published=column.name in typed)
    ]
    rows = [
        (
            Cell(arm.row.title.choose(phrases.language), " · ".join(arm.apart[:_MAX_APART])),
            _show_seeds([one.seed for one in arm.runs], phrases),
            *(
                cell
                for column, value in zip(columns, values, strict=True)
                for cell in _show(arm, column, value, phrases, has_published=column.name in typed)
            ),
        )
        for arm, values in filled.arms
    ]
    heads = phrases.say_each("study_arm", "n_seeds")
    return Table("", (*heads, *head), tuple(rows), kind="headline")


def _tabulate_pairs(filled: Filled, phrases: Phrases) -> Table:
    titles = [column.title.choose(phrases.language) for column in filled.table.columns]
    rows = [
        (
            Cell(
                " \u2212 ".join(arm.row.title.choose(phrases.language) for arm in (second, first))
            ),
            *(_show_difference(one, phrases) for one in found),
        )
        for first, second, found in filled.pairs
        if any(found)
    ]
    return Table("", (phrases.say("study_pair"), *titles), tuple(rows))


def _show_difference(found: MethodDifference | None, phrases: Phrases) -> Cell:
    if found is None:
        return Cell(DASH)
    seeds = phrases.count(found.num_seeds_a, "seed")
    if found.low is None or found.high is None:
        told = phrases.say(f"study_limit_{found.limit}")
    else:
        told = phrases.say(
            "study_ends", low=_write_points(found.low), high=_write_points(found.high)
        )
    return Cell(_write_points(found.estimate), f"{told} · {seeds}", found.estimate)


def _show_seeds(seeds: Sequence[int], phrases: Phrases) -> Cell:
    if not seeds:
        return Cell(NOT_RUN)
    return Cell(phrases.count(len(seeds), "seed"), phrases.join(map(str, seeds)), len(seeds))


def _name_column(column: Column, phrases: Phrases, *, has_published: bool) -> Iterator[str]:
    title = column.title.choose(phrases.language)
    yield title
    if has_published:
        yield phrases.say("study_published", column=title)


def _show(
    arm: Arm, column: Column, value: Value, phrases: Phrases, *, has_published: bool
) -> Iterator[Cell]:
    yield _show_value(value, len(arm.runs), phrases)
    if has_published:
        yield _show_published(arm.row.published.get(column.name), value, phrases)


def _show_value(value: Value, num_seeds: int, phrases: Phrases) -> Cell:
    if value.value is None:
        note = phrases.say("study_no_item") if value.state == "no_item" else ""
        return Cell(NOT_RUN if value.state == "waiting" else DASH, note)
    if value.low is not None and value.high is not None:
        told = _write_interval(value.low, value.high)
    else:
        shares = [one for _, one in value.by_seed]
        told = phrases.say("study_range", shares=_write_interval(min(shares), max(shares)))
    size = "study_n" if value.n == value.most else "study_n_to"
    notes = [told, phrases.say(size, n=value.n, most=value.most)]
    if len(value.by_seed) < num_seeds:
        notes.append(phrases.count(len(value.by_seed), "seed"))
    by_seed = ", ".join(f"{seed}: {_write_share(one)}" for seed, one in value.by_seed)
    return Cell(_write_share(value.value), " · ".join(notes), value.value, hint=by_seed)


def _show_published(published: Published | None, value: Value, phrases: Phrases) -> Cell:
    if published is None:
        return Cell(NOT_RUN)
    share, notes = published.value / 100, list[str]()
    if value.value is not None:
        points = _write_points(value.value - share)
        notes.append(phrases.say("study_of_published", points=points))
    n = NOT_RUN if published.n is None else f"{published.n:,}"
    notes.append(phrases.say("study_published_of", n=n, split=published.split or NOT_RUN))
    return Cell(_write_share(share), " · ".join(notes), share)


def _dump(filled: Filled) -> list[dict[str, Any]]:
    """Return the numbers of a table."""
    names = filled.table.list_columns()
    return [
        {
            "row": arm.row.name,
            "apart": list(arm.apart),
            "runs": [str(one.run.folder) for one in arm.runs],
            "repeated": [str(one.run.folder) for one in arm.repeated],
            "split": filled.table.split,
            "values": {n: asdict(one) for n, one in zip(names, values, strict=True)},
            "published": {n: one.model_dump() for n, one in arm.row.published.items()},
            "published_apart": {n: one.model_dump() for n, one in arm.row.published_apart.items()},
        }
        for arm, values in filled.arms
    ]


def _dump_pairs(filled: Filled) -> list[dict[str, Any]]:
    """Return the differences between the rows of a table."""
    names = filled.table.list_columns()
    return [
        {
            "first": first.row.name,
            "second": second.row.name,
            "values": {
                name: asdict(one) for name, one in zip(names, found, strict=True) if one is not None
            },
        }
        for first, second, found in filled.pairs
    ]
