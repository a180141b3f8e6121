"""The tables of the five studies: rows that are arms, known by the settings of runs, and measures.

A run fills the rows whose conditions its settings fit. Runs of a row that differ in the seed only
are one arm; runs that differ in more are arms of their own. What a table has is in its file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from groupwise.core import EvaluationError, RunFolder, check_records, flatten_settings, write_json
from groupwise.evaluation.fairness import RunFacts, read_facts
from groupwise.evaluation.metrics import list_measures, read_items
from groupwise.evaluation.predictions import (
    Language,
    Policies,
    Prediction,
    read_policies,
    read_predictions,
)
from groupwise.evaluation.report import page as blocks
from groupwise.evaluation.report.page import Block, Cell, Table
from groupwise.evaluation.report.phrases import (
    DASH,
    LEVELS,
    Phrases,
    Statement,
    format_count,
    format_points,
    format_share,
    format_share_interval,
    mark_code,
    unmark_code,
)
from groupwise.evaluation.result_table import Result, ResultTable, find_unlike
from groupwise.evaluation.statistics import MethodDifference, compare_methods
from groupwise_recipes.visual_reasoning.config import CHECKPOINTS
from groupwise_recipes.visual_reasoning.judging import FAULTS
from groupwise_recipes.visual_reasoning.measuring import ALIGNMENT, ENTAILMENT
from groupwise_recipes.visual_reasoning.study_tables import (
    Column,
    Row,
    StudyTable,
    fits_any,
    read_tables,
)

NOT_RUN, SEED = "?", "seeds/seed"
_MAX_APART = 4


class _Run(NamedTuple):
    """A finished run: settings by dotted key, predictions by policy, each fault a score."""

    folder: Path
    settings: dict[str, Any]
    policies: Policies
    predictions: dict[str, list[Prediction]]


@dataclass(frozen=True, eq=False)
class _Arm:
    """The runs of a row that differ in the seed only, by seed; ``repeated`` are further ones.

    ``apart`` is in what it differs from other arms of its row: settings as ``key value`` first.
    """

    row: Row
    runs: tuple[RunFacts, ...] = ()
    repeated: tuple[RunFacts, ...] = ()
    apart: tuple[str, ...] = ()


class _Filled(NamedTuple):
    """A table with its arms, results by arm and column, and the differences of its pairs."""

    table: StudyTable
    arms: list[_Arm]
    results: ResultTable
    pairs: list[tuple[_Arm, _Arm, dict[str, MethodDifference]]]

    def find(self, arm: _Arm, column: Column) -> Result:
        """Return what the seeds of an arm come to."""
        return self.results.summarize(str(self.arms.index(arm)), (column.name,))


def _read_run(folder: Path) -> _Run:
    path = folder / "evaluate" / "predictions.jsonl"
    if not path.is_file():
        raise EvaluationError(f"{folder} was not evaluated", fix="run it to its end")
    check_records(folder)
    rows: dict[str, list[Prediction]] = {}
    for one in read_predictions(path):
        said = one.fields.get(ENTAILMENT)
        if said is not None and said["aligns"] is not None:
            faults = {name: float(said["type"] == name) for name in FAULTS}
            one = replace(one, scores={**one.scores, **faults})
        rows.setdefault(one.policy, []).append(one)
    settings = dict(flatten_settings(RunFolder(folder).read_manifest()["config"]))
    return _Run(folder, settings, read_policies(folder), rows)


def _list_arms(table: StudyTable, runs: Sequence[_Run]) -> Iterator[_Arm]:
    """Yield the arms of a table in the order of its rows; a row has several that are unlike."""
    of_study = [run for run in runs if fits_any(table.runs, run.settings)]
    for row in table.rows:
        groups: list[list[RunFacts]] = []
        for run in of_study:
            policy, checkpoint = row.policy, run.settings.get("checkpoint")
            if checkpoint is not None:  # It fills the row of the policy that it stands for.
                policy = {"prompt": "", CHECKPOINTS[checkpoint]: "prompt"}.get(policy, policy)
            if policy not in run.predictions or not fits_any(row.where, run.settings):
                continue
            own = run.predictions[policy]
            one = read_facts(run.folder, policy=policy, predictions=own)
            like = (group for group in groups if not find_unlike([group[0], one], table.split))
            group = next(like, None)
            if group is None:
                groups.append(group := [])
            group.append(one)
        if not groups and not row.is_extra:
            yield _Arm(row)
        for group in groups:
            others = [other[0] for other in groups if other is not group]
            found = [x for other in others for x in find_unlike([group[0], other], table.split)]
            found.sort(key=lambda one: one.aspect != "config")
            apart = dict.fromkeys(
                f"{x.key} {x.values.get(group[0].name)}" if x.aspect == "config" else x.name
                for x in found
            )
            shown = {one.facts[SEED]: one for one in reversed(group)}
            kept = tuple(shown[seed] for seed in sorted(shown))
            yield _Arm(row, kept, tuple(one for one in group if one not in kept), tuple(apart))


def _fill_table(table: StudyTable, runs: Sequence[_Run]) -> _Filled:
    """Return a table with its results, and the differences of arms that have their row alone."""
    arms, results = list(_list_arms(table, runs)), list[Result]()
    policies = {run.folder: run.policies for run in runs}
    for (place, arm), column in product(enumerate(arms), table.columns):
        applied = ALIGNMENT if column.measure in FAULTS else column.measure
        found: list[Result] = []
        for one in arm.runs:
            if applied in policies[one.folder].find(one.policy).inapplicable:
                found.append(Result("", state="inapplicable"))
            else:
                found.append(_read_result(column, one, table.split))
        # A run that was not asked about these items does not stand for one that was.
        states = ("done", "inapplicable", "waiting")
        known = sorted(found, key=lambda one: states.index(one.state)) or [
            Result("", state="waiting")
        ]
        kept = [one for one in found if one.state == "done"] or known[:1]
        results += [replace(one, system=str(place), cell=(column.name,)) for one in kept]
    every = ResultTable(results=tuple(results), split=table.split)
    alone = {arm.row.name: arm for arm in arms if not arm.apart}
    filled = _Filled(table, arms, every, [])
    for first, second in ((alone.get(x), alone.get(y)) for x, y in table.pairs):
        if first is not None and second is not None:
            filled.pairs.append((first, second, dict(_subtract(filled, first, second))))
    return filled


def _read_result(column: Column, one: RunFacts, split: str) -> Result:
    """Return what a run has in a column; it waits if it was asked about no item of its part."""
    rows, name = list(one.answers.get(split, {}).values()), column.measure
    if column.part is not None:
        field, values = column.part
        have = {row.fields.get(field) for row in rows}
        rows = rows if have & {*values} else []
        name += f"[{field}={next((value for value in values if value in have), '')}]"
    if not rows:
        return Result("", state="waiting")
    if name not in list_measures(rows):
        return Result("", state="inapplicable", error="no_item")
    items = read_items(rows, policy=one.policy, split=split, measure=name)
    return Result("", seed=one.facts[SEED]).fill(items)


def _subtract(filled: _Filled, first: _Arm, second: _Arm) -> Iterator[tuple[str, MethodDifference]]:
    """Yield by column what the second arm has more than the first, over seeds that both have.

    Both must have been asked the same items; those that count have a value on both sides, as a
    verdict on reasoning may be missing on one.
    """
    asked = [{one.facts[SEED]: _list_items(one, filled) for one in x.runs} for x in (first, second)]
    seeds = [seed for seed, items in asked[0].items() if items == asked[1].get(seed)]
    for column in filled.table.columns:
        places = [str(filled.arms.index(arm)) for arm in (first, second)]
        found = [filled.results.select(place, (column.name,)) for place in places]
        sides = [{one.seed: one.items for one in own if one.items} for own in found]
        both = [[side[x] for side in sides] for x in seeds if all(x in side for side in sides)]
        both = [(a.keep({*b.ids}), b.keep({*a.ids})) for a, b in both if {*a.ids} & {*b.ids}]
        if both:
            yield column.name, compare_methods(*zip(*both, strict=True), is_paired=True)


def _list_items(one: RunFacts, filled: _Filled) -> set[tuple[str, str, str | None]]:
    rows = one.answers.get(filled.table.split, {}).values()
    return {(row.example_id, row.cluster, row.label) for row in rows}


def write_study(folders: Sequence[Path], out: Path, *, language: Language = "en") -> list[str]:
    """Write ``study.html``, ``.md`` and ``.json``: the table of the runs' study, or all of several.

    Returns:
        What a terminal shows: notices, and where the page is.
    """
    runs = [_read_run(folder) for folder in dict.fromkeys(folders)]
    every = read_tables()
    shown = [one for one in every if any(fits_any(one.runs, run.settings) for run in runs)]
    if not shown:
        raise EvaluationError(
            "none of these runs is of a study",
            got=[str(run.folder) for run in runs],
            fix="make one by a command of the recipe's README, or report on a run alone",
        )
    filled = [_fill_table(table, runs) for table in (shown if len(shown) == 1 else every)]
    phrases = Phrases(language, own=Path(__file__).with_name("phrases.yaml"))
    notices = sorted(_collect_notices(filled, runs, language), key=lambda x: LEVELS.index(x.level))
    sources = Block(points=tuple(mark_code(run.folder) for run in runs))
    page = blocks.Page(
        title=phrases.say("study_title"),
        lead=phrases.say("study_lead", num=len(runs), dash=DASH),
        language=language,
        notices=tuple(blocks.Notice(one.level, phrases.say(one)) for one in notices),
        checked=phrases.say("study_checked"),
        parts=tuple(_lay_out(one, phrases) for one in filled),
        footer=(Block(phrases.say("sources"), "fold", blocks=(sources,)),),
        is_sortable=True,
    )
    html, _ = blocks.write_page(page, out, name="study")
    told = {
        "tables": {one.table.name: [_describe(one, arm) for arm in one.arms] for one in filled},
        "differences": {
            one.table.name: [
                {"first": first.row.name, "second": second.row.name, "values": gaps}
                for first, second, gaps in one.pairs
            ]
            for one in filled
        },
    }
    write_json(out / "study.json", to_jsonable_python(told))
    lines = [f"{phrases.say(f'level.{one.level}')}: {one.text}" for one in page.notices]
    return [*map(unmark_code, lines), f"report: {html}"]


def _describe(filled: _Filled, arm: _Arm) -> dict[str, Any]:
    """Return the numbers of a row."""
    values: dict[str, Any] = {}
    for column in filled.table.columns:
        one = filled.find(arm, column)
        known = {name: getattr(one, name) for name in ("value", "low", "high", "limit", "n")}
        values[column.name] = {"state": one.error or one.state, **known, "by_seed": one.seeds}
    return {
        "row": arm.row.name,
        "apart": list(arm.apart),
        "split": filled.table.split,
        "values": values,
        "runs": [str(one.folder) for one in arm.runs],
        "repeated": [str(one.folder) for one in arm.repeated],
        "published": {name: x.model_dump() for name, x in arm.row.published.items()},
    }


def _collect_notices(
    filled: Sequence[_Filled], runs: Sequence[_Run], language: Language
) -> Iterator[Statement]:
    """Yield what must be known before any number."""

    def warn(kind: str, **values: Any) -> Statement:
        return Statement(f"study.{kind}", values, "warning")

    arms = [arm for one in filled for arm in one.arms]
    shown = {one.folder for arm in arms for one in (*arm.runs, *arm.repeated)}
    if left := [str(run.folder) for run in runs if run.folder not in shown]:
        yield warn("no_row", folders=left)
    for table, row in ((one.table, row) for one in filled for row in one.table.rows):
        own = [arm for arm in arms if arm.row is row]
        named = {"row": row.title[language], "table": table.title[language]}
        if len(own) > 1:
            keys = dict.fromkeys(text.partition(" ")[0] for arm in own for text in arm.apart)
            yield warn("told_apart", **named, settings=list(keys)[:_MAX_APART])
        said = {(x, run.facts[SEED]): _list_answers(run) for x in own for run in x.runs}
        left = [(x, run) for x in own for run in x.repeated]
        other = [run for x, run in left if _list_answers(run) != said[x, run.facts[SEED]]]
        if other:
            yield warn("repeated", **named, left=[str(run.folder) for run in other])
    numbers = [len(arm.runs) for arm in arms]
    if 1 in numbers:
        yield warn("one_seed", num=numbers.count(1))
    states = [
        one.find(arm, x).state for one in filled for arm in one.arms for x in one.table.columns
    ]
    if "waiting" in states:
        yield warn("waiting", num=states.count("waiting"), all=len(states))


def _list_answers(one: RunFacts) -> set[tuple[str, str]]:
    return {(item, row.text) for rows in one.answers.values() for item, row in rows.items()}


def _lay_out(filled: _Filled, phrases: Phrases) -> blocks.Part:
    table, say, language = filled.table, phrases.say, phrases.language
    lead = say("study_table_lead", lead=table.lead[language], split=table.split)
    own: list[blocks.Block | blocks.Table] = [Block(lead), _tabulate(filled, phrases)]
    if any(row.published for row in table.rows):
        own.append(Block(say("study_published_lead")))
    rows = [
        (
            Cell(" \u2212 ".join(arm.row.title[language] for arm in (second, first))),
            *(_show_difference(gaps.get(column.name), phrases) for column in table.columns),
        )
        for first, second, gaps in filled.pairs
        if gaps
    ]
    if rows:
        head = (say("study_pair"), *(one.title[language] for one in table.columns))
        own += [Block(say("study_pairs_lead")), Table("", head, tuple(rows))]
    return blocks.Part(table.name, table.title[language], tuple(own))


def _tabulate(filled: _Filled, phrases: Phrases) -> Table:
    """Return a row per arm: seeds, and each value beside what was published."""
    columns, say = filled.table.columns, phrases.say
    typed = {name for row in filled.table.rows for name in row.published}
    head = [*phrases.say_each("study_arm", "n_seeds")]
    for title, name in ((column.title[phrases.language], column.name) for column in columns):
        head += [title, *([say("study_published", column=title)] if name in typed else [])]
    rows: list[tuple[Cell, ...]] = []
    for arm in filled.arms:
        seeds = [str(one.facts[SEED]) for one in arm.runs]
        row = [Cell(arm.row.title[phrases.language], " · ".join(arm.apart[:_MAX_APART]))]
        counted = phrases.count(len(seeds), "seed")
        row.append(Cell(counted, phrases.join(seeds), len(seeds)) if seeds else Cell(NOT_RUN))
        for column in columns:
            value, published = filled.find(arm, column), arm.row.published.get(column.name)
            row.append(_show_value(value, len(seeds), phrases))
            if published is not None:
                share, notes = published.value / 100, list[str]()
                if value.value is not None:
                    points = format_points(value.value - share, decimals=2)
                    notes.append(say("study_of_published", points=points))
                notes.append(f"n {published.n or NOT_RUN}")
                row.append(Cell(format_share(share, decimals=2), " · ".join(notes), share))
            elif column.name in typed:
                row.append(Cell(NOT_RUN))
        rows.append(tuple(row))
    return Table("", tuple(head), tuple(rows), kind="headline")


def _show_value(value: Result, num_seeds: int, phrases: Phrases) -> Cell:
    if value.value is None:
        note = phrases.say("study_no_item") if value.error else ""
        return Cell(NOT_RUN if value.state == "waiting" else DASH, note)
    shares = [one for _, one in value.seeds]
    if value.low is not None and value.high is not None:
        notes = [format_share_interval(value.low, value.high, decimals=2)]
    else:
        ends = format_share_interval(min(shares), max(shares), decimals=2)
        notes = [phrases.say("study_range", shares=ends)]
    notes.append(f"n {format_count(value.n or 0)}")
    if len(shares) < num_seeds:
        notes.append(phrases.count(len(shares), "seed"))
    by_seed = ", ".join(f"{seed}: {format_share(one, decimals=2)}" for seed, one in value.seeds)
    text = format_share(value.value, decimals=2)
    return Cell(text, " · ".join(notes), value.value, hint=by_seed)


def _show_difference(found: MethodDifference | None, phrases: Phrases) -> Cell:
    if found is None:
        return Cell(DASH)
    told = f"study_limit_{found.limit}" if found.low is None else "study_ends"
    ends = [format_points(x or 0.0, decimals=2) for x in (found.low, found.high)]
    note = phrases.say(told, low=ends[0], high=ends[1])
    text = format_points(found.estimate, decimals=2)
    return Cell(text, f"{note} · {phrases.count(found.num_seeds_a, 'seed')}", found.estimate)
