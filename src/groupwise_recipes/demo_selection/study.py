"""The study of β: runs that differ in β and seed, as selections of the table of results.

Whether a β is better is asked once, and what decides was fixed before any result: the last epoch
that all arms finished, all test items, the mean over the shots that all arms ran. Trying every cell
would find a winner by chance. Nothing is computed from a cell that has not run; an item whose
evaluation failed in one arm is left out of that cell in all of them.
"""

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
    format_plain,
    format_share,
    load_phrases,
    unmark_code,
)
from groupwise.evaluation.result_table import Result, ResultTable, SideRow, arrange_sides, tell_rows
from groupwise_recipes.demo_selection import cells as files
from groupwise_recipes.demo_selection.conditions import COMPARED, find_differences

BETA, SEED, PLANNED, SUM = "grpo.beta", "seed", "grpo.epochs", "PPO + β · KL"
LOGGED = ("loss", "eval_loss", "ppo_loss", "kl", "advantage_std", "advantage_max", "beta")
MANY_DEAD = 0.5
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
    ``gap`` is the greatest log ratio or KL before the first update of GRPO; None: not recorded.
    """

    folder: Path
    beta: float
    seed: int
    settings: Mapping[str, Any]
    evaluated: files.EvaluationFacts
    subsets: files.Subsets
    training: Mapping[str, Mapping[int, Mapping[str, float]]]
    cells: Mapping[files.Cell, Answers]
    gap: float | None
    is_on_policy: bool  # whether the gap is no more than rounding explains

    @property
    def arm(self) -> str:
        """Such as ``β = 0.12``, in any language."""
        return f"β = {self.beta:g}"

    def find(self, epoch: int, shots: int) -> Answers:
        """Return the answers of GRPO at an epoch; at 0 those of the selector it starts from."""
        if epoch:
            return self.cells.get(files.Cell("grpo", shots, epoch), {})
        # Finished runs may name another epoch than the last, which was a setting.
        start = self.settings.get("grpo_from_epoch") or max(self.training["rce"], default=0)
        return self.cells.get(files.Cell("rce", shots, int(start)), {})


@dataclass(frozen=True, eq=False)
class Study:
    """Runs by β and seed, every β with the same seeds; those that not all have are left out."""

    runs: tuple[StudyRun, ...]
    left_out: tuple[StudyRun, ...] = ()

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

    def score(
        self, run: StudyRun, epoch: int, shots: Sequence[int], size: int, beside: Sequence[int] = ()
    ) -> Items | None:
        """Return the accuracies of a subset, means over shots; None: not all of it was asked.

        An item that failed in an arm, at the epoch or one ``beside`` it, is left out.
        """
        ids, cells = {*run.subsets.subsets[str(size)]}, [run.find(epoch, one) for one in shots]
        arms = [one for one in self.runs if one.seed == run.seed]
        every = [one.find(*at) for one, *at in product(arms, {epoch, *beside}, shots)]
        failed = {item for cell in every for item, row in cell.items() if row.accuracy is None}
        kept = sorted(ids - failed)
        if not kept or not cells or any(not cell.keys() >= ids for cell in cells):
            return None
        return Items(
            measure="accuracy",
            split="test",
            policy=run.arm if epoch else f"RCE ({run.arm})",
            ids=tuple(kept),
            clusters=tuple(cells[0][item].cluster for item in kept),
            values=np.array([fmean(cell[item].accuracy or 0.0 for cell in cells) for item in kept]),
        )

    def find_shots(self) -> list[int]:
        """Return the shots at which all runs have the start and the last epoch, of all items."""
        places = list(product(self.runs, (0, *self.epochs[-1:]), self.sizes[-1:]))
        scored = {
            shots: [self.score(run, epoch, [shots], size) for run, epoch, size in places]
            for shots in self.shots
        }
        return [shots for shots, found in scored.items() if self.epochs and None not in found]

    def tabulate(self, epochs: Sequence[int], *, is_fair: bool = True) -> ResultTable:
        """Return the accuracies by epoch of GRPO (0: what it starts from), items and shots.

        A cell has run if all seeds of its arm have.
        """
        axes = {"epoch": epochs, "items": self.sizes, "shots": self.shots}
        results: list[Result] = []
        for (arm, runs), at in product(self.arms.items(), product(*axes.values())):
            epoch, size, shots = at
            scored = [self.score(run, epoch, [shots], size) for run in runs]
            for run, items in zip(runs, scored, strict=True):
                place: dict[str, Any] = {"cell": tuple(map(str, at)), "seed": run.seed}
                place["folder"] = str(run.folder)
                if items is None or None in scored:
                    results.append(Result(arm, state="waiting", **place))
                else:
                    results.append(Result(arm, **place).fill(items))
        shown = {key: tuple(map(str, values)) for key, values in axes.items() if values}
        return ResultTable(results=tuple(results), axes=shown, is_fair=is_fair)

    def compare_lists(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield arms, epochs, and of their lists how many are the same, and all.

        Same are those with the same demonstrations in the same order: in an epoch and the one
        before, and in two arms.
        """
        sides: list[tuple[str, str, Sequence[StudyRun], Sequence[StudyRun], int, int]] = []
        for (arm, runs), (old, new) in product(self.arms.items(), pairwise((0, *self.epochs))):
            sides.append((arm, f"{old} → {new}", runs, runs, old, new))
        for (one, two), epoch in product(self.pairs, self.epochs):
            named = f"{one}, {two}", str(epoch)
            sides.append((*named, self.arms[one], self.arms[two], epoch, epoch))
        for arms, epochs, ours, theirs, old, new in sides:
            pairs = product(zip(ours, theirs, strict=True), self.shots)
            cells = [(a.find(old, shots), b.find(new, shots)) for (a, b), shots in pairs]
            same = [a[x].demos == b[x].demos for a, b in cells for x in a.keys() & b.keys()]
            yield arms, epochs, sum(same), len(same)

    def list_epochs(self, phase: str) -> Iterator[tuple[str, int, dict[str, float]]]:
        """Yield arm, epoch and the means over its runs, of epochs that all of them finished."""
        for arm, runs in self.arms.items():
            logs = [run.training[phase] for run in runs]
            for epoch in sorted(set.intersection(*map(set, logs))):
                rows = [log[epoch] for log in logs]
                keys = [key for key in rows[0] if all(key in row for row in rows)]
                yield arm, epoch, {key: fmean(row[key] for row in rows) for key in keys}


