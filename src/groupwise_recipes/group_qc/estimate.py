"""What a dry run says of the groups: how many, how long their prompts, from where."""

from pathlib import Path

from groupwise.data import split_by_shares
from groupwise.flow import Estimate, estimate_picture
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import find_root, list_taught, load_groups, split_loaded

_PHOTO_SIDE = 4000
_QUESTION_TOKENS = 80
_RULE_TOKENS = 150
_SUMMARY_TOKENS = 40
_REPLY_TOKENS = 24


def estimate_run(config: GroupQcConfig) -> Estimate:
    """Return groups, tokens and sources; what stops the stage ``prepare`` is raised."""
    num_groups, photos, found = _look_at_data(config)
    data = config.data
    source = str(data.root or ("data.summaries" if data.summaries else "drawn"))
    photo_tokens, group_tokens = _estimate_tokens(config, photos)
    return Estimate(
        num_prompts=_count_prompts(config, num_groups),
        num_sft_rows=_count_sft_rows(config, num_groups),
        tokens_per_prompt=group_tokens,
        tokens_per_answer=_REPLY_TOKENS,
        sources={"all": {source: num_groups}},
        facts=[
            ("photo groups", f"{num_groups:,} of up to {photos} photos"),
            *found,
            ("Stage A prompt", f"about {photo_tokens:,} tokens, the photo included"),
        ],
        needs_base=config.summaries.server is None,
    )


def _look_at_data(config: GroupQcConfig) -> tuple[int, int, list[tuple[str, str]]]:
    """Go the way of the step ``prepare`` without writing: what stops it is raised.

    Returns:
        The number of groups, the photos of the largest, and facts for people.
    """
    data = config.data
    if data.root is None and not data.summaries:
        num_groups = data.drawn.num_groups
        ids = {str(number): "" for number in range(num_groups)}
        split_by_shares(ids, shares=data.list_shares(), seed=config.seed)
        return num_groups, 5, []
    root = find_root(data, Path())
    loaded = load_groups(config, root)
    _, splits = split_loaded(config, loaded)
    list_taught(data, splits, root)
    num_groups, num_used = len(loaded.groups), loaded.num_files - loaded.drops.total
    dropped = "".join(f"; {count:,} x {reason}" for reason, count in loaded.drops.counts.items())
    skipped = ", ".join(f"{count:,} x {reason}" for reason, count in loaded.skipped.counts.items())
    facts = [
        (
            "lines of Stage A" if data.summaries else "files",
            f"{num_used:,} of {loaded.num_files:,} used{dropped}",
        ),
        *([("folders not used", skipped)] if skipped else []),
    ]
    return num_groups, max(len(group.photos) for group in loaded.groups), facts


def _estimate_tokens(config: GroupQcConfig, photos: int) -> tuple[int, int]:
    drawn = config.data.drawn
    is_drawn = config.data.root is None
    size = (drawn.width, drawn.height) if is_drawn else (_PHOTO_SIDE, _PHOTO_SIDE)
    picture = estimate_picture(config, size)
    return picture + _QUESTION_TOKENS, _RULE_TOKENS + photos * _SUMMARY_TOKENS


def _count_prompts(config: GroupQcConfig, num_groups: int) -> int:
    """Return about how many groups are left for GRPO."""
    data = config.data
    given = data.teach_share + data.warmup_share + data.validation_share + data.test_share
    return round(num_groups * (1 - given))


def _count_sft_rows(config: GroupQcConfig, num_groups: int) -> int:
    """Return about how many labelled groups the warm-up has."""
    share = config.data.warmup_share
    num_rows = round(num_groups * share) if share else _count_prompts(config, num_groups)
    return min(num_rows, config.sft.num_groups or num_rows)
