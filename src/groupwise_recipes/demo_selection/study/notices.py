"""What must be known of a study before any number, the worst first; no number is changed."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from groupwise.evaluation import LEVELS, Statement
from groupwise_recipes.demo_selection.conditions import find_differences
from groupwise_recipes.demo_selection.study.arms import Arm, StudyRun
from groupwise_recipes.demo_selection.study.lists import SameLists, compare_arms, compare_epochs
from groupwise_recipes.demo_selection.study.reading import read_kl
from groupwise_recipes.demo_selection.study.values import Study, has_run, list_failed, pair_runs
from groupwise_recipes.demo_selection.study.verdict import MIN_SEEDS

_MANY_DEAD = 0.5
_FEW_CLUSTERS = 10
_MAX_SETTINGS = 5


def list_unlike(study: Study) -> list[Statement]:
    """Return in what arms differ beside β: each makes a recommendation impossible."""
    found: dict[tuple[str, ...], Statement] = {}
    for first, second in study.pairs:
        if first.seeds != second.seeds:
            values = {"first": second.name, "second": first.name}
            found["seeds", *values.values()] = Statement("no_shared_seed", values, "error")
        for one, two in pair_runs(second, first):
            for kind, values in _compare_runs(one, two):
                key = (kind, str(values.get("thing", "")), first.name, second.name)
                named = {"first": second.name, "second": first.name, **values}
                found.setdefault(key, Statement(kind, named, "error"))
    return list(found.values())


def _compare_runs(one: StudyRun, two: StudyRun) -> Iterator[tuple[str, Mapping[str, object]]]:
    ours, theirs = one.evaluated.conditions, two.evaluated.conditions
    for name in find_differences(ours, theirs):
        thing = {"thing": Statement(f"thing.{name}")}
        if ours.get(name) is None and theirs.get(name) is None:
            yield "unknown_condition", thing
        else:
            yield "other_condition", {**thing, **_quote(ours.get(name), theirs.get(name))}
    if one.subsets.subsets != two.subsets.subsets:
        yield "other_subsets", {}
    if one.evaluated.base != two.evaluated.base:
        names = [run.evaluated.base.name if run.evaluated.base else None for run in (one, two)]
        yield "other_base", _quote(*names)
    if one.evaluated.trained_shots != two.evaluated.trained_shots:
        shots = one.evaluated.trained_shots, two.evaluated.trained_shots
        yield "other_length", {"ours": shots[0], "theirs": shots[1]}
    changed = sorted(
        key
        for key in {*one.settings, *two.settings}
        if one.settings.get(key) != two.settings.get(key)
    )
    if changed:
        shown = changed[:_MAX_SETTINGS]
        more = Statement("and_more", {"num": len(changed) - len(shown)})
        yield "other_settings", {"keys": shown, "more": more if len(changed) > len(shown) else None}


def _quote(*values: str | None) -> dict[str, Statement]:
    """Return what both sides have, digests cut short."""
    return {
        side: Statement("not_known_value")
        if value is None
        else Statement("a_value", {"text": value if " " in value else value[:12]})
        for side, value in zip(("ours", "theirs"), values, strict=True)
    }


def collect_notices(study: Study) -> list[Statement]:
    """Return all notices: errors first, then warnings, then notes."""
    found = [
        *list_unlike(study),
        *(one for arm in study.arms for one in _note_training(arm)),
        *(said for arm in study.arms if (said := read_kl(arm)) and said.level == "warning"),
        *_note_unchanged(study),
        *_note_epochs(study),
        *_note_cells(study),
        *_note_items(study),
        *_note_seeds(study),
    ]
    return sorted(found, key=lambda one: LEVELS.index(one.level))


def _note_training(arm: Arm) -> Iterator[Statement]:
    named = {"arm": arm.name}
    for run in arm.runs:
        seeded = {**named, "seed": run.seed}
        for epoch in run.training["grpo"]:
            if not epoch.adds_up:
                values = {"epoch": epoch.number, "loss": epoch.loss, "sum": epoch.expected_loss}
                yield Statement("loss_differs", {**seeded, **values}, "error")
        if run.first_gap is not None and run.first_gap[0] > run.first_gap[1]:
            yield Statement("off_policy", {**seeded, "gap": run.first_gap[0]}, "error")
        elif run.first_gap is None and run.training["grpo"]:
            yield Statement("policy_unchecked", seeded, "warning")
    for phase in ("rce", "grpo"):
        epochs = [epoch for run in arm.runs for epoch in run.training[phase]]
        num_dead = sum(epoch.num_dead_groups for epoch in epochs)
        num_groups = sum(epoch.num_groups for epoch in epochs)
        if num_dead > _MANY_DEAD * num_groups:
            values = {"phase": phase.upper(), "share": num_dead / num_groups}
            yield Statement("many_dead", {**named, **values}, "warning")


def _note_unchanged(study: Study) -> Iterator[Statement]:
    """Say where training, or another β, changed no list, and where the same list was answered."""
    every: list[SameLists] = []
    for arm in study.arms:
        same = [compare_epochs(study, arm, *one) for one in pairwise((0, *study.epochs))]
        if (num := _count_if_all(same)) > 0:
            yield Statement("nothing_changed", {"arm": arm.name, "num": num}, "warning")
        every += same
    for first, second in study.pairs:
        same = [compare_arms(study, first, second, epoch) for epoch in study.epochs]
        if (num := _count_if_all(same)) > 0:
            values = {"first": second.name, "second": first.name, "num": num}
            yield Statement("arms_alike", values, "warning")
        every += same
    num_other = sum(one.num_other_answers for one in every)
    if num_other:
        values = {"num": num_other, "all": sum(one.num_same for one in every)}
        yield Statement("other_answers", values, "warning")


def _count_if_all(same: Iterable[SameLists]) -> int:
    """Return how many lists there are if all of them are the same, else 0."""
    known = [one for one in same if one.num_lists]
    return sum(one.num_lists for one in known) if all(one.are_all for one in known) else 0


def _note_epochs(study: Study) -> Iterator[Statement]:
    for arm in study.arms:
        for phase in ("rce", "grpo"):
            planned = max(run.evaluated.planned_epochs.get(phase, 0) for run in arm.runs)
            done = min(len(run.training[phase]) for run in arm.runs)
            if done < planned:
                values = {"arm": arm.name, "phase": phase.upper(), "done": done, "planned": planned}
                yield Statement("unfinished", values, "warning")
        own = study.list_own_epochs(arm)
        if own:
            values = {"arm": arm.name, "epochs": list(map(str, own))}
            yield Statement("own_epochs", values, "warning")


def _note_cells(study: Study) -> Iterator[Statement]:
    places = [
        (run, run.find_trained(epoch, shots))
        for arm in study.arms
        for run in arm.runs
        for epoch in (0, *study.epochs)
        for shots in study.shots
    ]
    cells = [has_run(run, asked, size) for run, asked in places for size in study.sizes]
    if not all(cells):
        yield Statement("not_run", {"num": cells.count(False), "all": len(cells)}, "warning")
    found = [asked for _, asked in places if asked is not None]
    failed = sum(len(list(list_failed(asked))) for asked in found)
    if failed:
        yield Statement(
            "failed_evaluations", {"num": failed, "all": sum(map(len, found))}, "warning"
        )


def _note_items(study: Study) -> Iterator[Statement]:
    runs = [run for arm in study.arms for run in arm.runs]
    longest = max((cell.shots for run in runs for cell in run.cells), default=0)
    trained = min(run.evaluated.trained_shots for run in runs)
    if longest > trained:
        yield Statement("trained_shorter", {"trained": trained, "longest": longest}, "info")
    clusters = [
        max(len({row.cluster for row in asked.values()}) for asked in run.cells.values())
        for run in runs
        if run.cells
    ]
    if clusters and min(clusters) < _FEW_CLUSTERS:
        yield Statement("few_clusters", {"num": min(clusters)}, "warning")
    if any(run.subsets.nested for run in runs) and len(study.sizes) > 1:
        seeds = sorted({str(run.subsets.seed) for run in runs})
        sizes = list(map(str, study.sizes))
        yield Statement("nested", {"sizes": sizes, "seeds": seeds}, "info")


def _note_seeds(study: Study) -> Iterator[Statement]:
    for name, seeds in study.left_out.items():
        yield Statement("seeds_left_out", {"arm": name, "seeds": list(map(str, seeds))}, "warning")
    num_seeds = min(len(arm.runs) for arm in study.arms)
    if num_seeds < MIN_SEEDS:
        yield Statement("few_seeds", {"num": num_seeds}, "info")
