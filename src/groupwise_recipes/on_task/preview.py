"""What ``--dry-run`` prints: rows, tokens per row, steps and memory, and what would go wrong."""

from collections.abc import Sequence

from groupwise.core import DataError, GroupwiseError
from groupwise.data import Screenshot, load_screenshots
from groupwise.models import (
    TINY_TOKEN_SIDE,
    TOKEN_SIDE,
    ModelShape,
    count_lora_parameters,
    estimate_memory,
    estimate_picture_tokens,
    find_local_config,
)
from groupwise.pipeline import Preview
from groupwise.training import TrainerSettings
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.rewards import name_weights

_TEXT_TOKENS = 60
_DESCRIPTION_TOKENS = 14
_LABEL_TOKENS = 4
_GPU_DTYPES = ("bfloat16", "float16")


def preview_run(config: OnTaskConfig) -> Preview:
    """Return the facts and problems of a config without running it."""
    problems: list[str] = []
    facts = [("model", config.model.base)]
    try:
        num_screens, size = _count_screens(config)
    except GroupwiseError as error:
        return Preview(facts, [str(error)])
    tokens = _estimate_tokens(config, size)
    facts += [
        ("screens to split", f"{num_screens:,} of up to {size[0]} x {size[1]} pixels"),
        (
            "tokens per row",
            f"about {tokens:,}, pictures included (limit {config.data.budget.max_prompt_tokens:,})",
        ),
        ("reward weights", name_weights(config)),
        *_list_steps(config, num_screens),
    ]
    problems += _check_limits(config, tokens)
    shape = _find_shape(config)
    if shape is None and not config.model.is_preset:
        problems.append(
            f"model.base: {config.model.base} is neither a folder nor in the local cache, and "
            "model.shape is not given; download the model or set model.shape"
        )
    if shape is not None:
        facts += _list_memory(config, shape, tokens)
    return Preview(facts, problems)


def _estimate_tokens(config: OnTaskConfig, size: tuple[int, int]) -> int:
    side = TINY_TOKEN_SIDE if config.model.is_preset else TOKEN_SIDE
    pixels = config.model.max_pixels
    return estimate_picture_tokens(*size, max_pixels=pixels, token_side=side) + _TEXT_TOKENS


def _count_screens(config: OnTaskConfig) -> tuple[int, tuple[int, int]]:
    """Return the number of screens that are split, and the size of the largest."""
    drawn = config.data.drawn
    if config.data.root is None:
        return drawn.num_sessions * drawn.screens_per_session, (drawn.width, drawn.height)
    screens: Sequence[Screenshot] = load_screenshots(config.data.root).screens
    folds = config.data.train_folds
    screens = [s for s in screens if folds is None or s.fold in folds]
    if not screens:
        raise DataError("data.train_folds selects no screens", got=list(folds or ()))
    largest = max(screens, key=lambda screen: screen.width * screen.height)
    return len(screens), (largest.width, largest.height)


def _list_steps(config: OnTaskConfig, num_screens: int) -> list[tuple[str, str]]:
    data, sft, grpo = config.data, config.sft, config.grpo
    left = 1 - data.validation_share - (data.test_share if data.train_folds is None else 0)
    num_warmup = round(num_screens * (data.warmup_share or left)) * sft.pairs_per_screen
    if data.root is not None:
        num_drawn = data.drawn.num_sessions * data.drawn.screens_per_session
        num_warmup += num_drawn * sft.drawn_pairs_per_screen
    num_train = round(num_screens * (left - data.warmup_share)) * data.pairs_per_screen
    sft_steps = sft.epochs * num_warmup // (sft.batch_size * sft.gradient_accumulation)
    per_round = grpo.prompts_per_step * grpo.gradient_accumulation
    return [
        ("sft steps", f"about {sft_steps:,}"),
        (
            "grpo steps",
            f"about {grpo.epochs * num_train // per_round:,} of {per_round} prompts "
            f"x {grpo.group_size} completions",
        ),
    ]


def _check_limits(config: OnTaskConfig, tokens: int) -> list[str]:
    problems: list[str] = []
    limit = config.data.budget.max_prompt_tokens
    if tokens > limit and not config.data.budget.allow_rejecting:
        problems.append(
            f"data.budget.max_prompt_tokens: {limit} rejects real rows, which have about "
            f"{tokens} tokens; raise it or lower model.max_pixels"
        )
    needed = _DESCRIPTION_TOKENS if config.answer.describe else _LABEL_TOKENS
    if config.grpo.max_new_tokens < needed:
        problems.append(
            f"grpo.max_new_tokens: {config.grpo.max_new_tokens} cannot hold an answer, which has "
            f"up to {needed} tokens; raise it"
        )
    return problems


def _find_shape(config: OnTaskConfig) -> ModelShape | None:
    found = None if config.model.is_preset else find_local_config(config.model.base)
    if found is None:
        return config.model.shape
    text = found.get_text_config()
    per_block = 4 * text.hidden_size**2 + 3 * text.hidden_size * text.intermediate_size
    return ModelShape(
        num_parameters=text.num_hidden_layers * per_block + text.vocab_size * text.hidden_size,
        num_blocks=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        vocabulary_size=text.vocab_size,
    )


def _list_memory(config: OnTaskConfig, shape: ModelShape, tokens: int) -> list[tuple[str, str]]:
    grpo = config.grpo
    estimate = estimate_memory(
        shape,
        num_trainable=_count_trainable(grpo, shape),
        dtype=grpo.dtype,
        rows=grpo.prompts_per_step * grpo.group_size,
        tokens_per_row=tokens + grpo.max_new_tokens,
        new_tokens=grpo.max_new_tokens,
        is_checkpointed=grpo.gradient_checkpointing,
    )
    parts = (
        f"weights {estimate.weights_mib:,}, training state {estimate.training_state_mib:,}, "
        f"activations {estimate.activations_mib:,}, logits {estimate.logits_mib:,}"
    )
    return [("memory estimate", f"{estimate.total_mib:,} MiB in a GRPO step ({parts})")]


def _count_trainable(settings: TrainerSettings, shape: ModelShape) -> int:
    trainable = settings.trainable
    if trainable.method == "full":
        return shape.num_parameters
    return count_lora_parameters(
        shape,
        rank=trainable.lora.rank,
        num_blocks=trainable.lora.last_blocks or shape.num_blocks,
        modules=len(trainable.lora.modules),
    )
