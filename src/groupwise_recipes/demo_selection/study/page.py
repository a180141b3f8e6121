"""The page of a β study: what may be recommended, and every table.

One comparison is made, chosen before any result: the last epoch that all arms finished, all test
items, the mean over the shots that all arms ran. Trying every cell would find a winner by chance.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from groupwise.core import repeat_start, write_json
from groupwise.evaluation.compare import compare_results
from groupwise.evaluation.methods import MethodDifference
from groupwise.evaluation.report.comparison import ComparisonLayout
from groupwise.evaluation.report.page import Block, Box, Cell, Notice, Page, Part, Table, write_page
from groupwise.evaluation.report.phrases import (
    DASH,
    Language,
    Phrases,
    Statement,
    choose_arrow,
    format_points,
    format_share,
    mark_code,
    unmark_code,
)
from groupwise.evaluation.report.plots import pick_color
from groupwise.evaluation.result_table import Result, ResultTable
from groupwise_recipes.demo_selection.conditions import COMPARED
from groupwise_recipes.demo_selection.study.notices import (
    collect_notices,
    count_epochs,
    list_unlike,
    read_kl,
)
from groupwise_recipes.demo_selection.study.runs import (
    MIN_SEEDS,
    PHASES,
    START,
    Arm,
    Phase,
    SameLists,
    Study,
    StudyRun,
    make_study,
    pair_runs,
    read_arms,
)

NOT_RUN = "?"
BASELINES = (
    *("none", "random", "nearest_text", "nearest_picture", "nearest_both"),
    *("mmices", "knn_few_shot", "pointwise", "pointwise_reversed", "oracle"),
)
_ALWAYS = ("grpo.learning_rate", "grpo.freeze_backbone")
_SHORT = 12
Outcome = Literal["unlike", "unfinished", "two_seeds", "tied", "checkpoint", "recommended", "alone"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the study recommends, and by which comparison.

    ``outcome`` is ``unlike``: arms differ in more than β; ``unfinished``: cells of the comparison
    have not run; ``two_seeds``: too few for an interval of β; ``tied``: 0 is not left out;
    ``checkpoint``: of these checkpoints one is better; ``recommended``; ``alone``: one arm. ``arm``
    is the better one, ``epoch`` and ``shots`` are of the comparison, ``differences`` of all pairs
    of arms; ``against_start`` has the GRPO of each arm against what it started from.
    """

    outcome: Outcome
    arm: str | None = None
    epoch: int | None = None
    shots: tuple[int, ...] = ()
    differences: tuple[Mapping[str, Any], ...] = ()
    against_start: tuple[Mapping[str, Any], ...] = ()


def judge(study: Study) -> Verdict:
    """Return what may be recommended."""
    is_alike = not list_unlike(study)
    epoch = max(study.epochs, default=None)
    shots = () if epoch is None else study.find_shared_shots(study.arms, (epoch,))
    if epoch is None or not shots:
        return Verdict("unfinished" if is_alike else "unlike", None, epoch)
    compared = [pair for pair in study.pairs if _have_same_items(*pair)]
    results: list[Result] = []
    for pair in compared:
        sides = [(arm.name, arm, epoch) for arm in pair]
        results += study.tabulate_sides(sides, shots, tuple(arm.name for arm in pair))
    differences = _list_differences(results, [(a.name, b.name) for a, b in compared])
    starts: list[Result] = []
    for arm in study.arms:
        if own := study.find_shared_shots([arm], (0, epoch)):
            sides = [(arm.name, arm, epoch), (START, arm, 0)]
            starts += study.tabulate_sides(sides, own, (arm.name,))
    against = _list_differences(starts, [(x.cell[0], START) for x in starts if x.system != START])
    means = {
        arm.name: fmean(fmean(study.average_items(run, epoch, shots).values()) for run in arm.runs)
        for arm in study.arms
    }
    best = max(study.arms, key=lambda arm: means[arm.name])
    own = [one for one in differences if best.name in (one["first"], one["second"])]
    num_seeds = len(best.runs)
    outcome: Outcome = "recommended" if num_seeds >= MIN_SEEDS else "checkpoint"
    if len(own) < len(study.arms) - 1 or not all(one["is_clear"] for one in own):
        outcome = "tied"
    if 1 < num_seeds < MIN_SEEDS:
        outcome = "two_seeds"
    outcome = "alone" if len(study.arms) == 1 else outcome
    outcome = outcome if is_alike else "unlike"
    arm = best.name if outcome in ("recommended", "checkpoint") else None
    return Verdict(outcome, arm, epoch, shots, tuple(differences), tuple(against))


