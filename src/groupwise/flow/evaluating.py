"""The stages ``baselines``, ``evaluate`` and ``report``."""

from collections.abc import Sequence
from typing import Any

from groupwise.data import list_near_examples
from groupwise.evaluation import (
    Prediction,
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

_JUDGED = "grpo"
_BEFORE_RIVALS = ("sft", "sft_same_labels", "prompt")


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

    def ask(name: str) -> list[Prediction]:
        policy = open_policy(config, context.output_of(name) / "policy")
        return ask_policy(task, policy, test, context, name=name)

    trained = [name for name in ("sft", "grpo", "sft_same_labels") if name in context.uses]
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
        comparisons=compare_pairs(found, _list_pairs(found), split="test", seed=seed),
        conditions=describe_conditions(task, context, test),
        sections=task.describe(config, context, found, metrics),
    )


def run_report(task: Task[Any], context: StepContext) -> None:
    """Write the report from the run's files."""
    del task
    write_report(context.run)


def _list_pairs(predictions: Sequence[Prediction]) -> list[tuple[str, str]]:
    """Return each policy with the one trained on rewards: what came before it first."""
    names = list(dict.fromkeys(one.policy for one in predictions))
    first = [name for name in _BEFORE_RIVALS if name in names]
    others = [name for name in names if name not in (*first, _JUDGED)]
    return [(name, _JUDGED) for name in (*first, *others)]
