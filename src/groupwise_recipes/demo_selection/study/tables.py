"""The tables of a study's settings and trainings."""

from collections.abc import Callable, Iterable
from itertools import pairwise

from groupwise.evaluation import DASH, Cell, Phrases, Statement, Table
from groupwise_recipes.demo_selection.conditions import COMPARED
from groupwise_recipes.demo_selection.study.arms import Phase, StudyRun
from groupwise_recipes.demo_selection.study.epochs import Epoch
from groupwise_recipes.demo_selection.study.lists import compare_arms, compare_epochs
from groupwise_recipes.demo_selection.study.reading import average_training, change_relatively
from groupwise_recipes.demo_selection.study.values import Study
from groupwise_recipes.demo_selection.study.words import (
    name_arms,
    show_change,
    show_number,
    show_share,
)

Read = Callable[[StudyRun], object]
PHASES: tuple[Phase, ...] = ("rce", "grpo")
_ALWAYS = ("grpo.learning_rate", "grpo.freeze_backbone")
_SHORT = 12


def tabulate_settings(study: Study, phrases: Phrases) -> Table:
    """Return what the arms were trained and measured with, side by side."""

    def show(title: str, read: Read, kind: str = "confounding") -> tuple[Cell, ...]:
        told = [_tell(arm.runs, read, phrases) for arm in study.arms]
        differs = len(set(told)) > 1
        tag = phrases.say(f"kind_{kind}") if differs and kind else ""
        return (Cell(title, tag=tag, tag_kind=kind if tag else ""), *map(Cell, told))

    rows = [
        show("β", lambda run: f"{run.beta:g}", "intended"),
        show(phrases.say("study_seeds"), lambda run: run.seed),
        show(phrases.say("study_base"), _name_base),
        *(
            show(
                phrases.say(Statement(f"thing.{name}")),
                lambda run, name=name: _name_condition(run, name),
            )
            for name in COMPARED
        ),
        show(phrases.say("trained_shots"), lambda run: run.evaluated.trained_shots),
        show(phrases.say("sizes"), lambda run: phrases.join(map(str, sorted(run.sizes)))),
        *(show(key, lambda run, key=key: run.settings.get(key)) for key in _list_keys(study)),
        *(
            show(
                phrases.say("epochs_of", phase=phase.upper()),
                lambda run, phase=phase: phrases.say(
                    "of",
                    part=len(run.training[phase]),
                    all=run.evaluated.planned_epochs.get(phase, DASH),
                ),
                "",
            )
            for phase in PHASES
        ),
    ]
    heads = (phrases.say("setting"), *(arm.name for arm in study.arms))
    return Table("", heads, tuple(rows), kind="wrap")


def _list_keys(study: Study) -> list[str]:
    """Return the settings to show: some always, and those in which runs differ."""
    every = [run.settings for arm in study.arms for run in arm.runs]
    keys = sorted({key for one in every for key in one})
    changed = [key for key in keys if any(one.get(key) != every[0].get(key) for one in every)]
    return list(dict.fromkeys([*(key for key in _ALWAYS if key in every[0]), *changed]))


def _tell(runs: Iterable[StudyRun], read: Read, phrases: Phrases) -> str:
    """Return what the runs of an arm say, each value once."""
    values = [read(run) for run in runs]
    told = [phrases.say("not_known") if value is None else str(value) for value in values]
    return phrases.join(dict.fromkeys(told))


def _name_base(run: StudyRun) -> str | None:
    base = run.evaluated.base
    return None if base is None else f"{base.name} · {base.digest[:_SHORT]}"


def _name_condition(run: StudyRun, name: str) -> str | None:
    value = run.evaluated.conditions.get(name)
    return value if value is None or " " in value else value[:_SHORT]