def _have_same_items(first: Arm, second: Arm) -> bool:
    """Whether the arms have the same seeds and, seed by seed, the same test items."""
    return first.seeds == second.seeds and all(
        one.subsets.subsets == two.subsets.subsets for one, two in pair_runs(first, second)
    )


def _list_differences(
    results: Sequence[Result], pairs: Sequence[tuple[str, str]]
) -> list[Mapping[str, Any]]:
    """Return the differences of pairs that have results, with Holm's method over all of them.

    The interval of several seeds draws seeds beside items, so that it speaks of β; that of one
    speaks of these checkpoints.
    """
    pairs = list(dict.fromkeys(pairs))
    if not pairs:
        return []
    found: list[Mapping[str, Any]] = []
    for pair in compare_results(ResultTable(results=tuple(results)), pairs=pairs).pairs:
        gap = next(gap for gap in pair.gaps if gap.test is not None)
        test, values = gap.test, {"first": pair.first, "second": pair.second, "ends": gap.ends}
        is_clear = gap.is_clear and gap.ends is not None and not gap.ends[0] <= 0 <= gap.ends[1]
        values |= {"p_value": gap.p_holm, "is_clear": is_clear, "limit": "", "num_seeds": 1}
        if isinstance(test, MethodDifference):
            values |= {"value": test.estimate, "of_method": True, "num_items": test.num_items}
            found.append(values | {"num_seeds": test.num_seeds_a, "limit": test.limit})
        elif test is not None:
            values |= {"value": test.difference, "of_method": False, "num_items": test.n}
            found.append(values)
    return found


def list_findings(study: Study, verdict: Verdict) -> Iterator[Statement]:
    """Yield what was found: each comparison, and how much of it lists can explain."""
    for one in (*verdict.differences, *verdict.against_start):
        is_start = one["second"] == START
        second = Statement("the_start" if is_start else "an_arm", {"arm": one["second"]})
        ending = Statement("is_clear" if one["is_clear"] else "not_clear")
        kind = "gap_of_method" if one["of_method"] else "gap_of_checkpoints"
        kind = "gap_without_interval" if one["ends"] is None else kind
        yield Statement(kind, {**one, "second": second, "ending": ending})
    for first, second in study.pairs:
        for epoch in study.epochs[-1:]:
            same = study.compare_arms(first, second, epoch)
            if same.num_lists:
                values = {"epoch": epoch, "num": same.num_same, "all": same.num_lists}
                named = {"first": first.name, "second": second.name}
                yield Statement("said.same_lists", {**named, **values})


def list_reasons(study: Study, verdict: Verdict, *, command: str) -> Iterator[Statement]:
    """Yield why something is recommended, or not, and what to run."""
    epoch = verdict.epoch
    if epoch is not None and verdict.shots:
        shots = list(map(str, verdict.shots))
        values = {"epoch": epoch, "size": max(study.sizes, default=0), "shots": shots}
        yield Statement("what_is_compared", values)
    yield Statement(f"why_{verdict.outcome}", {"arm": verdict.arm})
    if verdict.arm is not None:
        arm = next(one for one in study.arms if one.name == verdict.arm)
        files = [str(run.folder / "grpo" / f"epoch-{epoch}.safetensors") for run in arm.runs]
        yield Statement("model", {"files": files})
        gains = [one for one in verdict.against_start if one["first"] == verdict.arm]
        if not gains or not all(one["is_clear"] and one["value"] > 0 for one in gains):
            yield Statement("start_is_as_good", {"arm": verdict.arm})
    if verdict.outcome not in ("recommended", "alone"):
        kind = "run_seeds" if verdict.outcome != "unlike" else "run_alike"
        yield Statement(kind, {"command": command})


