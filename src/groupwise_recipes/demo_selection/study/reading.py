"""What the numbers of a study say, each sentence guarded against what it does not say."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from groupwise.core import repeat_start
from groupwise.evaluation import Statement
from groupwise_recipes.demo_selection.study.arms import Arm
from groupwise_recipes.demo_selection.study.epochs import Epoch, average_epochs
from groupwise_recipes.demo_selection.study.lists import compare_arms
from groupwise_recipes.demo_selection.study.values import Study
from groupwise_recipes.demo_selection.study.verdict import MIN_SEEDS, START, Difference, Verdict

Epochs = Sequence[Epoch]


def average_training(arm: Arm, phase: Any = "grpo") -> list[Epoch]:
    """Return the means over runs of the epochs that all runs of an arm finished."""
    by_number = [{one.number: one for one in run.training[phase]} for run in arm.runs]
    shared = set.intersection(*map(set, by_number))
    return [average_epochs([one[number] for one in by_number]) for number in sorted(shared)]


def change_relatively(before: float | None, after: float | None) -> float | None:
    """Return (after - before) / |before|; None where one is not known or ``before`` is 0."""
    if before is None or after is None or before == 0:
        return None
    return (after - before) / abs(before)


def read_kl(arm: Arm) -> Statement | None:
    """Return what the course of KL says of an arm; None with less than two epochs.

    A KL that starts high and falls is never read as a selector that moves away from its start.
    """
    values = [one.kl for one in average_training(arm) if one.kl is not None]
    if len(values) < 2:
        return None
    named = {"arm": arm.name, "first": values[0], "last": values[-1]}
    if all(after > before for before, after in pairwise(values)):
        return Statement("kl_rises", named)
    if not all(after < before for before, after in pairwise(values)):
        return Statement("kl_wavers", named)
    gaps = [run.first_gap for run in arm.runs]
    is_checked = all(gap is not None and gap[0] <= gap[1] for gap in gaps)
    if is_checked:
        return Statement("kl_falls_checked", named)
    return Statement("kl_falls", named, "warning")


def list_findings(study: Study, verdict: Verdict) -> Iterator[Statement]:
    """Yield what was found: each comparison, and how much of it lists can explain."""
    for one in (*verdict.differences, *verdict.against_start):
        yield _state(one)
    for first, second in study.pairs:
        for epoch in study.epochs[-1:]:
            same = compare_arms(study, first, second, epoch)
            if same.num_lists:
                yield Statement(
                    "said.same_lists",
                    {
                        "first": first.name,
                        "second": second.name,
                        "epoch": epoch,
                        "num": same.num_same,
                        "all": same.num_lists,
                    },
                )


def _state(one: Difference) -> Statement:
    values: Mapping[str, Any] = {
        "first": one.first,
        "second": Statement("the_start" if one.second == START else "an_arm", {"arm": one.second}),
        "value": one.value,
        "ends": one.ends,
        "num_seeds": one.num_seeds,
        "num_items": one.num_items,
    }
    if one.ends is None:
        return Statement("gap_without_interval", values)
    kind = "gap_of_method" if one.of_method else "gap_of_checkpoints"
    ending = "is_clear" if one.is_clear else "not_clear"
    return Statement(kind, {**values, "ending": Statement(ending)})


def list_reasons(study: Study, verdict: Verdict, *, command: str) -> Iterator[Statement]:
    """Yield why something is recommended, or not, and what to run."""
    if verdict.epoch is not None and verdict.shots:
        shots = list(map(str, verdict.shots))
        values = {"epoch": verdict.epoch, "size": max(study.sizes, default=0), "shots": shots}
        yield Statement("what_is_compared", values)
    epoch = verdict.epoch
    if verdict.arm is not None and epoch is not None:
        arm = next(one for one in study.arms if one.name == verdict.arm)
        files = [str(run.folder / "grpo" / f"epoch-{epoch}.safetensors") for run in arm.runs]
        yield Statement(f"why_{verdict.outcome}", {"arm": verdict.arm})
        yield Statement("model", {"files": files})
        gains = [one for one in verdict.against_start if one.first == verdict.arm]
        if not all(one.is_clear and one.value > 0 for one in gains) or not gains:
            yield Statement("start_is_as_good", {"arm": verdict.arm})
    else:
        yield Statement(f"why_{verdict.outcome}")
    if verdict.outcome not in ("recommended", "alone"):
        yield Statement(
            f"run_{'seeds' if verdict.outcome != 'unlike' else 'alike'}", {"command": command}
        )


def write_command(study: Study) -> str:
    """Return the command that trains all arms alike, with seeds enough for an interval of β.

    It starts with the recipe, the config and the settings of the first of the runs.
    """
    betas = ",".join(f"{arm.beta:g}" for arm in study.arms)
    num_seeds = max(MIN_SEEDS, *(len(arm.runs) for arm in study.arms))
    start = repeat_start(study.arms[0].runs[0].folder, without=("grpo.beta", "seed"))
    words = ["groupwise", "sweep", *(start or ("demo_selection", "--config", "FILE"))]
    words += ["--grid", f"grpo.beta={betas}", "--seeds", str(num_seeds)]
    return shlex.join(words)


def weigh_arm(study: Study, arm: Arm) -> tuple[list[Statement], list[Statement]]:
    """Return the advantages and the disadvantages of an arm beside all others."""
    good: list[Statement] = []
    bad: list[Statement] = []
    for other in study.arms:
        if other is arm:
            continue
        for said, is_good in _weigh(study, arm, other):
            (good if is_good else bad).append(said)
    for phase in ("rce", "grpo"):
        planned = max(run.evaluated.planned_epochs.get(phase, 0) for run in arm.runs)
        done = min(len(run.training[phase]) for run in arm.runs)
        if planned:
            kind = "finished_all" if done >= planned else "finished_some"
            values = {"phase": phase.upper(), "done": done, "planned": planned}
            (good if done >= planned else bad).append(Statement(kind, values))
    return good, bad


def _weigh(study: Study, arm: Arm, other: Arm) -> Iterator[tuple[Statement, bool]]:
    named = {"other": other.name}
    if study.epochs:
        epoch = study.epochs[-1]
        found = study.summarize(arm, other, study.list_places([epoch]))
        if found.mean:
            values = {"value": found.mean, "epoch": epoch, "up": found.num_up}
            values |= {"down": found.num_down, "all": found.num_known}
            kind = "more_accurate" if found.mean > 0 else "less_accurate"
            yield Statement(kind, {**named, **values}), found.mean > 0
    ours, theirs = average_training(arm)[-1:], average_training(other)[-1:]
    if ours and theirs and ours[0].number == theirs[0].number:
        losses = ours[0].eval_loss, theirs[0].eval_loss
        if losses[0] is not None and losses[1] is not None and losses[0] != losses[1]:
            kind = "lower_loss" if losses[0] < losses[1] else "higher_loss"
            values = {**named, "ours": losses[0], "theirs": losses[1]}
            yield Statement(kind, values), losses[0] < losses[1]
