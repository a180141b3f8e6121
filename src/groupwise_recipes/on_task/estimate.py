"""What a dry run says of the screens: how many, how large, from where, and what would go wrong."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.core import Example
from groupwise.data.splits import split_by_shares
from groupwise.run.preview import estimate_picture
from groupwise.run.task import Estimate
from groupwise_recipes.on_task.config import DRAWN, OnTaskConfig
from groupwise_recipes.on_task.prompt import make_pair_example, write_target
from groupwise_recipes.on_task.screens import (
    count_sources,
    cross_screens,
    split_screens,
)
from groupwise_recipes.on_task.screenshots import LoadedScreens, Screenshot, load_screenshots

_TEXT_TOKENS = 60
_DESCRIPTION_TOKENS = 14
_LABEL_TOKENS = 4


def estimate_run(config: OnTaskConfig) -> Estimate:
    """Go the way of the stage ``prepare`` without writing: what stops it is raised."""
    if config.data.root is None:
        return _estimate_drawn(config)
    loaded = load_screenshots(config.data.root, allow_outside=config.data.allow_outside)
    splits = split_screens(loaded, config.data, seed=config.seed)
    num_items = len(cross_screens(splits["test"], config, split="test"))
    cross_screens(splits["validation"], config, split="validation")
    num_drawn = _count_drawn(config)
    sources = count_sources(splits, None)
    sources["warmup"] += Counter({DRAWN: num_drawn} if num_drawn else {})
    folds = config.data.train_folds
    screens = [s for s in loaded.screens if folds is None or s.fold in folds]
    largest = max(screens, key=lambda screen: screen.width * screen.height)
    wanted = config.evaluation.num_items or 0
    too_few = f"evaluation.num_items: {wanted} of {num_items} items of the test split; lower it"
    return _make_estimate(
        config,
        len(screens),
        (largest.width, largest.height),
        sources=sources,
        rows=_list_rows(config, splits["train"]),
        facts=[("rows", _describe_rows(loaded, splits)), *_describe_words(config)],
        later={"baselines": [too_few]} if wanted > num_items else {},
    )


def _estimate_drawn(config: OnTaskConfig) -> Estimate:
    drawn = config.data.drawn
    sessions = {str(number): "" for number in range(drawn.num_sessions)}
    split_by_shares(sessions, shares=config.data.list_shares(), seed=config.seed)
    num_screens = _count_drawn(config)
    sources = {"all": {DRAWN: num_screens}}
    return _make_estimate(config, num_screens, (drawn.width, drawn.height), sources=sources)


def _make_estimate(
    config: OnTaskConfig,
    num_screens: int,
    size: tuple[int, int],
    *,
    facts: Sequence[tuple[str, str]] = (),
    **more: Any,
) -> Estimate:
    width, height = size
    split = ("screens to split", f"{num_screens:,} of up to {width} x {height} pixels")
    return Estimate(
        num_prompts=_count_prompts(config, num_screens),
        num_sft_rows=_count_sft_rows(config, num_screens),
        tokens_per_prompt=estimate_picture(config, size) + _TEXT_TOKENS,
        tokens_per_answer=_DESCRIPTION_TOKENS if config.answer.describe else _LABEL_TOKENS,
        facts=[*facts, split],
        **more,
    )


def _count_drawn(config: OnTaskConfig) -> int:
    drawn = config.data.drawn
    return drawn.num_sessions * drawn.screens_per_session if config.data.is_drawing else 0


def _list_rows(config: OnTaskConfig, screens: Sequence[Screenshot]) -> list[tuple[Example, str]]:
    """Return the questions of GRPO with the answers that are taught.

    No screen is read: where prompts show words, as many others stand for them.
    """
    words = config.data.screen_words
    if words is not None:
        stand_in = ("word " * words.num_characters)[: words.num_characters]
        screens = [replace(screen, words=stand_in) for screen in screens]
    pairs = cross_screens(screens, config, split="train")
    examples = [make_pair_example(pair, config) for pair in pairs]
    return [(example, write_target(example, config.answer)) for example in examples]


def _describe_words(config: OnTaskConfig) -> list[tuple[str, str]]:
    """Return what is read on screens, which a dry run does not do."""
    words = config.data.screen_words
    if words is None:
        return []
    shown = f"up to {words.num_characters:,} characters; a dry run reads none and shows others"
    return [("words on screens", shown)]


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


def _count_sft_rows(config: OnTaskConfig, num_screens: int) -> int:
    if config.sft is None:
        return 0
    share = config.data.warmup_share or _find_trained_share(config)
    num_rows = round(num_screens * share) * config.sft.pairs_per_screen
    is_joined = config.data.root is not None
    return num_rows + (_count_drawn(config) if is_joined else 0)
