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
from groupwise.evaluation.fairness import RunFacts, read_facts
from groupwise.evaluation.methods import MethodDifference, compare_methods
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


@dataclass(frozen=True)
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

    def find(self, arm: _Arm, column: Column) -> tuple[Result, int]:
        """Return what the seeds of an arm come to, and the items of the seed that has most."""
        place = str(self.arms.index(arm)), (column.name,)
        sizes = [one.n or 0 for one in self.results.select(*place)]
        return self.results.summarize(*place), max(sizes, default=0)


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
    for place, arm in enumerate(arms):
        for column in table.columns:
            found = [_read_result(str(place), column, one, table.split) for one in arm.runs]
            applied = ALIGNMENT if column.measure in FAULTS else column.measure
            silent = [applied in policies[x.folder].find(x.policy).inapplicable for x in arm.runs]
            done = [one for one in found if one is not None and one.state == "done"]
            if silent and all(silent):
                done = [Result(str(place), (column.name,), state="inapplicable")]
            # A run that was not asked about these items does not stand for one that was.
            asked = [one for one in found if one is not None]
            results += done or asked[:1] or [Result(str(place), (column.name,), state="waiting")]
    every = ResultTable(results=tuple(results), split=table.split)
    alone = {arm.row.name: arm for arm in arms if not arm.apart}
    filled = _Filled(table, arms, every, [])
    for first, second in ((alone.get(x), alone.get(y)) for x, y in table.pairs):
        if first is not None and second is not None:
            filled.pairs.append((first, second, dict(_subtract(filled, first, second))))
    return filled


def _read_result(place: str, column: Column, one: RunFacts, split: str) -> Result | None:
    """Return what a run has in a column; None if it was asked about no item of its part."""
    rows, name = list(one.answers.get(split, {}).values()), column.measure
    if column.part is not None:
        field, values = column.part
        have = {row.fields.get(field) for row in rows}
        rows = rows if have & {*values} else []
        name += f"[{field}={next((value for value in values if value in have), '')}]"
    if not rows:
        return None
    named: dict[str, Any] = {"cell": (column.name,), "seed": one.facts[SEED]}
    if name not in list_measures(rows):
        return Result(place, **named, state="inapplicable", error="no_item")
    items = read_items(rows, policy=one.policy, split=split, measure=name)
    return Result.of_items(place, items, **named)


def _subtract(filled: _Filled, first: _Arm, second: _Arm) -> Iterator[tuple[str, MethodDifference]]:
    """Yield by column what the second arm has more than the first, over seeds that both have.

    Both must have been asked the same items; those that count have a value on both sides, as a
    verdict on reasoning may be missing on one.
    """
    split = filled.table.split
    asked = [
        {
            (one.facts[SEED], x.example_id, x.cluster, x.label)
            for one in arm.runs
            for x in one.answers.get(split, {}).values()
        }
        for arm in (first, second)
    ]
    other = {seed for seed, *_ in asked[0] ^ asked[1]}
    for column in filled.table.columns:
        sides = [
            {
                one.seed: one.items
                for one in filled.results.select(str(filled.arms.index(arm)), (column.name,))
                if one.items is not None and one.seed not in other
            }
            for arm in (first, second)
        ]
        both = [(sides[0][seed], sides[1][seed]) for seed in sorted({*sides[0]} & {*sides[1]})]
        both = [(a.keep({*b.ids}), b.keep({*a.ids})) for a, b in both if {*a.ids} & {*b.ids}]
        if both:
            yield column.name, compare_methods(*zip(*both, strict=True), is_paired=True)


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
    notices = sorted(
        _collect_notices(filled, runs, every, language), key=lambda one: LEVELS.index(one.level)
    )
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
                {
                    "first": first.row.name,
                    "second": second.row.name,
                    "values": {name: asdict(gap) for name, gap in gaps.items()},
                }
                for first, second, gaps in one.pairs
            ]
            for one in filled
        },
    }
    write_json(out / "study.json", told)
    lines = [f"{phrases.say(f'level.{one.level}')}: {one.text}" for one in page.notices]
    return [*map(unmark_code, lines), f"report: {html}"]


def _describe(filled: _Filled, arm: _Arm) -> dict[str, Any]:
    """Return the numbers of a row."""
    values: dict[str, Any] = {}
    for column in filled.table.columns:
        one, most = filled.find(arm, column)
        known = {name: getattr(one, name) for name in ("value", "low", "high", "limit")}
        sizes = {"n": one.n or 0, "most": most, "by_seed": one.seeds}
        values[column.name] = {"state": one.error or one.state, **known, **sizes}
    sides = {"runs": arm.runs, "repeated": arm.repeated}
    typed = {"published": arm.row.published, "published_apart": arm.row.published_apart}
    return {
        "row": arm.row.name,
        "apart": list(arm.apart),
        "split": filled.table.split,
        "values": values,
        **{key: [str(one.folder) for one in side] for key, side in sides.items()},
        **{key: {name: x.model_dump() for name, x in one.items()} for key, one in typed.items()},
    }