def read_study(folders: Sequence[Path]) -> Study:
    """Return the study of the seeds that runs of every β have."""
    runs = sorted(map(_read_run, folders), key=lambda run: (run.beta, run.seed))
    if not runs or len({(run.beta, run.seed) for run in runs}) < len(runs):
        raise EvaluationError(
            "a study takes runs that differ in β or seed",
            got="no run" if not runs else "two with the same β and seed",
            fix="name the folder of each run once",
        )
    seeds = {arm: {run.seed for run in own} for arm, own in Study(tuple(runs)).arms.items()}
    shared = set.intersection(*seeds.values())
    if not shared:
        raise EvaluationError(
            "no seed is common to all β",
            got=seeds,
            fix="train every β with the same seeds: a seed alone moves the numbers",
        )
    left = tuple(run for run in runs if run.seed not in shared)
    return Study(tuple(run for run in runs if run.seed in shared), left)


def _read_run(folder: Path) -> StudyRun:
    manifest = core.RunFolder(folder).read_manifest()
    core.check_records(folder)
    kinds = {path: effect["kind"] for path, effect in manifest.get("effects", {}).items()}
    settings = {**dict(core.flatten_settings(manifest["config"])), **manifest.get("inputs", {})}
    evaluation, path = folder / "evaluate", folder / "grpo" / "on_policy.json"
    if BETA not in settings or SEED not in settings:
        raise EvaluationError(f"{folder} is no run of a selector", expected=f"{BETA} and {SEED}")
    if not (evaluation / files.FACTS).is_file():
        raise EvaluationError(f"{folder} was not evaluated", fix="run it to its end")
    checked = core.read_json(path, dict) if path.is_file() else None
    gap = None if checked is None else max(checked["max_log_ratio"], checked["max_kl"] or 0.0)
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
        gap=gap,
        is_on_policy=checked is not None and gap is not None and gap <= checked["tolerance"],
    )


