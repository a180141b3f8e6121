"""What ``--dry-run`` prints: rows, tokens per row, steps and memory, and what would go wrong."""

from collections.abc import Sequence

from groupwise.core import DataError, GroupwiseError
from groupwise.data import Screenshot, load_screenshots
from groupwise.models import TINY_TOKEN_SIDE, TOKEN_SIDE, estimate_picture_tokens
from groupwise.pipeline import Preview
from groupwise.training import check_base, check_lengths, preview_grpo
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.rewards import name_weights

_TEXT_TOKENS = 60
_DESCRIPTION_TOKENS = 14
_LABEL_TOKENS = 4


def preview_run(config: OnTaskConfig) -> Preview:
    """Return the facts and problems of a config without running it."""
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
    return Preview([*facts, *more_facts], problems, later={"sft": training})


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
    if data.root is not None:
        num_drawn = data.drawn.num_sessions * data.drawn.screens_per_session
        num_rows += num_drawn * sft.drawn_pairs_per_screen
    return sft.epochs * num_rows // (sft.batch_size * sft.gradient_accumulation)
