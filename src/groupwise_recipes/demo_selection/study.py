"""The study of β: runs that differ in β and seed, as selections of the table of results.

Whether a β is better is asked once, and what decides was fixed before any result: the last epoch
that all arms finished, all test items, the mean over the shots that all arms ran. Trying every cell
would find a winner by chance. Nothing is computed from a cell that has not run; an item whose
evaluation failed in one arm is left out of that cell in all of them.
"""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, groupby, pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python

from groupwise import core
from groupwise.core import EvaluationError
from groupwise.evaluation.compare import Comparison, compare_results
from groupwise.evaluation.predictions import Items, Language, Measure
from groupwise.evaluation.report.comparison import NOT_RUN, lay_out_comparison
from groupwise.evaluation.report.page import Block, Cell, Part, Table, write_page
from groupwise.evaluation.report.phrases import (
    DASH,
    LEVELS,
    Phrases,
    Statement,
    format_share,
    load_phrases,
    unmark_code,
)
from groupwise.evaluation.result_table import EpochRow, GridAxis, Result, ResultTable, SideRow
from groupwise.evaluation.sources import show_value, tell_rows
from groupwise_recipes.demo_selection import cells as files
from groupwise_recipes.demo_selection.conditions import COMPARED, find_differences

BETA, SEED, PLANNED, SUM = "grpo.beta", "seed", "grpo.epochs", "PPO + β · KL"
MIN_SEEDS, MANY_DEAD = 3, 0.5
LOSS_TOLERANCE = 5e-6
"""So far a logged loss may be from PPO + β · KL: five digits after the point agree."""
MEASURE = Measure("accuracy", "VQA accuracy", "VQA 准确率")
PHRASES = Path(__file__).with_name("phrases.yaml")
Answers = Mapping[str, files.CellRow]


@dataclass(frozen=True, eq=False)
class StudyRun:
    """One training with one β and one seed.

    ``settings`` are all others that can change a result, by dotted key; of what comes from outside,
    and of code, the digest. ``training`` has what ``rce`` and ``grpo`` logged by finished epoch.
    ``first_gap`` is the greatest log ratio or KL before the first update of GRPO and what rounding
    explains; None: the check was not recorded.
    """

    folder: Path
    beta: float
    seed: int
    settings: Mapping[str, Any]
    evaluated: files.EvaluationFacts
    subsets: files.Subsets
    training: Mapping[str, Mapping[int, Mapping[str, float]]]
    cells: Mapping[files.Cell, Answers]
    first_gap: tuple[float, float] | None

    @property
    def arm(self) -> str:
        """Such as ``β = 0.12``, in any language."""
        return f"β = {self.beta:g}"

    @property
    def is_on_policy(self) -> bool:
        """Whether ratios were 1 and KL 0 before the first update, but for rounding."""
        return self.first_gap is not None and self.first_gap[0] <= self.first_gap[1]

    def find(self, epoch: int, shots: int) -> Answers:
        """Return the answers of GRPO at an epoch; at 0 those of the selector it starts from."""
        if epoch:
            return self.cells.get(files.Cell("grpo", shots, epoch), {})
        start = self.settings.get("grpo_from_epoch") or max(self.training["rce"], default=0)
        return self.cells.get(files.Cell("rce", shots, int(start)), {})


