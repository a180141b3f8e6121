"""What ``--dry-run`` prints: rows, tokens per row, steps and memory, and what would go wrong."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupwise.core import GroupwiseError
from groupwise.data import LoadedScreens, Screenshot, load_screenshots, split_by_shares
from groupwise.models import TINY_TOKEN_SIDE, TOKEN_SIDE, estimate_picture_tokens
from groupwise.pipeline import Preview
from groupwise.training import check_base, check_lengths, preview_grpo
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.rewards import name_weights
from groupwise_recipes.on_task.screens import (
    DRAWN,
    count_sources,
    cross_screens,
    describe_sources,
    split_screens,
)

_TEXT_TOKENS = 60
_DESCRIPTION_TOKENS = 14
_LABEL_TOKENS = 4


def preview_run(config: OnTaskConfig) -> Preview:
    """Return the facts and problems of a config without running it."""
    facts = [("model", config.model.base)]
    try:
        found = _look_at_data(config)
    except GroupwiseError as error:
        return Preview(facts, [str(error)])
    num_screens, size = found.num_screens, found.size
    tokens = _estimate_tokens(config, size)
    facts += [
        *found.facts,
        ("screens to split", f"{num_screens:,} of up to {size[0]} x {size[1]} pixels"),
        (
            "tokens per row",
            f"about {tokens:,}, pictures included (limit {config.data.budget.max_prompt_tokens:,})",
        ),
        ("reward weights", name_weights(config)),
        ("sft steps", f"about {_count_sft_steps(config, num_screens):,}"),
    ]
    lengths = check_lengths(
        config.data.budget,
        config.grpo,
        tokens_per_prompt=tokens,
        tokens_per_answer=_DESCRIPTION_TOKENS if config.answer.describe else _LABEL_TOKENS,
        fix="raise it or lower model.max_pixels",
    )
    more_facts, training = preview_grpo(
        config.model,
        sft=config.sft,
        grpo=config.grpo,
        num_prompts=_count_prompts(config, num_screens),
        tokens_per_prompt=tokens,
    )
    problems = [*lengths, *check_base(config.model)]
    return Preview([*facts, *more_facts], problems, later={**found.problems, "sft": training})


def _estimate_tokens(config: OnTaskConfig, size: tuple[int, int]) -> int:
    side = TINY_TOKEN_SIDE if config.model.is_preset else TOKEN_SIDE
    pixels = config.model.max_pixels
    return estimate_picture_tokens(*size, max_pixels=pixels, token_side=side) + _TEXT_TOKENS


@dataclass(frozen=True, slots=True)
class _Data:
    """What a run would find.

    Attributes:
        num_screens: that are split by shares; with folds, those of the training folds.
        size: of the largest screen, in pixels.
        facts: for people.
        problems: what would stop a step behind ``prepare``, by its name.
    """

    num_screens: int
    size: tuple[int, int]
    facts: list[tuple[str, str]]
    problems: Mapping[str, list[str]]


def _look_at_data(config: OnTaskConfig) -> _Data:
    """Go the way of the step ``prepare`` without writing: what stops it is raised."""
    data = config.data
    num_drawn = data.drawn.num_sessions * data.drawn.screens_per_session if data.is_drawing else 0
    if data.root is None:
        sessions = {str(number): "" for number in range(data.drawn.num_sessions)}
        split_by_shares(sessions, shares=data.list_shares(), seed=config.seed)
        sources = {"all": {DRAWN: num_drawn}}
        facts = [("sources", line) for line in describe_sources(sources)]
        return _Data(num_drawn, (data.drawn.width, data.drawn.height), facts, {})
    loaded = load_screenshots(data.root)
    splits = split_screens(loaded, data, seed=config.seed)
    num_items = len(cross_screens(splits["test"], config, split="test"))
    for name in ("train", "validation"):
        cross_screens(splits[name], config, split=name)
    sources = count_sources(splits, None)
    sources["warmup"] += Counter({DRAWN: num_drawn} if num_drawn else {})
    facts = [
        ("rows", _describe_rows(loaded, splits)),
        *(("sources", line) for line in describe_sources(sources)),
    ]
    folds = data.train_folds
    screens = [s for s in loaded.screens if folds is None or s.fold in folds]
    largest = max(screens, key=lambda screen: screen.width * screen.height)
    wanted = config.evaluation.num_items or 0
    too_few = f"evaluation.num_items: {wanted} of {num_items} items of the test split; lower it"
    problems = {"baselines": [too_few]} if wanted > num_items else {}
    return _Data(len(screens), (largest.width, largest.height), facts, problems)


def _describe_rows(loaded: LoadedScreens, splits: Mapping[str, Sequence[Screenshot]]) -> str:
    """Return how many rows are read and used, and why the others are not."""
    used = {id(screen) for screens in splits.values() for screen in screens}
    counts = dict(loaded.drops.counts)
    num_left = loaded.num_rows - loaded.drops.total - len(used)
    if num_left:
        counts["in a fold that no split names"] = num_left
    reasons = "".join(f"; {count:,} x {reason}" for reason, count in counts.items())
    return f"{len(used):,} of {loaded.num_rows:,} used{reasons}"


def _find_trained_share(config: OnTaskConfig) -> float:
    """Return the share of the screens that is neither for validation nor for the test."""
    data = config.data
    return 1 - data.validation_share - (data.test_share if data.train_folds is None else 0)


def _count_prompts(config: OnTaskConfig, num_screens: int) -> int:
    """Return about how many questions are left for GRPO."""
    share = _find_trained_share(config) - config.data.warmup_share
    return round(num_screens * share) * config.data.pairs_per_screen


def _count_sft_steps(config: OnTaskConfig, num_screens: int) -> int:
    data, sft = config.data, config.sft
    share = data.warmup_share or _find_trained_share(config)
    num_rows = round(num_screens * share) * sft.pairs_per_screen
    if data.root is not None and data.is_drawing:
        num_drawn = data.drawn.num_sessions * data.drawn.screens_per_session
        num_rows += num_drawn * sft.drawn_pairs_per_screen
    return sft.epochs * num_rows // (sft.batch_size * sft.gradient_accumulation)