def read_epochs(path: Path) -> dict[int, dict[str, float]]:
    """Return the last row of each finished epoch of a ``metrics.jsonl``; none without the file.

    ``eval_loss`` is RCE at τ = 1 with raw rewards, ``ppo_loss`` the clipped surrogate without the
    penalty, ``kl`` the mean of ρ - 1 - log ρ over the recorded lists. Dead are the groups whose
    lists all earned the same.
    """
    found: dict[int, dict[str, float]] = {}
    for row in core.read_jsonl(path) if path.is_file() else ():
        if (epoch := row.get("epoch")) and epoch == int(epoch):
            values = {key: row[key] for key in (*LOGGED, "dead_groups") if key in row}
            if values.keys() >= {"ppo_loss", "kl", "beta"}:
                values[SUM] = values["ppo_loss"] + values["beta"] * values["kl"]
            found[int(epoch)] = values
    return found


def adds_up(row: Mapping[str, float]) -> bool:
    """Return whether the loss of an epoch is PPO + β · KL to five digits, as far as known."""
    return not row.keys() >= {"loss", SUM} or abs(row["loss"] - row[SUM]) <= LOSS_TOLERANCE


def compare_settings(study: Study) -> tuple[SideRow, ...]:
    """Return what arms were trained and measured with; what differs beside β confounds."""
    facts: dict[StudyRun, dict[str, Any]] = {}
    for run in study.runs:
        told, base, drawn = run.evaluated, run.evaluated.base, run.subsets
        own = facts[run] = {f"config/{key}": x for key, x in run.settings.items()}
        own |= {f"conditions/{name}": told.conditions.get(name) for name in COMPARED}
        own["conditions/start of GRPO"] = base and f"{base.name} · {base.digest[:8]}"
        own["conditions/shots in training"] = told.trained_shots
        for size, ids in drawn.subsets.items():
            own[f"items/{size}"] = f"seed {drawn.seed} · {core.digest_json(ids)[:8]}"
    unlike = {
        f"conditions/{name}"
        for arms in zip(*study.arms.values(), strict=True)
        for one, two in combinations(arms, 2)
        for name in find_differences(one.evaluated.conditions, two.evaluated.conditions)
    }
    kinds: dict[str, Any] = {f"config/{BETA}": ("intended", {})} if study.pairs else {}
    known = {f"config/{BETA}": [[f"{runs[0].beta:g}"] for runs in study.arms.values()]}
    for key in sorted({key for own in facts.values() for key in own}):
        values = [[facts[run].get(key) for run in runs] for runs in study.arms.values()]
        known[key] = [[x for x in own if x is not None] for own in values]
        if key in unlike or any(own != values[0] for own in values):
            kinds[key] = ("confounding", load_phrases(PHRASES)["not_by_beta"])
    return arrange_sides(known, kinds)