def write_command(study: Study) -> str:
    """Return the command that trains all arms alike, with seeds enough for an interval of β.

    It starts with the recipe, the config and the settings of the first of the runs.
    """
    betas = ",".join(f"{arm.beta:g}" for arm in study.arms)
    num_seeds = max(MIN_SEEDS, *(len(arm.runs) for arm in study.arms))
    start = repeat_start(study.runs[0].folder, without=("grpo.beta", "seed"))
    words = ["groupwise", "sweep", *(start or ("demo_selection", "--config", "FILE"))]
    return shlex.join([*words, "--grid", f"grpo.beta={betas}", "--seeds", str(num_seeds)])


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
    verdict, notices = judge(study), collect_notices(study)
    reasons = list(list_reasons(study, verdict, command=write_command(study)))
    phrases = Phrases(language, own=Path(__file__).with_name("phrases.yaml"))
    findings = list(list_findings(study, verdict))
    title = "recommended" if verdict.outcome == "recommended" else "recommended_checkpoint"
    title = phrases.say(title if verdict.arm else "no_recommendation", name=verdict.arm)
    kind = "verdict yes" if verdict.arm else "verdict"
    boxes = [Box(kind, title=title, points=tuple(map(phrases.say, reasons)))]
    if findings:
        boxes.append(Box("findings", tuple(map(phrases.say, findings)), phrases.say("findings")))
    sources = Block(points=tuple(mark_code(run.folder) for run in study.runs))
    page = Page(
        title=phrases.say("study_title"),
        lead=phrases.say("study_lead", arms=[arm.name for arm in study.arms]),
        language=language,
        notices=tuple(Notice(one.level, phrases.say(one)) for one in notices),
        checked=phrases.say("study_checked"),
        legend=tuple((pick_color(place), arm.name) for place, arm in enumerate(study.arms)),
        boxes=tuple(boxes),
        parts=tuple(_list_parts(study, phrases)),
        footer=(
            Block(phrases.say("sources"), "fold", blocks=(sources,)),
            Block(phrases.say("study_footer"), "plain"),
        ),
        is_sortable=True,
    )
    html, _ = write_page(page, folder, name="study")
    said = {"reasons": reasons, "notices": notices, "findings": findings}
    cells = study.tabulate((0, *study.epochs))
    dumped = {
        "verdict": asdict(verdict),
        **{name: list(map(asdict, own)) for name, own in said.items()},
        "arms": [
            {
                "name": arm.name,
                "beta": arm.beta,
                "seeds": arm.seeds,
                "runs": [str(run.folder) for run in arm.runs],
                "training": {
                    run.seed: {x: list(map(asdict, own)) for x, own in run.training.items()}
                    for run in arm.runs
                },
                "cells": [
                    dict(zip(("epoch", "size", "shots"), map(int, cell), strict=True))
                    | {"accuracy": cells.summarize(arm.name, cell).value}
                    for cell in cells.cells
                ],
            }
            for arm in study.arms
        ],
    }
    write_json(folder / "study.json", dumped)
    told = [f"{phrases.say(f'level.{one.level}')}: {one.text}" for one in page.notices]
    for box in page.boxes:
        told += [box.title, *(f"- {one}" for one in (*box.paragraphs, *box.points))]
    return [*map(unmark_code, told), f"report: {html}"]


def _list_parts(study: Study, phrases: Phrases) -> Iterator[Part]:
    def part(name: str, *blocks: Block | Table) -> Part:
        title, lead = phrases.say_each(f"part_{name}", f"lead_{name}")
        return Part(name, title, (Block(lead), *blocks))

    yield part("settings", _tabulate_settings(study, phrases))
    yield part("training", *_show_training(study, phrases))
    every = {epoch for arm in study.arms for epoch in arm.epochs}
    grids = ComparisonLayout(compare_results(study.tabulate({0, *every})), phrases)
    yield part("accuracies", *grids.show_grids()[1:])
    if len(study.arms) > 1 and study.epochs:
        names = [(a.name, b.name) for a, b in study.pairs]
        comparison = compare_results(study.tabulate(study.epochs), pairs=names)
        yield part("differences", *ComparisonLayout(comparison, phrases).show_differences()[1:])
    yield part("lists", _tabulate_lists(study, phrases))
    yield part(
        "systems",
        Block(tables=tuple(_tabulate_systems(study, x, phrases) for x in study.arms)),
    )
    if len(study.arms) > 1:
        blocks: list[Block | Table] = []
        for arm in study.arms:
            blocks.append(Block(arm.name, "heading"))
            weighed = list(_weigh_arm(study, arm))
            for name, wanted in (("advantages", True), ("disadvantages", False)):
                points = tuple(phrases.say(x) for x, is_good in weighed if is_good == wanted)
                blocks.append(Block(phrases.say(name), "title"))
                blocks.append(Block(points=points or (phrases.say("none_seen"),)))
        yield part("arms", *blocks)


