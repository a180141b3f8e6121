"""The stage ``prepare``: splits, and for a tiny random-init model the untrained policy."""

from typing import Any

from groupwise.core import derive_seed
from groupwise.flow.task import Task, read_splits
from groupwise.models import write_tiny_policy
from groupwise.pipeline import StepContext


def run_prepare(task: Task[Any], context: StepContext) -> None:
    """Make the splits, and build the base where it is not a published one."""
    task.prepare(context.config, context.folder)
    build_base(task, context, has_warmup=True)


def run_prepare_without_warmup(task: Task[Any], context: StepContext) -> None:
    """Do the same where no warm-up follows."""
    task.prepare(context.config, context.folder)
    build_base(task, context, has_warmup=False)


def build_base(task: Task[Any], context: StepContext, *, has_warmup: bool) -> None:
    """Write the tiny model, its tokenizer trained on the words of the warm-up and GRPO splits."""
    config, folder = context.config, context.folder
    if not config.model.is_tiny:
        return
    examples = read_splits(folder, "train")["train"]
    targets = [example.label for example in examples if example.label is not None]
    if has_warmup:
        rows = task.warmup(config, folder)(0)
        examples = [row.example for row in rows] + examples
        targets = [row.target for row in rows]
    texts = [message.text for example in examples for message in example.prompt]
    write_tiny_policy(
        config.model.base,
        folder / "base",
        seed=derive_seed(config.seed, "base"),
        texts=[*texts, *targets],
        max_pixels=config.model.max_pixels,
    )
