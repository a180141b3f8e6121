"""What a dry run says of the groups: how many, how long their prompts, from where."""

from pathlib import Path

from groupwise.data.splits import split_by_shares
from groupwise.run.preview import estimate_picture
from groupwise.run.task import Estimate
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import find_root, list_taught, load_groups, split_loaded

_PHOTO_SIDE, _MOST_DRAWN = 4000, 5
_QUESTION_TOKENS, _RULE_TOKENS, _SUMMARY_TOKENS, _REPLY_TOKENS = 80, 150, 40, 24


def estimate_run(config: GroupQcConfig) -> Estimate:
    """Return groups, tokens and sources; what stops the stage ``prepare`` is raised."""
    data, shares = config.data, config.data.list_shares()
    num_groups, num_photos, facts = data.drawn.num_groups, _MOST_DRAWN, list[tuple[str, str]]()
    if data.root is None and not data.summaries:
        ids = {str(number): "" for number in range(num_groups)}
        split_by_shares(ids, shares=shares, seed=config.seed)
    else:
        num_groups, num_photos, facts = _look_at_groups(config)
    num_prompts = round(num_groups * shares["train"])
    num_sft_rows = round(num_groups * shares.get("warmup", shares["train"]))
    most_sft_rows = 0 if config.sft is None else config.sft.num_groups or num_sft_rows
    size = (
        (data.drawn.width, data.drawn.height) if data.root is None else (_PHOTO_SIDE, _PHOTO_SIDE)
    )
    photo_tokens = estimate_picture(config, size) + _QUESTION_TOKENS
    source = str(data.root or ("data.summaries" if data.summaries else "drawn"))
    return Estimate(
        num_prompts=num_prompts,
        num_sft_rows=min(num_sft_rows, most_sft_rows),
        tokens_per_prompt=_RULE_TOKENS + num_photos * _SUMMARY_TOKENS,
        tokens_per_answer=_REPLY_TOKENS,
        sources={"all": {source: num_groups}},
        facts=[
            ("photo groups", f"{num_groups:,} of up to {num_photos} photos"),
            *facts,
            ("Stage A prompt", f"about {photo_tokens:,} tokens, the photo included"),
        ],
        needs_base=config.summaries.server is None,
    )


def _look_at_groups(config: GroupQcConfig) -> tuple[int, int, list[tuple[str, str]]]:
    """Go the way of the step ``prepare`` without writing: what stops it is raised.

    Returns:
        The number of groups, the photos of the largest, and facts for people.
    """
    data = config.data
    root = find_root(data, Path())
    loaded = load_groups(config, root)
    _, splits = split_loaded(config, loaded)
    list_taught(data, splits, root)
    num_used = loaded.num_files - loaded.drops.total
    dropped = "".join(f"; {count:,} x {reason}" for reason, count in loaded.drops.counts.items())
    skipped = ", ".join(f"{count:,} x {reason}" for reason, count in loaded.skipped.counts.items())
    name = "lines of Stage A" if data.summaries else "files"
    facts = [(name, f"{num_used:,} of {loaded.num_files:,} used{dropped}")]
    facts += [("folders not used", skipped)] if skipped else []
    return len(loaded.groups), max(len(group.photos) for group in loaded.groups), facts