def _weigh_arm(study: Study, arm: Arm) -> Iterator[tuple[Statement, bool]]:
    """Yield the advantages (True) and the disadvantages of an arm beside all others."""
    for other in (other for other in study.arms if other is not arm):
        named: dict[str, Any] = {"other": other.name}
        for epoch in study.epochs[-1:]:
            table = study.tabulate([epoch])
            (pair,) = compare_results(table, pairs=[(arm.name, other.name)]).pairs
            if pair.mean:
                values = {"value": pair.mean, "epoch": epoch, "up": pair.counts[0]}
                values |= {"down": pair.counts[1], "all": sum(pair.counts)}
                kind = "more_accurate" if pair.mean > 0 else "less_accurate"
                yield Statement(kind, named | values), pair.mean > 0
        ours, theirs = ({x.number: x.eval_loss for x in a.average_training()} for a in (arm, other))
        last = max(ours, default=0)
        one, two = ours.get(last), theirs.get(last)
        if one is not None and two is not None and one != two and last == max(theirs):
            kind = "lower_loss" if one < two else "higher_loss"
            yield Statement(kind, named | {"ours": one, "theirs": two}), one < two
    for phase in PHASES:
        done, planned = count_epochs(arm, phase)
        kind = "finished_all" if done >= planned else "finished_some"
        values = {"phase": phase.upper(), "done": done, "planned": planned}
        if planned:
            yield Statement(kind, values), done >= planned


def _tabulate_settings(study: Study, phrases: Phrases) -> Table:
    """Return what the arms were trained and measured with, side by side."""
    rows: list[tuple[Cell, ...]] = []

    def show(title: str, read: Callable[[StudyRun], object], kind: str = "confounding") -> None:
        told: list[str] = []
        for arm in study.arms:
            values = [read(run) for run in arm.runs]
            texts = [phrases.say("not_known") if x is None else str(x) for x in values]
            told.append(phrases.join(dict.fromkeys(texts)))
        tag = phrases.say(f"kind.{kind}") if len(set(told)) > 1 and kind else ""
        rows.append((Cell(title, tag=tag, tag_kind=kind if tag else ""), *map(Cell, told)))

    def cut(text: str | None) -> str | None:
        return text if text is None or " " in text else text[:_SHORT]

    def name_base(run: StudyRun) -> str | None:
        base = run.evaluated.base
        return base and f"{base.name} · {base.digest[:_SHORT]}"

    show("β", lambda run: f"{run.beta:g}", "intended")
    show(phrases.say("study_seeds"), lambda run: run.seed)
    show(phrases.say("study_base"), name_base)
    for name in COMPARED:
        show(phrases.say(f"thing.{name}"), lambda run, x=name: cut(run.evaluated.conditions.get(x)))
    show(phrases.say("trained_shots"), lambda run: run.evaluated.trained_shots)
    show(phrases.say("sizes"), lambda run: phrases.join(sorted(run.subsets.subsets, key=int)))
    every = [run.settings for run in study.runs]
    keys = sorted({key for one in every for key in one})
    changed = [key for key in keys if any(one.get(key) != every[0].get(key) for one in every)]
    for key in dict.fromkeys([*(key for key in _ALWAYS if key in every[0]), *changed]):
        show(key, lambda run, x=key: run.settings.get(x))
    for phase in PHASES:
        planned = {run.folder: run.evaluated.planned_epochs.get(phase, DASH) for run in study.runs}
        show(
            phrases.say("epochs_of", phase=phase.upper()),
            lambda run, x=phase, of=planned: phrases.say(
                "of", part=len(run.training[x]), all=of[run.folder]
            ),
            "",
        )
    heads = (phrases.say("setting"), *(arm.name for arm in study.arms))
    return Table("", heads, tuple(rows), kind="wrap")


def _show_training(study: Study, phrases: Phrases) -> Iterator[Block | Table]:
    """Yield what was logged by epoch, how KL and policy loss change, and KL of the arms."""
    warmup, found = (_tabulate_training(study, phase, phrases) for phase in PHASES)
    if found.rows:
        yield Block("GRPO", "heading")
        yield found
    readings = [said for arm in study.arms if (said := read_kl(arm)) is not None]
    if readings:
        yield Block(points=(*map(phrases.say, readings), phrases.say("policy_loss_says")))
    rows: list[tuple[Cell, ...]] = []
    for first, second in study.pairs:
        ours, theirs = ({x.number: x.kl for x in arm.average_training()} for arm in (first, second))
        for epoch in study.epochs:
            one, two = ours.get(epoch), theirs.get(epoch)
            cells = (_show_number(two, 5), _show_number(one, 5), _show_change(two, one))
            same = _show_share(study.compare_arms(first, second, epoch), phrases)
            pair = Cell(f"{first.name} \u2212 {second.beta:g}")
            rows.append((pair, Cell(str(epoch), order=epoch), *cells, same))
    if rows:
        heads = ("pair", "epoch", "kl_second", "kl_first", "kl_difference", "same_lists")
        yield Block(phrases.say("kl_of_arms"), "heading")
        yield Table("", phrases.say_each(*heads), tuple(rows), num_heads=2)
    if warmup.rows:
        yield Block("RCE", "fold", blocks=(warmup,))