def tabulate_training(study: Study, phase: Phase, phrases: Phrases) -> Table:
    """Return the metrics of each epoch of each arm, means over its seeds."""
    is_grpo = phase == "grpo"
    grpo = ("ppo", "kl", "advantage_std", "advantage_max", "beta", "sum") if is_grpo else ()
    columns = ("loss", "validation", *grpo, "dead")
    heads = (
        *phrases.say_each("arm", "epoch"),
        *(phrases.say(f"column_{name}") for name in columns),
    )
    rows = tuple(
        (
            Cell(arm.name, order=arm.beta),
            Cell(str(epoch.number), order=epoch.number),
            *_show_epoch(epoch, phrases, is_grpo=is_grpo),
        )
        for arm in study.arms
        for epoch in average_training(arm, phase)
    )
    return Table("", heads, rows, num_heads=2)


def _show_epoch(epoch: Epoch, phrases: Phrases, *, is_grpo: bool) -> Iterable[Cell]:
    yield show_number(epoch.loss, 5)
    yield show_number(epoch.eval_loss, 4)
    if is_grpo:
        yield show_number(epoch.ppo_loss, 5)
        yield show_number(epoch.kl, 5)
        yield show_number(epoch.advantage_std, 3)
        yield show_number(epoch.advantage_max, 3)
        yield show_number(epoch.beta, 3)
        expected = epoch.expected_loss
        is_known = epoch.loss is not None and expected is not None
        mark = ("✓" if epoch.adds_up else "✗") if is_known else DASH
        yield Cell(mark, "" if epoch.adds_up else f"{expected:.5f}")
    dead, groups = round(epoch.num_dead_groups), round(epoch.num_groups)
    yield Cell(phrases.say("of", part=dead, all=groups) if groups else DASH, order=dead)


def tabulate_changes(study: Study, phrases: Phrases) -> Table:
    """Return the relative change of KL and policy loss from each epoch to the next."""
    rows: list[tuple[Cell, ...]] = []
    for arm in study.arms:
        for before, after in pairwise(average_training(arm)):
            rows.append(
                (
                    Cell(arm.name, order=arm.beta),
                    Cell(f"{before.number} → {after.number}", order=after.number),
                    show_change(change_relatively(before.kl, after.kl)),
                    show_change(change_relatively(before.ppo_loss, after.ppo_loss)),
                )
            )
    series = (phrases.title("series", "kl"), phrases.title("series", "ppo_loss"))
    heads = (*phrases.say_each("arm", "epoch"), *series)
    return Table("", heads, tuple(rows), num_heads=2)


def tabulate_kl(study: Study, phrases: Phrases) -> Table:
    """Return how KL of the arms differs, beside the share of lists that are the same."""
    rows: list[tuple[Cell, ...]] = []
    for first, second in study.pairs:
        ours, theirs = (
            {one.number: one.kl for one in average_training(arm)} for arm in (first, second)
        )
        for epoch in study.epochs:
            same = compare_arms(study, first, second, epoch)
            rows.append(
                (
                    Cell(name_arms(first, second)),
                    Cell(str(epoch), order=epoch),
                    show_number(theirs.get(epoch), 5),
                    show_number(ours.get(epoch), 5),
                    show_change(change_relatively(theirs.get(epoch), ours.get(epoch))),
                    show_share(same, phrases),
                )
            )
    heads = phrases.say_each(
        "pair", "epoch", "kl_second", "kl_first", "kl_difference", "same_lists"
    )
    return Table("", heads, tuple(rows), num_heads=2)


def tabulate_lists(study: Study, phrases: Phrases) -> Table:
    """Return how many lists each epoch has in common with the one before."""
    rows: list[tuple[Cell, ...]] = []
    for arm in study.arms:
        epochs = (0, *sorted(arm.list_epochs()))
        for before, after in pairwise(epochs):
            start = phrases.say("start")
            title = f"{before or start} → {after}"
            same = compare_epochs(study, arm, before, after)
            rows.append((Cell(arm.name), Cell(title, order=after), show_share(same, phrases)))
    return Table("", phrases.say_each("arm", "epoch", "same_lists"), tuple(rows), num_heads=2)