def collect_notices(study: Study, sides: Sequence[SideRow]) -> Iterator[Statement]:
    """Yield what must be known before any number, but for what every comparison says."""

    def warn(kind: str, **values: Any) -> Statement:
        return Statement(kind, values, "warning")

    yield from tell_rows(sides)
    if study.left_out:
        runs = [f"{run.arm}, seed {run.seed}" for run in study.left_out]
        yield warn("seeds_left_out", runs=runs)
    for run in study.runs:
        seeded: dict[str, Any] = {"arm": run.arm, "seed": run.seed}
        for epoch, row in run.training["grpo"].items():
            if not adds_up(row):
                told = {"epoch": epoch, "loss": row["loss"], "sum": row[SUM]}
                yield Statement("loss_differs", seeded | told, "error")
        if run.gap is None and run.training["grpo"]:
            yield warn("policy_unchecked", **seeded)
        elif not run.is_on_policy and run.gap is not None:
            yield Statement("off_policy", seeded | {"gap": run.gap}, "error")
    for (arm, runs), phase in product(study.arms.items(), ("rce", "grpo")):
        named: dict[str, Any] = {"arm": arm, "phase": phase.upper()}
        rows = [values for name, _, values in study.list_epochs(phase) if name == arm]
        if (dead := max((row.get("dead_groups", 0.0) for row in rows), default=0.0)) > MANY_DEAD:
            yield warn("many_dead", **named, share=dead)
        done = min(len(run.training[phase]) for run in runs)
        planned = max(run.evaluated.planned_epochs.get(phase, 0) for run in runs)
        if done < planned:
            yield warn("unfinished", **named, done=done, planned=planned)
        kl = [row["kl"] for row in rows if "kl" in row]
        is_falling = len(kl) > 1 and all(after < before for before, after in pairwise(kl))
        if is_falling and not all(run.is_on_policy for run in runs):
            yield warn("kl_falls", arm=arm, first=kl[0], last=kl[-1])
    lists = list(study.compare_lists())
    for arms in dict.fromkeys(arms for arms, *_ in lists):
        counts = [(same, num) for name, _, same, num in lists if name == arms]
        num = sum(num for _, num in counts)
        if num and num == sum(same for same, _ in counts):
            kind = "nothing_changed" if arms in study.arms else "arms_alike"
            yield warn(kind, arms=arms, num=num)
    places = product(study.runs, (0, *study.epochs), study.shots)
    asked = [row for run, *place in places for row in run.find(*place).values()]
    if failed := sum(row.accuracy is None for row in asked):
        yield warn("failed_evaluations", num=failed, all=len(asked))
    longest = max((cell.shots for run in study.runs for cell in run.cells), default=0)
    trained = min(run.evaluated.trained_shots for run in study.runs)
    if longest > trained:
        yield Statement("trained_shorter", {"trained": trained, "longest": longest})


def judge(study: Study, sides: Sequence[SideRow]) -> tuple[Comparison, Comparison]:
    """Return the comparison of the arms, and that of each arm with what its GRPO started from."""
    results, starts, shots = list[Result](), list[Result](), study.find_shots()
    for run in study.runs:
        asked = (0, *study.epochs[-1:])
        found = [study.score(run, epoch, shots, study.sizes[-1], asked) for epoch in asked]
        start, last = found if shots else (None, None)
        if start is None or last is None:
            results.append(Result(run.arm, seed=run.seed, state="waiting"))
            continue
        named: dict[str, Any] = {"seed": run.seed, "baseline": start.value}
        results.append(Result(run.arm, **named).fill(last))
        starts += [results[-1], Result(f"RCE ({run.arm})", **named).fill(start)]
    is_fair = all(row.kind != "confounding" for row in sides)
    table = ResultTable(results=tuple(results), measure=MEASURE, is_fair=is_fair)
    of_starts = replace(table, results=tuple(starts), is_fair=None)
    against = [(arm, f"RCE ({arm})") for arm in study.arms] if starts else []
    return compare_results(table, pairs=study.pairs), compare_results(of_starts, pairs=against)


def list_reasons(study: Study, comparison: Comparison) -> Iterator[Statement]:
    """Yield what was compared, the evidence, and the recommended model."""
    if shots := study.find_shots():
        values = {"epoch": study.epochs[-1], "size": study.sizes[-1]}
        yield Statement("what_is_compared", values | {"shots": list(map(str, shots))})
    yield from comparison.reasons
    for run in study.arms.get(comparison.recommended or "", ()):
        file = run.folder / "grpo" / f"epoch-{study.epochs[-1]}.safetensors"
        yield Statement("model", {"file": str(file)})


