"""What ``--dry-run`` prints: groups, tokens, steps and memory, and what would go wrong."""

from groupwise.core import GroupwiseError
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
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.photos import load_photo_groups
from groupwise_recipes.group_qc.rewards import name_weights

_PHOTO_SIDE = 4000
_QUESTION_TOKENS = 80
_RULE_TOKENS = 150
_SUMMARY_TOKENS = 40
_REPLY_TOKENS = 24


def preview_run(config: GroupQcConfig) -> Preview:
    """Return the facts and problems of a config without running it."""
    facts = [("model", config.model.base)]
    try:
        num_groups, photos = _count_groups(config)
    except GroupwiseError as error:
        return Preview(facts, [str(error)])
    photo_tokens, group_tokens = _estimate_tokens(config, photos)
    facts += [
        ("groups", f"{num_groups:,} of up to {photos} photos"),
        ("Stage A prompt", f"about {photo_tokens:,} tokens, the photo included"),
        (
            "Stage B prompt",
            f"up to about {group_tokens:,} tokens (limit {config.data.budget.max_prompt_tokens:,})",
        ),
        ("reward weights", name_weights(config.rewards)),
        *_list_steps(config, num_groups),
    ]
    problems = _check_limits(config, group_tokens)
    shape = _find_shape(config)
    if shape is None and not config.model.is_preset:
        problems.append(
            f"model.base: {config.model.base} is neither a folder nor in the local cache, and "
            "model.shape is not given; download the model or set model.shape"
        )
    if shape is not None:
        last = config.grpo.trainable.lora.last_blocks
        if last is not None and last > shape.num_blocks:
            problems.append(
                f"grpo.trainable.lora.last_blocks: {last} is more than the model's "
                f"{shape.num_blocks} blocks"
            )
        facts.append(_describe_memory(config, shape, group_tokens))
    return Preview(facts, problems)


def _count_groups(config: GroupQcConfig) -> tuple[int, int]:
    """Return the number of groups and the photos of the largest."""
    missions = config.data.load_missions()
    if config.data.root is None:
        return config.data.drawn.num_groups, 5
    groups = load_photo_groups(config.data.root, missions).groups
    return len(groups), max(len(group.photos) for group in groups)


def _estimate_tokens(config: GroupQcConfig, photos: int) -> tuple[int, int]:
    side = TINY_TOKEN_SIDE if config.model.is_preset else TOKEN_SIDE
    drawn = config.data.drawn
    is_drawn = config.data.root is None
    size = (drawn.width, drawn.height) if is_drawn else (_PHOTO_SIDE, _PHOTO_SIDE)
    pixels = config.model.max_pixels
    picture = estimate_picture_tokens(*size, max_pixels=pixels, token_side=side)
    return picture + _QUESTION_TOKENS, _RULE_TOKENS + photos * _SUMMARY_TOKENS


def _list_steps(config: GroupQcConfig, num_groups: int) -> list[tuple[str, str]]:
    data, sft, grpo = config.data, config.sft, config.grpo
    given = data.teach_share + data.warmup_share + data.validation_share + data.test_share
    num_train = round(num_groups * (1 - given))
    num_warmup = round(num_groups * data.warmup_share) or num_train
    num_warmup = min(num_warmup, sft.num_groups or num_warmup)
    per_round = grpo.prompts_per_step * grpo.gradient_accumulation
    sft_steps = sft.epochs * num_warmup // (sft.batch_size * sft.gradient_accumulation)
    return [
        ("sft steps", f"about {sft_steps:,} on {num_warmup:,} labelled groups"),
        (
            "grpo steps",
            f"about {grpo.epochs * num_train // per_round:,} of {per_round} prompts "
            f"x {grpo.group_size} completions",
        ),
    ]


def _check_limits(config: GroupQcConfig, tokens: int) -> list[str]:
    problems: list[str] = []
    budget = config.data.budget
    if tokens > budget.max_prompt_tokens and not budget.allow_rejecting:
        problems.append(
            f"data.budget.max_prompt_tokens: {budget.max_prompt_tokens} rejects groups of about "
            f"{tokens} tokens; raise it"
        )
    if config.grpo.max_new_tokens < _REPLY_TOKENS:
        problems.append(
            f"grpo.max_new_tokens: {config.grpo.max_new_tokens} cannot hold a reply, which has "
            f"up to {_REPLY_TOKENS} tokens; raise it"
        )
    return problems


def _find_shape(config: GroupQcConfig) -> ModelShape | None:
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


def _describe_memory(config: GroupQcConfig, shape: ModelShape, tokens: int) -> tuple[str, str]:
    grpo = config.grpo
    lora = grpo.trainable.lora
    num_blocks = lora.last_blocks or shape.num_blocks
    estimate = estimate_memory(
        shape,
        num_trainable=count_lora_parameters(
            shape, rank=lora.rank, num_blocks=num_blocks, modules=len(lora.modules)
        ),
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
    return "memory estimate", f"{estimate.total_mib:,} MiB in a GRPO step ({parts})"
