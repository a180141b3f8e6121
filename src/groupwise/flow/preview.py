"""What ``--dry-run`` prints: rows, tokens per row, steps and memory, and what would go wrong."""

from typing import Any

from groupwise.core import GroupwiseError
from groupwise.flow.task import Estimate, Task
from groupwise.models import TINY_TOKEN_SIDE, TOKEN_SIDE, estimate_picture_tokens
from groupwise.pipeline import Preview
from groupwise.training import check_base, check_lengths, preview_grpo


def preview_run(task: Task[Any], config: Any) -> Preview:
    """Return the facts and problems of a config without running it."""
    facts = [("model", config.model.base)]
    try:
        found = task.estimate(config)
    except GroupwiseError as error:
        return Preview(facts, [str(error)])
    limit = config.data.budget.max_prompt_tokens
    facts += [
        *found.facts,
        (
            "tokens per prompt",
            f"about {found.tokens_per_prompt:,}, pictures included (limit {limit:,})",
        ),
        ("reward weights", task.describe_weights(config)),
        *_describe_sft(config, found),
    ]
    lengths = check_lengths(
        config.data.budget,
        config.grpo,
        tokens_per_prompt=found.tokens_per_prompt,
        tokens_per_answer=found.tokens_per_answer,
    )
    more, training = preview_grpo(
        config.model,
        sft=config.sft,
        grpo=config.grpo,
        num_prompts=found.num_prompts,
        tokens_per_prompt=found.tokens_per_prompt,
    )
    problems = check_base(config.model) if found.needs_base else []
    later = {"grpo" if config.sft is None else "sft": training, **found.later}
    if task.data_stage == "prepare":
        problems = [*lengths, *problems]
    else:
        later = {**later, task.data_stage: lengths}
    return Preview([*facts, *more], problems, later=later)


def estimate_picture(config: Any, size: tuple[int, int]) -> int:
    """Return about how many tokens a picture of so many pixels (width, height) has."""
    side = TINY_TOKEN_SIDE if config.model.is_preset else TOKEN_SIDE
    return estimate_picture_tokens(*size, max_pixels=config.model.max_pixels, token_side=side)


def _describe_sft(config: Any, found: Estimate) -> list[tuple[str, str]]:
    if config.sft is None:
        return []
    per_step = config.sft.batch_size * config.sft.gradient_accumulation
    num_steps = config.sft.epochs * found.num_sft_rows // per_step
    return [("sft steps", f"about {num_steps:,} on {found.num_sft_rows:,} rows per epoch")]