def write_study(folders: Sequence[Path], out: Path, *, language: Language = "en") -> list[str]:
    """Write ``study.html``, ``.md`` and ``.json`` of evaluated runs that differ in β and seed.

    Returns:
        What a terminal shows: warnings, the recommendation, findings, and where the page is.
    """
    study, phrases = read_study(folders), Phrases(language, own=PHRASES)
    say, sides = phrases.say, compare_settings(study)
    comparison, starts = judge(study, sides)
    finished = {epoch for run in study.runs for epoch in run.training["grpo"]}
    every = compare_results(study.tabulate(sorted({0, *finished})), pairs=[])
    grid = study.tabulate(study.epochs, is_fair=bool(comparison.table.is_fair))
    gaps = compare_results(grid, pairs=study.pairs)
    kinds = ("notice.rests_on_few", "notice.missing", "notice.nested")
    told = [one for one in (*starts.notices, *every.notices) if one.kind in kinds]
    notices = [*collect_notices(study, sides), *comparison.notices, *told]
    notices.sort(key=lambda one: LEVELS.index(one.level))
    comparison = replace(
        comparison,
        table=replace(comparison.table, title=say("study_title"), sides=sides),
        notices=tuple(notices),
        reasons=tuple(list_reasons(study, comparison)),
    )
    page, against, values, differences = (
        lay_out_comparison(one, language, own=PHRASES) for one in (comparison, starts, every, gaps)
    )
    findings, verdict = page.boxes
    found = [text for one in (page, against, differences) for text in one.boxes[0].paragraphs]
    epochs = {phase: [*study.list_epochs(phase)] for phase in ("grpo", "rce")}
    training: list[Block | Table] = [Block(say("training_lead"))]
    for phase, rows in ((x, own) for x, own in epochs.items() if own):
        keys = dict.fromkeys(key for *_, own in rows for key in own)
        head = *phrases.say_each("arm", "epoch"), *(phrases.title("series", key) for key in keys)
        cells = [
            (arm, str(epoch), *(format_plain(own[x]) if x in own else DASH for x in keys))
            for arm, epoch, own in rows
        ]
        training.append(Table(f"{say('last_values')} · {phase}", head, tuple(cells), num_heads=2))
    parts = [*page.parts, Part("training", say("training"), tuple(training))]
    parts += [one for one in values.parts if one.name == "values"]
    grids = [one for one in differences.parts if one.name == "differences"]
    parts += [replace(one, name="grid", title=say("grid")) for one in grids]
    lists: list[tuple[str | Cell, ...]] = []
    for arms, epoch, same, num in study.compare_lists():
        share = format_share(same / num) if num else NOT_RUN
        lists.append((arms, epoch, Cell(share, say("of", part=same, all=num))))
    head = phrases.say_each("arm", "epoch", "same_lists")
    shown = Block(say("lists_lead")), Table("", head, tuple(lists), num_heads=2)
    weighed = (_weigh_arms(study, gaps, say),)
    parts += [Part("lists", say("lists"), shown), Part("weighed", say("weighed"), weighed)]
    page = replace(
        page,
        checked=say("study_checked"),
        boxes=(verdict, replace(findings, paragraphs=tuple(dict.fromkeys(found)))),
        parts=tuple(parts),
        footer=(*values.footer[:-1], Block(say("study_footer"), "plain")),
    )
    html, _ = write_page(page, out, name="study")
    told = {"recommended": comparison.recommended, "reasons": comparison.reasons, "sides": sides}
    told |= {"epochs": epochs, "pairs": comparison.pairs, "against_start": starts.pairs}
    told |= {"differences": gaps.pairs, "accuracies": every.cells, "notices": notices}
    core.write_json(out / "study.json", to_jsonable_python(told))
    lines = [f"{say(f'level.{one.level}')}: {one.text}" for one in page.notices]
    for box in page.boxes:
        lines += [box.title, *(f"- {one}" for one in (*box.paragraphs, *box.points))]
    return [*map(unmark_code, lines), f"report: {html}"]


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
                told[value > 0].append(say("against", value=value, other=other, **counts))
        rows.append((Cell(arm), *(Cell("; ".join(own) or DASH) for own in told.values())))
    head = say("arm"), say("advantages"), say("disadvantages")
    return Table("", head, tuple(rows), kind="wrap")
