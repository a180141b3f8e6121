"""What must be known of a β study before any number, the worst first; no number is changed."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from groupwise.evaluation.report.phrases import LEVELS, Statement
from groupwise_recipes.demo_selection.conditions import find_differences
from groupwise_recipes.demo_selection.study.runs import (
    MIN_SEEDS,
    PHASES,
    Arm,
    Phase,
    SameLists,
    Study,
    StudyRun,
    has_run,
    pair_runs,
)

_MANY_DEAD, _FEW_CLUSTERS, _MAX_SETTINGS, _SHORT = 0.5, 10, 5, 12


def list_unlike(study: Study) -> list[Statement]:
    """Return in what arms differ beside β: each makes a recommendation impossible."""
    found: dict[tuple[str, ...], Statement] = {}
    for first, second in study.pairs:
        named = {"first": second.name, "second": first.name}
        if first.seeds != second.seeds:
            found["seeds", *named.values()] = Statement("no_shared_seed", named, "error")
        for one, two in pair_runs(second, first):
            for kind, values in _compare_runs(one, two):
                key = kind, str(values.get("thing", "")), *named.values()
                found.setdefault(key, Statement(kind, {**named, **values}, "error"))
    return list(found.values())


def _compare_runs(one: StudyRun, two: StudyRun) -> Iterator[tuple[str, dict[str, Any]]]:
    ours, theirs = one.evaluated, two.evaluated
    for name in find_differences(ours.conditions, theirs.conditions):
        thing = {"thing": Statement(f"thing.{name}")}
        sides = [side.conditions.get(name) for side in (ours, theirs)]
        if sides == [None, None]:
            yield "unknown_condition", thing
        else:
            yield "other_condition", {**thing, **_quote(*sides)}
    if one.subsets.subsets != two.subsets.subsets:
        yield "other_subsets", {}
    if ours.base != theirs.base:
        yield "other_base", _quote(*(side.base and side.base.name for side in (ours, theirs)))
    if ours.trained_shots != theirs.trained_shots:
        yield "other_length", {"ours": ours.trained_shots, "theirs": theirs.trained_shots}
    keys = sorted({*one.settings, *two.settings})
    changed = [key for key in keys if one.settings.get(key) != two.settings.get(key)]
    if changed:
        num = len(changed) - _MAX_SETTINGS
        more = Statement("and_more", {"num": num}) if num > 0 else ""
        yield "other_settings", {"keys": changed[:_MAX_SETTINGS], "more": more}


def _quote(*values: str | None) -> dict[str, Statement]:
    """Return what both sides have, digests cut short."""
    told = [
        Statement("not_known_value")
        if value is None
        else Statement("a_value", {"text": value if " " in value else value[:_SHORT]})
        for value in values
    ]
    return dict(zip(("ours", "theirs"), told, strict=True))


def collect_notices(study: Study) -> list[Statement]:
    """Return all notices: errors first, then warnings, then notes."""
    found = list_unlike(study)
    for arm in study.arms:
        found += _note_arm(study, arm)
    found += [*_note_same(study), *_note_cells(study)]
    for name, seeds in study.left_out.items():
        found.append(_warn("seeds_left_out", arm=name, seeds=list(map(str, seeds))))
    num_seeds = min(len(arm.runs) for arm in study.arms)
    if num_seeds < MIN_SEEDS:
        found.append(Statement("few_seeds", {"num": num_seeds}))
    return sorted(found, key=lambda one: LEVELS.index(one.level))


def _warn(kind: str, **values: Any) -> Statement:
    return Statement(kind, values, "warning")


def _note_arm(study: Study, arm: Arm) -> Iterator[Statement]:
    """Say what is wrong or odd in the trainings of an arm."""
    for run in arm.runs:
        seeded = {"arm": arm.name, "seed": run.seed}
        for epoch in run.training["grpo"]:
            if not epoch.adds_up:
                values = {"epoch": epoch.number, "loss": epoch.loss, "sum": epoch.expected_loss}
                yield Statement("loss_differs", {**seeded, **values}, "error")
        if run.first_gap is not None and run.first_gap[0] > run.first_gap[1]:
            yield Statement("off_policy", {**seeded, "gap": run.first_gap[0]}, "error")
        elif run.first_gap is None and run.training["grpo"]:
            yield _warn("policy_unchecked", **seeded)
    for phase in PHASES:
        epochs = [epoch for run in arm.runs for epoch in run.training[phase]]
        num_dead = sum(epoch.num_dead_groups for epoch in epochs)
        num_groups = sum(epoch.num_groups for epoch in epochs)
        named = {"arm": arm.name, "phase": phase.upper()}
        if num_dead > _MANY_DEAD * num_groups:
            yield _warn("many_dead", **named, share=num_dead / num_groups)
        done, planned = count_epochs(arm, phase)
        if done < planned:
            yield _warn("unfinished", **named, done=done, planned=planned)
    if (said := read_kl(arm)) and said.level == "warning":
        yield said
    if own := sorted(arm.epochs - set(study.epochs)):
        yield _warn("own_epochs", arm=arm.name, epochs=list(map(str, own)))


def count_epochs(arm: Arm, phase: Phase) -> tuple[int, int]:
    """Return how many epochs all runs finished, and how many were planned."""
    planned = max(run.evaluated.planned_epochs.get(phase, 0) for run in arm.runs)
    return min(len(run.training[phase]) for run in arm.runs), planned


def read_kl(arm: Arm) -> Statement | None:
    """Return what the course of KL says of an arm; None with less than two epochs.

    A KL that starts high and falls is never read as a selector that moves away from its start.
    """
    values = [one.kl for one in arm.average_training() if one.kl is not None]
    if len(values) < 2:
        return None
    named = {"arm": arm.name, "first": values[0], "last": values[-1]}
    if all(after > before for before, after in pairwise(values)):
        return Statement("kl_rises", named)
    if not all(after < before for before, after in pairwise(values)):
        return Statement("kl_wavers", named)
    gaps = [run.first_gap for run in arm.runs]
    if all(gap is not None and gap[0] <= gap[1] for gap in gaps):
        return Statement("kl_falls_checked", named)
    return Statement("kl_falls", named, "warning")


def _note_same(study: Study) -> Iterator[Statement]:
    """Say where training, or another β, changed no list, and where one list got two answers."""
    every: list[SameLists] = []

    def count_if_all(same: Sequence[SameLists]) -> int:
        every.extend(same)
        known = [one for one in same if one.num_lists]
        are_all = all(one.num_same == one.num_lists for one in known)
        return sum(one.num_lists for one in known) if are_all else 0

    for arm in study.arms:
        steps = pairwise((0, *study.epochs))
        if num := count_if_all([study.compare_epochs(arm, *one) for one in steps]):
            yield _warn("nothing_changed", arm=arm.name, num=num)
    for first, second in study.pairs:
        if num := count_if_all([study.compare_arms(first, second, x) for x in study.epochs]):
            yield _warn("arms_alike", first=second.name, second=first.name, num=num)
    if num := sum(one.num_other_answers for one in every):
        yield _warn("other_answers", num=num, all=sum(one.num_same for one in every))


def _note_cells(study: Study) -> Iterator[Statement]:
    """Say what has not run or failed, and what the test items are."""
    epochs = (0, *study.epochs)
    asked = [
        (run, run.find_trained(epoch, shots))
        for run in study.runs
        for epoch in epochs
        for shots in study.shots
    ]
    cells = [has_run(run, answers, size) for run, answers in asked for size in study.sizes]
    if not all(cells):
        yield _warn("not_run", num=cells.count(False), all=len(cells))
    rows = [row for _, answers in asked for row in (answers or {}).values()]
    if failed := sum(row.accuracy is None for row in rows):
        yield _warn("failed_evaluations", num=failed, all=len(rows))
    longest = max((cell.shots for run in study.runs for cell in run.cells), default=0)
    trained = min(run.evaluated.trained_shots for run in study.runs)
    if longest > trained:
        yield Statement("trained_shorter", {"trained": trained, "longest": longest})
    clusters = [
        max(len({row.cluster for row in answers.values()}) for answers in run.cells.values())
        for run in study.runs
        if run.cells
    ]
    if clusters and min(clusters) < _FEW_CLUSTERS:
        yield _warn("few_clusters", num=min(clusters))
    if len(study.sizes) > 1 and any(run.subsets.nested for run in study.runs):
        seeds = sorted({str(run.subsets.seed) for run in study.runs})
        yield Statement("nested", {"sizes": list(map(str, study.sizes)), "seeds": seeds})
