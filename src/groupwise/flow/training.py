"""The training stages: where a policy comes from, where the next one is kept, what it took."""

import json
from pathlib import Path
from typing import Any

from groupwise.core import derive_seed, write_json
from groupwise.evaluation import count_grpo_budget, count_steps, describe_rewards
from groupwise.flow.asking import check_heldout, make_ask, open_policy
from groupwise.flow.task import Task, read_splits
from groupwise.models import Policy, keep_policy
from groupwise.pipeline import StepContext
from groupwise.training import (
    RowsOfEpoch,
    Workspace,
    make_control_settings,
    train_grpo,
    train_sft,
)

TRAINING_FILE = "training.json"


def run_sft(task: Task[Any], context: StepContext) -> None:
    """Teach the base on the warm-up rows."""
    config = context.config
    policy = open_policy(config, task.find_base(config, context.run))
    rows = task.warmup(config, context.output_of(task.data_stage))
    trained = train_sft(policy, rows, config.sft, workspace=Workspace(context.folder, config.seed))
    keep_policy(trained, context.folder)
    tokenizer = policy.tokenizer
    taught = count_taught(rows, config.sft.epochs, tokenizer)
    _describe_training(context, budget={**_count_steps(context), **taught})


def run_sft_same_labels(task: Task[Any], context: StepContext) -> None:
    """Go on from the warm-up with SFT on the very labels that GRPO is rewarded by.

    It trains at GRPO's learning rate, as many times as GRPO passes over the prompts.
    """
    config = context.config
    policy = _open_start(task, context)
    examples = read_splits(context.output_of(task.data_stage), "train")["train"]
    rows = task.control(config, examples, make_ask(policy, config))
    settings = make_control_settings(config.sft, config.grpo)
    workspace = Workspace(context.folder, derive_seed(config.seed, "same labels"))
    keep_policy(train_sft(policy, rows, settings, workspace=workspace), context.folder)
    num_samples = config.grpo.epochs * len(examples)
    _describe_training(context, budget={**_count_steps(context), "num_samples": num_samples})


def run_grpo(task: Task[Any], context: StepContext) -> None:
    """Train on the rewards, from the warm-up if there is one."""
    config = context.config
    policy = _open_start(task, context)
    splits = read_splits(context.output_of(task.data_stage), "train", "validation")
    heldout = task.choose_heldout(config, splits["validation"])
    judge = task.judge(config, context.folder)
    trained = train_grpo(
        policy,
        splits["train"],
        task.rewards(config, judge),
        config.grpo,
        workspace=Workspace(context.folder, config.seed),
        check_heldout=lambda: check_heldout(task, policy, heldout, config),
    )
    if judge is not None:
        write_json(context.folder / "judge.json", judge.report())
    keep_policy(trained, context.folder)
    accumulation = config.grpo.gradient_accumulation
    _describe_training(
        context,
        budget=count_grpo_budget(context.folder, gradient_accumulation=accumulation),
        rewards=describe_rewards(task.weigh(config)),
        judge=None if judge is None else str(judge.report()["version"]),
    )


def read_training(folder: Path) -> dict[str, Any]:
    """Return what a training stage said of itself: ``budget``, ``rewards`` and ``judge``."""
    return json.loads((folder / TRAINING_FILE).read_text(encoding="utf-8"))


def count_taught(rows: RowsOfEpoch, epochs: int, tokenizer: Any) -> dict[str, int]:
    """Return how many rows SFT saw and how many tokens it was taught, ends included."""
    taught = [row for epoch in range(epochs) for row in rows(epoch)]
    encoded = tokenizer([row.target for row in taught], add_special_tokens=False)["input_ids"]
    num_ends = sum(row.is_finished for row in taught)
    return {"num_samples": len(taught), "num_tokens": sum(map(len, encoded)) + num_ends}


def _open_start(task: Task[Any], context: StepContext) -> Policy:
    """Load what GRPO and its control start from: the warm-up's policy, else the base."""
    config = context.config
    if "sft" in context.uses:
        return open_policy(config, context.output_of("sft") / "policy")
    return open_policy(config, task.find_base(config, context.run))


def _count_steps(context: StepContext) -> dict[str, int]:
    return {"num_steps": count_steps(context.folder / "metrics.jsonl")}


def _describe_training(
    context: StepContext,
    *,
    budget: dict[str, Any],
    rewards: dict[str, Any] | None = None,
    judge: str | None = None,
) -> None:
    values = {"budget": budget, "rewards": rewards or {}, "judge": judge}
    write_json(context.folder / TRAINING_FILE, values)