@dataclass(frozen=True, eq=False)
class Study:
    """Runs by β and seed; ``left_out`` are seeds by arm that not every arm has."""

    runs: tuple[StudyRun, ...]
    left_out: Mapping[str, Sequence[int]]

    @cached_property
    def arms(self) -> dict[str, list[StudyRun]]:
        """The runs with one β, by its name."""
        return {arm: list(runs) for arm, runs in groupby(self.runs, key=lambda run: run.arm)}

    @cached_property
    def epochs(self) -> list[int]:
        """Epochs of GRPO that all runs finished."""
        return sorted(set.intersection(*(set(run.training["grpo"]) for run in self.runs)))

    @cached_property
    def sizes(self) -> list[int]:
        """Numbers of test items that all runs have a subset of."""
        return sorted(set.intersection(*(set(map(int, run.subsets.subsets)) for run in self.runs)))

    @cached_property
    def shots(self) -> list[int]:
        """Numbers of shots: 1 to 4, and what else was run."""
        cells = {cell for run in self.runs for cell in run.cells if cell.epoch is not None}
        return sorted({1, 2, 3, 4} | {cell.shots for cell in cells})

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every arm with each of a smaller β."""
        return [(second, first) for first, second in combinations(self.arms, 2)]

    def pair_runs(self, one: str, two: str) -> list[tuple[StudyRun, StudyRun]]:
        """Return the runs of two arms that have the same seed."""
        return [(a, b) for a, b in product(self.arms[one], self.arms[two]) if a.seed == b.seed]

    def read_scored(self, run: StudyRun, epoch: int, shots: int) -> dict[str, float]:
        """Return the accuracies of a cell by item, without what failed in an arm."""
        every = [x.find(epoch, shots) for x in self.runs if x.seed == run.seed]
        failed = {item for cell in every for item, row in cell.items() if row.accuracy is None}
        rows = run.find(epoch, shots).items()
        return {x: row.accuracy for x, row in rows if row.accuracy is not None and x not in failed}

    def measure(self, run: StudyRun, epoch: int, size: int, shots: int) -> float | None:
        """Return the accuracy of a subset; None if not all of it was asked, or nothing scored."""
        items, scored = run.subsets.subsets[str(size)], self.read_scored(run, epoch, shots)
        known = [scored[item] for item in items if item in scored]
        return fmean(known) if known and run.find(epoch, shots).keys() >= set(items) else None

    def find_shots(self, runs: Sequence[StudyRun], epochs: Sequence[int]) -> list[int]:
        """Return the shots at which runs have all items of the largest subset in all epochs."""
        places = list(product(runs, epochs, self.sizes[-1:]))
        found = {x: [self.measure(*place, x) for place in places] for x in self.shots}
        return [shots for shots, values in found.items() if values and None not in values]

    def tabulate(self, epochs: Sequence[int]) -> ResultTable:
        """Return the accuracies by epoch of GRPO (0: what it starts from), items and shots.

        A cell has run if all seeds of its arm have.
        """
        axes = {"epoch": epochs, "items": self.sizes, "shots": self.shots}
        results: list[Result] = []
        for (arm, runs), at in product(self.arms.items(), product(*axes.values())):
            values = [self.measure(run, *at) for run in runs]
            for run, value in zip(runs, values, strict=True):
                digest = core.digest_json([[one.seed for one in runs], run.subsets.subsets])
                named: dict[str, Any] = {"value": value, "digest": digest}
                named = {"state": "waiting"} if None in values else named
                named["folder"] = str(run.folder)
                results.append(Result(arm, tuple(map(str, at)), run.seed, **named))
        nested = {"items": any(run.subsets.nested for run in self.runs[: len(self.sizes) - 1])}
        shown = (
            GridAxis(key=key, values=tuple(map(str, values)), nested=nested.get(key))
            for key, values in axes.items()
            if values
        )
        return ResultTable(results=tuple(results), axes=tuple(shown))

    def tabulate_items(
        self, sides: Sequence[tuple[str, str, int]], shots: Sequence[int]
    ) -> Iterator[Result]:
        """Yield the results of sides (name, arm, epoch), on the items that all could score.

        An item has its mean over shots. The baseline is the selector that GRPO starts from.
        """
        for seed in sorted({run.seed for run in self.arms[sides[0][1]]}) if shots else ():
            runs = [run for _, arm, _ in sides for run in self.arms[arm] if run.seed == seed]
            cells = [
                [self.read_scored(run, epoch, one) for one in shots]
                for run, (_, _, epoch) in zip(runs, sides, strict=True)
            ]
            ids = sorted(set.intersection(*(set(cell) for own in cells for cell in own)))
            rows = runs[0].find(sides[0][2], shots[0])
            named: dict[str, Any] = {"measure": "accuracy", "split": "test", "split_digest": ""}
            named |= {"ids": tuple(ids), "clusters": tuple(rows[item].cluster for item in ids)}
            for run, own, (name, _, _) in zip(runs, cells, sides, strict=True):
                values = np.array([float(np.mean([cell[item] for cell in own])) for item in ids])
                items = Items(policy=name, values=values, is_binary=False, **named)
                starts = [self.measure(run, 0, self.sizes[-1], one) for one in shots]
                known = [one for one in starts if one is not None]
                baseline = fmean(known) if len(known) == len(starts) else None
                yield Result.of_items(name, items, seed=seed, baseline=baseline)

    def compare_lists(self) -> Iterator[tuple[str, str, tuple[int, int, int]]]:
        """Yield arms, epochs, and of their lists how many are the same, all, and answered twice.

        Same are those with the same demonstrations in the same order: in an epoch and the one
        before, and in two arms. A same list with another answer is answered twice.
        """
        compared: list[tuple[str, str, list[tuple[Answers, Answers]]]] = []
        for arm, runs in self.arms.items():
            own = sorted(set.intersection(*(set(run.training["grpo"]) for run in runs)))
            for old, new in pairwise((0, *own)):
                places = product(runs, self.shots)
                cells = [(run.find(old, one), run.find(new, one)) for run, one in places]
                compared.append((arm, f"{old} → {new}", cells))
        for (one, two), epoch in product(self.pairs, self.epochs):
            places = product(self.pair_runs(one, two), self.shots)
            cells = [(a.find(epoch, shots), b.find(epoch, shots)) for (a, b), shots in places]
            compared.append((f"{one}, {two}", str(epoch), cells))
        for arms, epochs, cells in compared:
            rows = [(a[item], b[item]) for a, b in cells for item in a.keys() & b.keys()]
            same = [(a, b) for a, b in rows if a.demos == b.demos]
            num_other = sum((a.answer, a.accuracy) != (b.answer, b.accuracy) for a, b in same)
            yield arms, epochs, (len(same), len(rows), num_other)

    def average_epochs(self) -> list[EpochRow]:
        """Return the means over the runs of an arm of the epochs that all of them finished."""
        found: list[EpochRow] = []
        for phase, (arm, runs) in product(("grpo", "rce"), self.arms.items()):
            tables = [run.training[phase] for run in runs]
            for epoch in sorted(set.intersection(*map(set, tables))):
                rows = [table[epoch] for table in tables]
                keys = [key for key in rows[0] if all(key in row for row in rows)]
                means = {key: fmean(row[key] for row in rows) for key in keys}
                groups, dead = means.pop("num_groups"), means.pop("num_dead_groups")
                means |= {"dead_groups": dead / groups} if groups else {}
                named: dict[str, Any] = {"step": phase, "num_runs": len(runs)}
                found.append(EpochRow(system=arm, epoch=epoch, values=means, **named))
        return found


def read_study(folders: Sequence[Path]) -> Study:
    """Return the study of the seeds that all arms have; of all seeds where there are none."""
    runs = sorted(map(_read_run, folders), key=lambda run: (run.beta, run.seed))
    if not runs or len({(run.beta, run.seed) for run in runs}) < len(runs):
        raise EvaluationError(
            "a study takes runs that differ in β or seed",
            got="no run" if not runs else "two with the same β and seed",
            fix="name the folder of each run once",
        )
    return keep_shared(runs)


def keep_shared(runs: Sequence[StudyRun]) -> Study:
    """Return the study of runs, by β and seed, whose seeds all arms have; of all if none is."""
    study = Study(tuple(runs), {})
    seeds = {arm: {run.seed for run in own} for arm, own in study.arms.items()}
    if not (shared := set.intersection(*seeds.values())):
        return study
    left = {arm: sorted(own - shared) for arm, own in seeds.items() if own - shared}
    return Study(tuple(run for run in runs if run.seed in shared), left)


def _read_run(folder: Path) -> StudyRun:
    manifest = core.RunFolder(folder).read_manifest()
    core.check_records(folder)
    kinds = {path: effect["kind"] for path, effect in manifest.get("effects", {}).items()}
    settings = {**dict(core.flatten_settings(manifest["config"])), **manifest.get("inputs", {})}
    evaluation, checked = folder / "evaluate", folder / "grpo" / "on_policy.json"
    if BETA not in settings or SEED not in settings:
        raise EvaluationError(f"{folder} is no run of a selector", expected=f"{BETA} and {SEED}")
    if not (evaluation / files.FACTS).is_file():
        raise EvaluationError(f"{folder} was not evaluated", fix="run it to its end")
    first_gap = None
    if checked.is_file():
        found = core.read_json(checked, dict)
        first_gap = (max(found["max_log_ratio"], found["max_kl"] or 0.0), found["tolerance"])
    kept = {key: value for key, value in settings.items() if key not in (BETA, SEED, PLANNED)}
    return StudyRun(
        folder=folder,
        beta=float(settings[BETA]),
        seed=int(settings[SEED]),
        settings={key: value for key, value in kept.items() if kinds.get(key) != "harmless"},
        evaluated=files.read_facts(evaluation),
        subsets=files.read_subsets(evaluation),
        training={x: read_epochs(folder / x / "metrics.jsonl") for x in ("rce", "grpo")},
        cells={
            cell: {row.id: row for row in files.read_cell(evaluation, cell)}
            for cell in files.list_cells(evaluation)
        },
        first_gap=first_gap,
    )


def read_epochs(path: Path) -> dict[int, dict[str, float]]:
    """Return what a ``metrics.jsonl`` has by finished epoch; nothing without the file.

    Rows within an epoch are means of its steps and are averaged by their groups. An epoch without
    its last row was interrupted and is left out. ``eval_loss`` is RCE at τ = 1 with raw rewards,
    ``ppo_loss`` the clipped surrogate without the penalty, ``kl`` the mean of ρ - 1 - log ρ over
    the recorded lists. Dead are the groups whose lists all earned the same.
    """
    rows = [row for row in (core.read_jsonl(path) if path.is_file() else ()) if "epoch" in row]
    found: dict[int, dict[str, float]] = {}
    for number, group in groupby(rows, key=lambda row: max(1, math.ceil(row["epoch"]))):
        own = list(group)
        if own[-1]["epoch"] != number:
            continue
        values: dict[str, float] = {}
        for key in ("loss", "ppo_loss", "kl"):
            if all(key in row for row in own):
                weights = [row.get("num_groups", 1) for row in own]
                values[key] = float(np.average([row[key] for row in own], weights=weights))
        for key in ("eval_loss", "advantage_std", "advantage_max", "beta"):
            values |= {key: own[-1][key]} if key in own[-1] else {}
        if values.keys() >= {"ppo_loss", "kl", "beta"}:
            values[SUM] = values["ppo_loss"] + values["beta"] * values["kl"]
        for key in ("num_groups", "num_dead_groups"):
            values[key] = sum(row.get(key, 0) for row in own)
        found[number] = values
    return found


def adds_up(row: Mapping[str, float]) -> bool:
    """Return whether the loss of an epoch is PPO + β · KL to five digits, as far as known."""
    return not row.keys() >= {"loss", SUM} or abs(row["loss"] - row[SUM]) <= LOSS_TOLERANCE


def compare_settings(study: Study) -> list[SideRow]:
    """Return what arms were trained and measured with; what differs beside β confounds."""
    facts: dict[StudyRun, dict[tuple[str, str], Any]] = {}
    for run in study.runs:
        told, base, drawn = run.evaluated, run.evaluated.base, run.subsets
        own: dict[tuple[str, str], Any] = {("config", key): x for key, x in run.settings.items()}
        own |= {("conditions", name): told.conditions.get(name) for name in COMPARED}
        own["conditions", "start of GRPO"] = base and f"{base.name} · {base.digest[:8]}"
        own["conditions", "shots in training"] = told.trained_shots
        for size, ids in drawn.subsets.items():
            own["items", size] = f"seed {drawn.seed} · {core.digest_json(ids)[:8]}"
        facts[run] = own
    unlike: set[tuple[str, str]] = set()
    for one, two in (pair for names in study.pairs for pair in study.pair_runs(*names)):
        ours, theirs = facts[one], facts[two]
        unlike |= {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
        same = find_differences(one.evaluated.conditions, two.evaluated.conditions)
        unlike |= {("conditions", name) for name in same}
    if len({tuple(run.seed for run in runs) for runs in study.arms.values()}) > 1:
        unlike.add(("seeds", SEED))
    facts = {run: {("seeds", SEED): run.seed, **own} for run, own in facts.items()}
    betas = tuple(f"{runs[0].beta:g}" for runs in study.arms.values())
    rows = [SideRow("config", BETA, betas, "intended" if betas[1:] else None)]
    why = load_phrases(PHRASES)["not_by_beta"]
    for key in sorted({key for own in facts.values() for key in own}):
        known = [[facts[run].get(key) for run in runs] for runs in study.arms.values()]
        texts = [dict.fromkeys(show_value(x) for x in own if x is not None) for own in known]
        row = SideRow(*key, tuple(", ".join(own) or None for own in texts))
        rows.append(replace(row, kind="confounding", why=why) if key in unlike else row)
    return rows


def collect_notices(study: Study, sides: Sequence[SideRow]) -> Iterator[Statement]:
    """Yield what must be known before any number, but for what every comparison says."""

    def warn(kind: str, **values: Any) -> Statement:
        return Statement(kind, values, "warning")

    yield from tell_rows(sides)
    for arm, seeds in study.left_out.items():
        yield warn("seeds_left_out", arm=arm, seeds=list(map(str, seeds)))
    for run in study.runs:
        seeded: dict[str, Any] = {"arm": run.arm, "seed": run.seed}
        for epoch, row in run.training["grpo"].items():
            if not adds_up(row):
                told = {"epoch": epoch, "loss": row["loss"], "sum": row[SUM]}
                yield Statement("loss_differs", seeded | told, "error")
        if run.first_gap is not None and not run.is_on_policy:
            yield Statement("off_policy", seeded | {"gap": run.first_gap[0]}, "error")
        elif run.first_gap is None and run.training["grpo"]:
            yield warn("policy_unchecked", **seeded)
    epochs = study.average_epochs()
    for (arm, runs), phase in product(study.arms.items(), ("rce", "grpo")):
        named: dict[str, Any] = {"arm": arm, "phase": phase.upper()}
        rows = [row for run in runs for row in run.training[phase].values()]
        dead, groups = (sum(row[key] for row in rows) for key in ("num_dead_groups", "num_groups"))
        if dead > MANY_DEAD * groups:
            yield warn("many_dead", **named, share=dead / groups)
        done = min(len(run.training[phase]) for run in runs)
        planned = max(run.evaluated.planned_epochs.get(phase, 0) for run in runs)
        if done < planned:
            yield warn("unfinished", **named, done=done, planned=planned)
        kl = [
            x.values["kl"]
            for x in epochs
            if (x.system, x.step) == (arm, phase) and "kl" in x.values
        ]
        is_falling = len(kl) > 1 and all(after < before for before, after in pairwise(kl))
        if is_falling and not all(run.is_on_policy for run in runs):
            yield warn("kl_falls", arm=arm, first=kl[0], last=kl[-1])
    lists = list(study.compare_lists())
    for arms in dict.fromkeys(arms for arms, _, _ in lists):
        counts = [own for name, _, own in lists if name == arms]
        if (num := sum(own[1] for own in counts)) and sum(own[0] for own in counts) == num:
            yield warn(
                "nothing_changed" if arms in study.arms else "arms_alike", arms=arms, num=num
            )
    if num := sum(own[2] for _, _, own in lists):
        yield warn("other_answers", num=num, all=sum(own[0] for _, _, own in lists))
    places = product(study.runs, (0, *study.epochs), study.shots)
    asked = [row for run, *place in places for row in run.find(*place).values()]
    if failed := sum(row.accuracy is None for row in asked):
        yield warn("failed_evaluations", num=failed, all=len(asked))
    longest = max((cell.shots for run in study.runs for cell in run.cells), default=0)
    trained = min(run.evaluated.trained_shots for run in study.runs)
    if longest > trained:
        yield Statement("trained_shorter", {"trained": trained, "longest": longest})


def judge(study: Study, sides: Sequence[SideRow]) -> tuple[Comparison, Comparison]:
    """Return the comparison of the arms, and that of each arm with what its GRPO started from.

    Arms that have other seeds or test items are not subtracted.
    """
    confounded = {row.aspect for row in sides if row.kind == "confounding"}
    last = study.epochs[-1:]
    results = [Result(arm, state="waiting") for arm in study.arms]
    if "seeds" not in confounded and (shots := study.find_shots(study.runs, last)):
        results = [*study.tabulate_items([(arm, arm, last[0]) for arm in study.arms], shots)]
    table = ResultTable(results=tuple(results), measure=MEASURE, is_fair=not confounded)
    pairs = [] if confounded & {"seeds", "items"} else study.pairs
    starts: list[Result] = []
    for arm, runs in study.arms.items() if last else ():
        both = [(arm, arm, last[0]), (f"RCE ({arm})", arm, 0)]
        starts += study.tabulate_items(both, study.find_shots(runs, [0, *last]))
    names = [name for name in study.arms if any(one.system == name for one in starts)]
    against = [(name, f"RCE ({name})") for name in names]
    of_starts = replace(table, results=tuple(starts), is_fair=None)
    return compare_results(table, pairs=pairs), compare_results(of_starts, pairs=against)


def list_reasons(study: Study, comparison: Comparison) -> Iterator[Statement]:
    """Yield what was compared, the evidence, the recommended model, and otherwise what to run."""
    epochs, best = study.epochs[-1:], comparison.recommended
    if shots := study.find_shots(study.runs, epochs):
        values = {"epoch": epochs[0], "size": study.sizes[-1], "shots": list(map(str, shots))}
        yield Statement("what_is_compared", values)
    yield from comparison.reasons
    if best is not None:
        file = f"grpo/epoch-{epochs[0]}.safetensors"
        yield Statement("model", {"files": [str(run.folder / file) for run in study.arms[best]]})
    if best is None or not comparison.table.is_of_methods:
        start = core.repeat_start(study.runs[0].folder, without=(BETA, SEED))
        betas = ",".join(f"{runs[0].beta:g}" for runs in study.arms.values())
        num_seeds = max(MIN_SEEDS, *map(len, study.arms.values()))
        command = ["groupwise", "sweep", *(start or ("demo_selection", "--config", "FILE"))]
        command += ["--grid", f"{BETA}={betas}", "--seeds", str(num_seeds)]
        yield Statement("run_again", {"command": shlex.join(command)})


def write_study(folders: Sequence[Path], out: Path, *, language: Language = "en") -> list[str]:
    """Write ``study.html``, ``.md`` and ``.json`` of evaluated runs that differ in β and seed.

    Returns:
        What a terminal shows: warnings, the recommendation, findings, and where the page is.
    """
    study = read_study(folders)
    say = Phrases(language, own=PHRASES).say
    sides = compare_settings(study)
    comparison, starts = judge(study, sides)
    finished = {epoch for run in study.runs for epoch in run.training["grpo"]}
    every = compare_results(study.tabulate(sorted({0, *finished})), pairs=[])
    gaps = compare_results(study.tabulate(study.epochs), pairs=study.pairs)
    of_grid = [one for one in every.notices if one.kind in ("notice.missing", "notice.nested")]
    notices = [*collect_notices(study, sides), *comparison.notices, *of_grid]
    notices.sort(key=lambda one: LEVELS.index(one.level))
    training = {"sides": tuple(sides), "epochs": tuple(study.average_epochs())}
    comparison = replace(
        comparison,
        table=replace(comparison.table, title=say("study_title"), **training),
        notices=tuple(notices),
        reasons=tuple(list_reasons(study, comparison)),
    )
    page, against, values, cells = (
        lay_out_comparison(one, language, own=PHRASES) for one in (comparison, starts, every, gaps)
    )
    findings, verdict = page.boxes
    paragraphs = (*findings.paragraphs, *against.boxes[0].paragraphs)
    lead = Block(say("training_lead"))
    parts = [
        replace(one, blocks=(lead, *one.blocks)) if one.name == "training" else one
        for one in page.parts
    ]
    parts += [one for one in values.parts if one.name == "values"]
    grids = [one for one in cells.parts if one.name == "differences"]
    parts += [replace(one, name="grid", title=say("grid")) for one in grids]
    lists = Block(say("lists_lead")), _tabulate_lists(study, say)
    parts += [Part("lists", say("lists"), lists)]
    if study.pairs:
        parts.append(Part("weighed", say("weighed"), (_weigh_arms(study, gaps, say),)))
    page = replace(
        page,
        checked=say("study_checked"),
        boxes=(verdict, replace(findings, paragraphs=paragraphs)),
        parts=tuple(parts),
        footer=(*values.footer[:-1], Block(say("study_footer"), "plain")),
    )
    html, _ = write_page(page, out, name="study")
    told = {"recommended": comparison.recommended, "reasons": comparison.reasons, **training}
    told |= {"pairs": comparison.pairs, "against_start": starts.pairs, "differences": gaps.pairs}
    told |= {"accuracies": every.cells, "notices": notices}
    core.write_json(out / "study.json", to_jsonable_python(told))
    lines = [f"{say(f'level.{one.level}')}: {one.text}" for one in page.notices]
    for box in page.boxes:
        lines += [box.title, *(f"- {one}" for one in (*box.paragraphs, *box.points))]
    return [*map(unmark_code, lines), f"report: {html}"]


def _tabulate_lists(study: Study, say: Callable[..., str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for arms, epochs, (num_same, num_lists, _) in study.compare_lists():
        shown = Cell(NOT_RUN)
        if num_lists:
            of, share = say("of", part=num_same, all=num_lists), num_same / num_lists
            shown = Cell(format_share(share), of, share)
        rows.append((Cell(arms), Cell(epochs), shown))
    return Table("", tuple(map(say, ("arm", "epoch", "same_lists"))), tuple(rows), num_heads=2)


def _weigh_arms(study: Study, gaps: Comparison, say: Callable[..., str]) -> Table:
    """Return what each arm gains and what it loses against others, the mean over all cells."""
    rows: list[tuple[Cell, ...]] = []
    for arm in study.arms:
        told: dict[bool, list[str]] = {True: [], False: []}
        for pair in (one for one in gaps.pairs if arm in (one.first, one.second)):
            side, other = (1, pair.second) if arm == pair.first else (-1, pair.first)
            if value := side * (pair.mean or 0.0):
                up, down = pair.counts[:2][::side]
                counts = {"up": up, "down": down, "all": sum(pair.counts)}
                text = say("against", value=value, other=other, **counts)
                told[value > 0].append(text)
        rows.append((Cell(arm), *(Cell("; ".join(own) or DASH) for own in told.values())))
    head = tuple(map(say, ("arm", "advantages", "disadvantages")))
    return Table("", head, tuple(rows), kind="wrap")