def _tabulate_training(study: Study, phase: Phase, phrases: Phrases) -> Table:
    """Return the metrics of each epoch of each arm, means over its seeds."""
    digits = {"loss": 5, "eval_loss": 4}
    if phase == "grpo":
        digits |= {"ppo_loss": 5, "kl": 5, "advantage_std": 3, "advantage_max": 3, "beta": 3}
    columns = {"eval_loss": "validation", "ppo_loss": "ppo"}
    heads = [f"column_{columns.get(name, name)}" for name in digits]
    heads += ["column_sum"] * (phase == "grpo") + ["column_dead"]
    rows: list[tuple[Cell, ...]] = []
    for arm in study.arms:
        for epoch in arm.average_training(phase):
            cells = [_show_number(getattr(epoch, name), n) for name, n in digits.items()]
            if phase == "grpo":
                expected = epoch.expected_loss
                is_known = epoch.loss is not None and expected is not None
                mark = ("✓" if epoch.adds_up else "✗") if is_known else DASH
                cells.append(Cell(mark, "" if epoch.adds_up else f"{expected:.5f}"))
            dead, groups = round(epoch.num_dead_groups), round(epoch.num_groups)
            of = phrases.say("of", part=dead, all=groups) if groups else DASH
            place = Cell(arm.name, order=arm.beta), Cell(str(epoch.number), order=epoch.number)
            rows.append((*place, *cells, Cell(of, order=dead)))
    return Table("", phrases.say_each("arm", "epoch", *heads), tuple(rows), num_heads=2)


def _tabulate_lists(study: Study, phrases: Phrases) -> Table:
    """Return how many lists each epoch has in common with the one before."""
    rows: list[tuple[Cell, ...]] = []
    for arm in study.arms:
        for before, after in pairwise((0, *sorted(arm.epochs))):
            title = f"{before or phrases.say('start')} → {after}"
            same = _show_share(study.compare_epochs(arm, before, after), phrases)
            rows.append((Cell(arm.name), Cell(title, order=after), same))
    return Table("", phrases.say_each("arm", "epoch", "same_lists"), tuple(rows), num_heads=2)


def _tabulate_systems(study: Study, arm: Arm, phrases: Phrases) -> Table:
    """Return what an arm stands beside, on all test items: baselines and selectors by shots."""
    size, last = max(study.sizes, default=0), max(arm.epochs, default=None)
    reversed_epoch = [] if last is None else [("grpo_reversed", last)]
    rows: list[tuple[Cell, ...]] = []
    for name, epoch in (*((name, None) for name in BASELINES), *reversed_epoch):
        at = [{"size": size, "shots": shots, "epoch": epoch} for shots in study.shots]
        values = [_show_accuracy(study.measure_system(arm, name, **one)) for one in at]
        rows.append((Cell(phrases.title("systems", name)), *values))
    table = study.tabulate((0,) if last is None else (0, last))
    for epoch in (0,) if last is None else (0, last):
        name = phrases.say("grpo_of", epoch=epoch) if epoch else phrases.say("start_of")
        cells = [(str(epoch), str(size), str(shots)) for shots in study.shots]
        values = [_show_accuracy(table.summarize(arm.name, one).value) for one in cells]
        rows.append((Cell(name, is_strong=True), *values))
    heads = (phrases.say("shots_of", shots=shots) for shots in study.shots)
    return Table(arm.name, (phrases.say("system"), *heads), tuple(rows), kind="headline")


def _show_accuracy(value: float | None) -> Cell:
    return Cell(NOT_RUN if value is None else format_share(value), order=value)


def _show_number(value: float | None, digits: int) -> Cell:
    text = DASH if value is None else f"{value:.{digits}f}".replace("-", "\u2212")
    return Cell(text, order=value)


def change_relatively(before: float | None, after: float | None) -> float | None:
    """Return (after - before) / |before|; None where one is not known or ``before`` is 0."""
    if before is None or after is None or before == 0:
        return None
    return (after - before) / abs(before)


def _show_change(before: float | None, after: float | None) -> Cell:
    """Return a relative change such as ``−13.5 %``, a dash where there is none."""
    value = change_relatively(before, after)
    if value is None:
        return Cell(DASH)
    return Cell(f"{format_points(value)}\u00a0%\u00a0{choose_arrow(value)}", order=value)


def _show_share(same: SameLists, phrases: Phrases) -> Cell:
    """Return the share of lists that are the same, and of how many; ``?`` without any."""
    if not same.num_lists:
        return Cell(NOT_RUN)
    share = same.num_same / same.num_lists
    note = phrases.say("of", part=same.num_same, all=same.num_lists)
    return Cell(format_share(share), note, share)
