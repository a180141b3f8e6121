"""What ``--dry-run`` prints: groups, tokens, steps and memory, and what would go wrong."""

from groupwise.core import GroupwiseError
from groupwise.data import split_by_shares
from groupwise.models import TINY_TOKEN_SIDE, TOKEN_SIDE, estimate_picture_tokens
from groupwise.pipeline import Preview
from groupwise.training import check_base, check_lengths, preview_grpo
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import split_loaded
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
        num_groups, photos, found = _look_at_data(config)
    except GroupwiseError as error:
        return Preview(facts, [str(error)])
    photo_tokens, group_tokens = _estimate_tokens(config, photos)
    facts += [
        ("groups", f"{num_groups:,} of up to {photos} photos"),
        *found,
        ("Stage A prompt", f"about {photo_tokens:,} tokens, the photo included"),
        (
            "Stage B prompt",
            f"up to about {group_tokens:,} tokens (limit {config.data.budget.max_prompt_tokens:,})",
        ),
        ("reward weights", name_weights(config.rewards)),
        ("sft steps", _describe_sft(config, num_groups)),
    ]
    lengths = check_lengths(
        config.data.budget,
        config.grpo,
        tokens_per_prompt=group_tokens,
        tokens_per_answer=_REPLY_TOKENS,
    )
    more_facts, training = preview_grpo(
        config.model,
        sft=config.sft,
        grpo=config.grpo,
        num_prompts=_count_prompts(config, num_groups),
        tokens_per_prompt=group_tokens,
    )
    problems = [] if config.summaries.server else check_base(config.model)
    later = {"stage_b_data": lengths, "sft": training}
    return Preview([*facts, *more_facts], problems, later)


def _look_at_data(config: GroupQcConfig) -> tuple[int, int, list[tuple[str, str]]]:
    """Go the way of the step ``prepare`` without writing: what stops it is raised.

    Returns:
        The number of groups, the photos of the largest, and facts for people.
    """
    data, missions = config.data, config.data.load_missions()
    if data.root is None:
        num_groups = data.drawn.num_groups
        ids = {str(number): "" for number in range(num_groups)}
        split_by_shares(ids, shares=data.list_shares(), seed=config.seed)
        return num_groups, 5, [("sources", f"drawn {num_groups:,} (100.0%)")]
    loaded = load_photo_groups(data.root, missions)
    split_loaded(config, loaded, data.root)
    num_groups, num_used = len(loaded.groups), loaded.num_files - loaded.drops.total
    dropped = "".join(f"; {count:,} x {reason}" for reason, count in loaded.drops.counts.items())
    skipped = ", ".join(f"{count:,} x {reason}" for reason, count in loaded.skipped.counts.items())
    facts = [
        ("sources", f"{data.root} {num_groups:,} (100.0%)"),
        (
            "files",
            f"{num_used:,} of {loaded.num_files:,} used{dropped}",
        ),
        *([("folders not used", skipped)] if skipped else []),
    ]
    return num_groups, max(len(group.photos) for group in loaded.groups), facts


def _estimate_tokens(config: GroupQcConfig, photos: int) -> tuple[int, int]:
    side = TINY_TOKEN_SIDE if config.model.is_preset else TOKEN_SIDE
    drawn = config.data.drawn
    is_drawn = config.data.root is None
    size = (drawn.width, drawn.height) if is_drawn else (_PHOTO_SIDE, _PHOTO_SIDE)
    pixels = config.model.max_pixels
    picture = estimate_picture_tokens(*size, max_pixels=pixels, token_side=side)
    return picture + _QUESTION_TOKENS, _RULE_TOKENS + photos * _SUMMARY_TOKENS


def _count_prompts(config: GroupQcConfig, num_groups: int) -> int:
    """Return about how many groups are left for GRPO."""
    data = config.data
    given = data.teach_share + data.warmup_share + data.validation_share + data.test_share
    return round(num_groups * (1 - given))


def _describe_sft(config: GroupQcConfig, num_groups: int) -> str:
    sft = config.sft
    num_warmup = round(num_groups * config.data.warmup_share) or _count_prompts(config, num_groups)
    num_warmup = min(num_warmup, sft.num_groups or num_warmup)
    num_steps = sft.epochs * num_warmup // (sft.batch_size * sft.gradient_accumulation)
    return f"about {num_steps:,} on {num_warmup:,} labelled groups"
