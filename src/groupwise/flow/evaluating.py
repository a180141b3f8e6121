"""The stages ``baselines``, ``evaluate`` and ``report``."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from groupwise.core import Example
from groupwise.data import list_near_examples
from groupwise.evaluation import (
    Prediction,
    RunPolicy,
    compare_pairs,
    compute_metrics,
    mark_near_duplicates,
    predict_each,
    read_predictions,
    write_evaluation,
    write_predictions,
    write_report,
)
from groupwise.flow.asking import ask_policy, draw_items, open_policy
from groupwise.flow.conditions import describe_conditions
from groupwise.flow.task import Task, read_splits
from groupwise.pipeline import StepContext

_RIVALS = ("trained", "prompted", "baseline")


def run_baselines(task: Task[Any], context: StepContext) -> None:
    """Predict without a policy, and with the untrained policy by prompting."""
    config = context.config
    splits = read_splits(context.output_of(task.data_stage), "train", "test")
    test = draw_items(splits["test"], config)
    found = task.predict_baselines(config, context, splits["train"], test)
    policy = open_policy(config, task.find_base(config, context.run))
    found += ask_policy(task, policy, test, context, name="prompt")
    write_predictions(context.folder / "predictions.jsonl", found)


def run_evaluate(task: Task[Any], context: StepContext) -> None:
    """Ask every trained policy, and measure and compare all of them."""
    config, seed = context.config, context.config.seed
    splits = read_splits(context.output_of(task.data_stage), "test")
    test = draw_items(splits["test"], config)
    found = read_predictions(context.output_of("baselines") / "predictions.jsonl")

    policies = task.policies(context)
    trained = {one.name: one.step for one in policies if one.kind == "trained" and one.step}

    def ask(name: str) -> list[Prediction]:
        policy = open_policy(config, context.output_of(trained[name]) / "policy")
        return ask_policy(task, policy, test, context, name=name)

    found += predict_each(trained, ask, folder=context.folder)
    shown = task.show(config, context, test)
    near = list_near_examples(context.output_of("audit"), shown, split="test")
    found, near_slice = mark_near_duplicates(task.complete(config, context, found), near)
    slices = [name for name in task.slices if all(name in e.fields for e in test)]
    metrics = compute_metrics(
        found, labels=task.parser(config).labels, seed=seed, slices=(*slices, *near_slice)
    )
    write_evaluation(
        context.folder,
        found,
        metrics=metrics,
        comparisons=compare_pairs(found, _list_pairs(found, policies), split="test", seed=seed),
        conditions=describe_conditions(task, context, test),
        policies=_describe_asked(policies, found, test),
        sections=task.describe(config, context, found, metrics),
    )


def run_report(task: Task[Any], context: StepContext) -> None:
    """Write the report from the run's files."""
    del task
    write_report(context.run)


def _describe_asked(
    policies: Sequence[RunPolicy], predictions: Sequence[Prediction], test: Sequence[Example]
) -> list[RunPolicy]:
    """Return the policies that answered; where nothing has a picture, none is blind to pictures."""
    names = {one.policy for one in predictions}
    absent = () if any(example.pictures for example in test) else ("picture",)
    return [
        replace(one, blind_to=tuple(what for what in one.blind_to if what not in absent))
        for one in policies
        if one.name in names
    ]


def _list_pairs(
    predictions: Sequence[Prediction], policies: Sequence[RunPolicy]
) -> list[tuple[str, str]]:
    """Return each policy with the last one: what was trained before it first."""
    names = {one.policy for one in predictions}
    *rivals, last = (one for one in policies if one.name in names)
    return [(one.name, last.name) for kind in _RIVALS for one in rivals if one.kind == kind]
