"""The tables of the five studies: rows that are arms, known by the settings of runs, and measures.

A run fills the rows whose conditions its settings fit. Runs of a row that differ in the seed only
are one arm; runs that differ in more are arms of their own. What a table has is in its file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.core import (
    EvaluationError,
    RunFolder,
    check_records,
    flatten_settings,
    write_json,
)
from groupwise.evaluation.facts import RunFacts, read_facts
from groupwise.evaluation.methods import MethodDifference, compare_methods
from groupwise.evaluation.metrics import list_measures, read_items
from groupwise.evaluation.policies import Policies, read_policies
from groupwise.evaluation.predictions import Items, Prediction, read_predictions
from groupwise.evaluation.report.page import Block, Cell, Notice, Page, Part, Table, write_page
from groupwise.evaluation.report.phrases import (
    DASH,
    LEVELS,
    Language,
    Phrases,
    Statement,
    format_points,
    format_share,
    format_share_interval,
    mark_code,
    unmark_code,
)
from groupwise.evaluation.result_table import Result, ResultTable
from groupwise.evaluation.sources import find_unlike
from groupwise_recipes.visual_reasoning.config import CHECKPOINTS
from groupwise_recipes.visual_reasoning.judging import FAULTS
from groupwise_recipes.visual_reasoning.measuring import ALIGNMENT, ENTAILMENT
from groupwise_recipes.visual_reasoning.study_tables import (
    FOLDER,
    Column,
    Published,
    Row,
    StudyTable,
    fits_any,
    read_tables,
)

NOT_RUN = "?"
_MAX_APART = 4


class _Run(NamedTuple):
    """A finished run: settings by dotted key, predictions by policy, each fault a score."""

    folder: Path
    settings: dict[str, Any]
    policies: Policies
    predictions: dict[str, list[Prediction]]


class _Measured(NamedTuple):
    """A policy of a run with what stands behind it."""

    run: _Run
    policy: str
    facts: RunFacts

    @property
    def seed(self) -> int:
        return self.facts.facts["seeds/seed"]

    def choose_rows(self, split: str) -> list[Prediction]:
        return [row for row in self.run.predictions[self.policy] if row.split == split]


@dataclass(frozen=True)
class _Arm:
    """The runs of a row that differ in the seed only, by seed; ``repeated`` are further ones.

    ``apart`` is in what it differs from other arms of its row: settings as ``key value`` first.
    """

    row: Row
    runs: tuple[_Measured, ...] = ()
    repeated: tuple[_Measured, ...] = ()
    apart: tuple[str, ...] = ()


class _Filled(NamedTuple):
    """A table with its arms, results by arm and column, and the differences of its pairs."""

    table: StudyTable
    arms: list[_Arm]
    results: ResultTable
    pairs: list[tuple[_Arm, _Arm, list[MethodDifference | None]]]

    def find(self, arm: _Arm, column: Column) -> Result:
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
        groups: list[list[_Measured]] = []
        for run in of_study:
            policy, checkpoint = row.policy, run.settings.get("checkpoint")
            if checkpoint is not None:  # It fills the row of the policy that it stands for.
                policy = {"prompt": "", CHECKPOINTS[checkpoint]: "prompt"}.get(policy, policy)
            if policy not in run.predictions or not fits_any(row.where, run.settings):
                continue
            rows = run.predictions[policy]
            one = _Measured(run, policy, read_facts(run.folder, policy=policy, predictions=rows))
            for group in groups:
                if not find_unlike([group[0].facts, one.facts], table.split):
                    group.append(one)
                    break
            else:
                groups.append([one])
        if not groups and not row.is_extra:
            yield _Arm(row)
        for group in groups:
            others = [other[0].facts for other in groups if other is not group]
            first = group[0].facts
            found = [x for other in others for x in find_unlike([first, other], table.split)]
            found.sort(key=lambda one: one.aspect != "config")
            apart = dict.fromkeys(
                f"{x.key} {x.values.get(first.name)}" if x.aspect == "config" else x.name
                for x in found
            )
            shown = {one.seed: one for one in reversed(group)}
            kept = tuple(sorted(shown.values(), key=lambda one: one.seed))
            yield _Arm(row, kept, tuple(one for one in group if one not in kept), tuple(apart))


def _name_measure(one: _Measured, column: Column, split: str) -> str | None:
    """Return the measure with the part of the items that the run asked about; None: of none."""
    rows = one.choose_rows(split)
    if column.part is None:
        return column.measure if rows else None
    name, values = column.part
    have = {row.fields.get(name) for row in rows}
    value = next((value for value in values if value in have), None)
    return None if value is None else f"{column.measure}[{name}={value}]"


def _read_items(arm: _Arm, column: Column, split: str) -> dict[int, Items]:
    """Return the items of an arm by seed; a run none of whose items has the measure has none."""
    found: dict[int, Items] = {}
    for one in arm.runs:
        rows, name = one.choose_rows(split), _name_measure(one, column, split)
        if name is not None and name in list_measures(rows):
            found[one.seed] = read_items(rows, policy=one.policy, split=split, measure=name)
    return found


def _fill_table(table: StudyTable, runs: Sequence[_Run]) -> _Filled:
    """Return a table with its results, and the differences of arms that have their row alone."""
    arms, results = list(_list_arms(table, runs)), list[Result]()
    for place, arm in enumerate(arms):
        for column in table.columns:
            named: dict[str, Any] = {"system": str(place), "cell": (column.name,)}
            items = _read_items(arm, column, table.split)
            applied = ALIGNMENT if column.measure in FAULTS else column.measure
            silent = [applied in x.run.policies.find(x.policy).inapplicable for x in arm.runs]
            if arm.runs and all(silent):
                results.append(Result(**named, state="inapplicable"))
            elif items:
                results += [
                    Result.of_items(items=x, seed=seed, **named) for seed, x in items.items()
                ]
            else:
                asked = any(_name_measure(one, column, table.split) for one in arm.runs)
                named["error"] = "no_item" if asked else ""
                results.append(Result(**named, state="inapplicable" if asked else "waiting"))
    alone = {arm.row.name: arm for arm in arms if not arm.apart}
    pairs = [(alone[x], alone[y]) for x, y in table.pairs if x in alone and y in alone]
    gaps = [(*pair, [_subtract(*pair, x, table.split) for x in table.columns]) for pair in pairs]
    return _Filled(table, arms, ResultTable(results=tuple(results), split=table.split), gaps)


def _subtract(first: _Arm, second: _Arm, column: Column, split: str) -> MethodDifference | None:
    """Return what the second arm has more than the first, over the seeds that both have.

    Both must have been asked the same items; those that count have a value on both sides, as a
    verdict on reasoning may be missing on one.
    """
    sides = [_read_items(arm, column, split) for arm in (first, second)]
    asked = [
        {
            one.seed: {(x.example_id, x.cluster, x.label) for x in one.choose_rows(split)}
            for one in arm.runs
        }
        for arm in (first, second)
    ]
    pairs: list[tuple[Items, Items]] = []
    for seed in sorted(sides[0].keys() & sides[1].keys()):
        one, two = sides[0][seed], sides[1][seed]
        common = {*one.ids} & {*two.ids}
        if common and asked[0][seed] == asked[1][seed]:
            pairs.append((one.keep(common), two.keep(common)))
    return compare_methods(*zip(*pairs, strict=True), is_paired=True) if pairs else None


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
    runs = [_read_run(folder) for folder in dict.fromkeys(folders)]
    every = read_tables(tables)
    shown = [one for one in every if any(fits_any(one.runs, run.settings) for run in runs)]
    if not shown:
        raise EvaluationError(
            "none of these runs is of a study",
            got=[str(run.folder) for run in runs],
            fix="make one by a command of the recipe's README, or report on a run alone",
        )
    filled = [_fill_table(table, runs) for table in (shown if len(shown) == 1 else every)]
    phrases = Phrases(language, own=Path(__file__).with_name("phrases.yaml"))
    notices = [
        Notice(x.level, phrases.say(x)) for x in _collect_notices(filled, runs, every, language)
    ]
    sources = Block(points=tuple(mark_code(run.folder) for run in runs))
    page = Page(
        title=phrases.say("study_title"),
        lead=phrases.say("study_lead", num=len(runs), dash=DASH),
        language=language,
        notices=tuple(notices),
        checked=phrases.say("study_checked"),
        parts=tuple(_lay_out(one, phrases) for one in filled),
        footer=(Block(phrases.say("sources"), "fold", blocks=(sources,)),),
        is_sortable=True,
    )
    html, _ = write_page(page, out, name="study")
    told = {one.table.name: _describe(one) for one in filled}
    parts = {
        part: {name: one[part] for name, one in told.items()} for part in ("tables", "differences")
    }
    write_json(out / "study.json", parts)
    lines = [f"{phrases.say(f'level.{one.level}')}: {one.text}" for one in notices]
    return [*map(unmark_code, lines), f"report: {html}"]


def _collect_notices(
    filled: Sequence[_Filled],
    runs: Sequence[_Run],
    tables: Sequence[StudyTable],
    language: Language,
) -> list[Statement]:
    """Return what must be known before any number, the worst first."""
    found: list[Statement] = []
    arms = [arm for each in filled for arm in each.arms]
    shown = {one.run.folder for arm in arms for one in (*arm.runs, *arm.repeated)}
    for run in (run for run in runs if run.folder not in shown):
        studies = [x.title.choose(language) for x in tables if fits_any(x.runs, run.settings)]
        kind = "study.no_row" if studies else "study.no_study"
        values = {"folder": str(run.folder), "studies": studies}
        found.append(Statement(kind, values, "warning"))
    for each in filled:
        for row in each.table.rows:
            own = [arm for arm in each.arms if arm.row is row]
            named = {"row": row.title.choose(language), "table": each.table.title.choose(language)}
            if len(own) > 1:
                keys = dict.fromkeys(one.partition(" ")[0] for arm in own for one in arm.apart)
                named_keys = {**named, "settings": list(keys)[:_MAX_APART]}
                found.append(Statement("study.told_apart", named_keys, "warning"))
            for arm in own:
                by_seed = {one.seed: one for one in arm.runs}
                if any(_list_answers(x) != _list_answers(by_seed[x.seed]) for x in arm.repeated):
                    sides = {"shown": arm.runs, "left": arm.repeated}
                    told = {key: [str(x.run.folder) for x in side] for key, side in sides.items()}
                    found.append(Statement("study.repeated", {**named, **told}, "warning"))
    numbers = [len(arm.runs) for arm in arms]
    if 1 in numbers:
        found.append(Statement("study.one_seed", {"num": numbers.count(1)}, "warning"))
    if 2 in numbers:
        found.append(Statement("study.few_seeds"))
    states = [
        x.find(arm, column).state for x in filled for arm in x.arms for column in x.table.columns
    ]
    if "waiting" in states:
        counts = {"num": states.count("waiting"), "all": len(states)}
        found.append(Statement("study.waiting", counts))
    return sorted(found, key=lambda one: LEVELS.index(one.level))


def _list_answers(one: _Measured) -> set[tuple[str, str]]:
    return {(row.example_id, row.text) for row in one.run.predictions[one.policy]}


def _lay_out(filled: _Filled, phrases: Phrases) -> Part:
    table, say, language = filled.table, phrases.say, phrases.language
    lead = say("study_table_lead", lead=table.lead.choose(language), split=table.split)
    blocks: list[Block | Table] = [Block(lead), _tabulate(filled, phrases, "published")]
    if any(arm.row.published_apart for arm in filled.arms):
        blocks.append(Block(say("study_apart_lead")))
        blocks.append(_tabulate(filled, phrases, "published_apart"))
    if any(row.published or row.published_apart for row in table.rows):
        blocks.append(Block(say("study_published_lead")))
    rows = [
        (
            Cell(" \u2212 ".join(arm.row.title.choose(language) for arm in (second, first))),
            *(_show_difference(one, phrases) for one in found),
        )
        for first, second, found in filled.pairs
        if any(found)
    ]
    if rows:
        head = (say("study_pair"), *(one.title.choose(language) for one in table.columns))
        blocks += [Block(say("study_pairs_lead")), Table("", head, tuple(rows))]
    trained = [one.run for arm in filled.arms for one in arm.runs]
    like = next((x.folder for x in trained if x.settings.get("checkpoint") is None), None)
    waiting = [
        arm.row
        for arm in filled.arms
        if any(filled.find(arm, column).state == "waiting" for column in table.columns)
    ]
    commands = dict.fromkeys(table.write_command(row, like) for row in waiting)
    if commands:
        config = f"configs/{table.config}-qwen2.5-vl-3b.yaml"
        lead = say("study_commands_lead", seed="--set seed=1", config=config)
        told = Block("\n".join(commands), "verbatim")
        blocks.append(Block(say("study_commands"), "fold", blocks=(Block(lead), told)))
    return Part(table.name, table.title.choose(language), tuple(blocks))


def _tabulate(filled: _Filled, phrases: Phrases, kind: str) -> Table:
    """Return a row per arm: seeds, and each value beside what was published.

    Values published apart have rows and columns of their own.
    """
    arms, columns, language = filled.arms, filled.table.columns, phrases.language
    typed = {name for arm in arms for name in getattr(arm.row, kind)}
    if kind == "published_apart":
        arms = [arm for arm in arms if arm.row.published_apart]
        columns = tuple(column for column in columns if column.name in typed)
    head = [*phrases.say_each("study_arm", "n_seeds")]
    for column in columns:
        title = column.title.choose(language)
        head += [title, *([phrases.say("study_published", column=title)] * (column.name in typed))]
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        seeds = [one.seed for one in arm.runs]
        counted = phrases.count(len(seeds), "seed")
        row = [Cell(arm.row.title.choose(language), " · ".join(arm.apart[:_MAX_APART]))]
        row.append(
            Cell(counted, phrases.join(map(str, seeds)), len(seeds)) if seeds else Cell(NOT_RUN)
        )
        for column in columns:
            value = filled.find(arm, column)
            row.append(_show_value(value, _count_items(filled, arm, column), len(seeds), phrases))
            if column.name in typed:
                published = getattr(arm.row, kind).get(column.name)
                row.append(_show_published(published, value, phrases))
        rows.append(tuple(row))
    return Table("", tuple(head), tuple(rows), kind="headline")


def _count_items(filled: _Filled, arm: _Arm, column: Column) -> int:
    """Return the items of the seed that has most."""
    found = filled.results.select(str(filled.arms.index(arm)), (column.name,))
    return max((one.n or 0 for one in found), default=0)


def _show_value(value: Result, most: int, num_seeds: int, phrases: Phrases) -> Cell:
    if value.value is None:
        note = phrases.say("study_no_item") if value.error else ""
        return Cell(NOT_RUN if value.state == "waiting" else DASH, note)
    shares = [one for _, one in value.seeds]
    if value.low is not None and value.high is not None:
        told = format_share_interval(value.low, value.high, decimals=2)
    else:
        ends = format_share_interval(min(shares), max(shares), decimals=2)
        told = phrases.say("study_range", shares=ends)
    notes = [
        told,
        phrases.say("study_n" if value.n == most else "study_n_to", n=value.n, most=most),
    ]
    if len(shares) < num_seeds:
        notes.append(phrases.count(len(shares), "seed"))
    by_seed = ", ".join(f"{seed}: {format_share(one, decimals=2)}" for seed, one in value.seeds)
    text = format_share(value.value, decimals=2)
    return Cell(text, " · ".join(notes), value.value, hint=by_seed)


def _show_published(published: Published | None, value: Result, phrases: Phrases) -> Cell:
    if published is None:
        return Cell(NOT_RUN)
    share, notes = published.value / 100, list[str]()
    if value.value is not None:
        points = format_points(value.value - share, decimals=2)
        notes.append(phrases.say("study_of_published", points=points))
    n = NOT_RUN if published.n is None else f"{published.n:,}"
    notes.append(phrases.say("study_published_of", n=n, split=published.split or NOT_RUN))
    return Cell(format_share(share, decimals=2), " · ".join(notes), share)


def _show_difference(found: MethodDifference | None, phrases: Phrases) -> Cell:
    if found is None:
        return Cell(DASH)
    told = f"study_limit_{found.limit}" if found.low is None else "study_ends"
    ends = [format_points(x or 0.0, decimals=2) for x in (found.low, found.high)]
    note = phrases.say(told, low=ends[0], high=ends[1])
    text = format_points(found.estimate, decimals=2)
    return Cell(text, f"{note} · {phrases.count(found.num_seeds_a, 'seed')}", found.estimate)


def _describe(filled: _Filled) -> dict[str, Any]:
    """Return the numbers of a table, and the differences between its rows."""
    names = [one.name for one in filled.table.columns]
    rows: list[dict[str, Any]] = []
    for arm in filled.arms:
        values: dict[str, Any] = {}
        for column in filled.table.columns:
            one = filled.find(arm, column)
            known = {name: getattr(one, name) for name in ("value", "low", "high", "limit")}
            sizes = {"n": one.n or 0, "most": _count_items(filled, arm, column)}
            state = one.error or one.state
            values[column.name] = {"state": state, **known, **sizes, "by_seed": one.seeds}
        sides = {"runs": arm.runs, "repeated": arm.repeated}
        typed = {"published": arm.row.published, "published_apart": arm.row.published_apart}
        rows.append(
            {
                "row": arm.row.name,
                "apart": list(arm.apart),
                **{key: [str(x.run.folder) for x in side] for key, side in sides.items()},
                "split": filled.table.split,
                "values": values,
                **{key: {n: x.model_dump() for n, x in one.items()} for key, one in typed.items()},
            }
        )
    pairs = [
        {
            "first": first.row.name,
            "second": second.row.name,
            "values": {n: asdict(x) for n, x in zip(names, found, strict=True) if x is not None},
        }
        for first, second, found in filled.pairs
    ]
    return {"tables": rows, "differences": pairs}