def _collect_notices(
    filled: Sequence[_Filled],
    runs: Sequence[_Run],
    tables: Sequence[StudyTable],
    language: Language,
) -> Iterator[Statement]:
    """Yield what must be known before any number."""
    arms = [arm for one in filled for arm in one.arms]
    shown = {one.folder for arm in arms for one in (*arm.runs, *arm.repeated)}
    for run in (run for run in runs if run.folder not in shown):
        studies = [one.title[language] for one in tables if fits_any(one.runs, run.settings)]
        values: dict[str, Any] = {"folder": str(run.folder), "studies": studies}
        yield Statement("study.no_row" if studies else "study.no_study", values, "warning")
    for table, row in ((one.table, row) for one in filled for row in one.table.rows):
        own = [arm for arm in arms if arm.row is row]
        named = {"row": row.title[language], "table": table.title[language]}
        if len(own) > 1:
            keys = dict.fromkeys(text.partition(" ")[0] for arm in own for text in arm.apart)
            values = named | {"settings": list(keys)[:_MAX_APART]}
            yield Statement("study.told_apart", values, "warning")
        for arm in own:
            said = {run.facts[SEED]: _list_answers(run) for run in arm.runs}
            if any(_list_answers(run) != said[run.facts[SEED]] for run in arm.repeated):
                sides = {"shown": arm.runs, "left": arm.repeated}
                told = {key: [str(x.folder) for x in side] for key, side in sides.items()}
                yield Statement("study.repeated", named | told, "warning")
    numbers = [len(arm.runs) for arm in arms]
    if 1 in numbers:
        yield Statement("study.one_seed", {"num": numbers.count(1)}, "warning")
    if 2 in numbers:
        yield Statement("study.few_seeds")
    places = [
        (one, arm, column) for one in filled for arm in one.arms for column in one.table.columns
    ]
    states = [one.find(arm, column)[0].state for one, arm, column in places]
    if "waiting" in states:
        yield Statement("study.waiting", {"num": states.count("waiting"), "all": len(states)})


def _list_answers(one: RunFacts) -> set[tuple[str, str]]:
    return {(item, row.text) for rows in one.answers.values() for item, row in rows.items()}


def _lay_out(filled: _Filled, phrases: Phrases) -> blocks.Part:
    table, say, language = filled.table, phrases.say, phrases.language
    lead = say("study_table_lead", lead=table.lead[language], split=table.split)
    own: list[blocks.Block | blocks.Table] = [Block(lead), _tabulate(filled, phrases, "published")]
    if any(arm.row.published_apart for arm in filled.arms):
        own.append(Block(say("study_apart_lead")))
        own.append(_tabulate(filled, phrases, "published_apart"))
    if any(row.published or row.published_apart for row in table.rows):
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
    manifests = {one.folder: one.facts for arm in filled.arms for one in arm.runs}
    trained = (x for x, facts in manifests.items() if facts.get("config/checkpoint") is None)
    like = next(trained, None)
    commands = dict.fromkeys(
        table.write_command(arm.row, like)
        for arm in filled.arms
        if any(filled.find(arm, column)[0].state == "waiting" for column in table.columns)
    )
    if commands:
        config = f"configs/{table.config}-qwen2.5-vl-3b.yaml"
        lead = say("study_commands_lead", seed="--set seed=1", config=config)
        told = Block(lead), Block("\n".join(commands), "verbatim")
        own.append(Block(say("study_commands"), "fold", blocks=told))
    return blocks.Part(table.name, table.title[language], tuple(own))


def _tabulate(filled: _Filled, phrases: Phrases, kind: str) -> Table:
    """Return a row per arm: seeds, and each value beside what was published.

    Values published apart have rows and columns of their own.
    """
    arms, columns, say = filled.arms, filled.table.columns, phrases.say
    typed = {name for arm in arms for name in getattr(arm.row, kind)}
    if kind == "published_apart":
        arms = [arm for arm in arms if arm.row.published_apart]
        columns = tuple(column for column in columns if column.name in typed)
    head = [*phrases.say_each("study_arm", "n_seeds")]
    for title, name in ((column.title[phrases.language], column.name) for column in columns):
        head += [title, *([say("study_published", column=title)] if name in typed else [])]
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        seeds = [str(one.facts[SEED]) for one in arm.runs]
        row = [Cell(arm.row.title[phrases.language], " · ".join(arm.apart[:_MAX_APART]))]
        counted = phrases.count(len(seeds), "seed")
        row.append(Cell(counted, phrases.join(seeds), len(seeds)) if seeds else Cell(NOT_RUN))
        for column in columns:
            value, most = filled.find(arm, column)
            row.append(_show_value(value, most, len(seeds), phrases))
            published = getattr(arm.row, kind).get(column.name)
            if published is not None:
                share, notes = published.value / 100, list[str]()
                if value.value is not None:
                    points = format_points(value.value - share, decimals=2)
                    notes.append(say("study_of_published", points=points))
                n = NOT_RUN if published.n is None else f"{published.n:,}"
                notes.append(say("study_published_of", n=n, split=published.split or NOT_RUN))
                row.append(Cell(format_share(share, decimals=2), " · ".join(notes), share))
            elif column.name in typed:
                row.append(Cell(NOT_RUN))
        rows.append(tuple(row))
    return Table("", tuple(head), tuple(rows), kind="headline")


def _show_value(value: Result, most: int, num_seeds: int, phrases: Phrases) -> Cell:
    if value.value is None:
        note = phrases.say("study_no_item") if value.error else ""
        return Cell(NOT_RUN if value.state == "waiting" else DASH, note)
    shares = [one for _, one in value.seeds]
    if value.low is not None and value.high is not None:
        notes = [format_share_interval(value.low, value.high, decimals=2)]
    else:
        ends = format_share_interval(min(shares), max(shares), decimals=2)
        notes = [phrases.say("study_range", shares=ends)]
    kind = "study_n" if value.n == most else "study_n_to"
    notes.append(phrases.say(kind, n=value.n, most=most))
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
