"""Rows of the SFT warm-up: new pairs in every epoch, each with a description and the label."""

import random
from collections.abc import Sequence
from dataclasses import replace

from groupwise.core import Example, derive_seed
from groupwise.data import Pair, Screenshot, make_pairs
from groupwise.rewards import LabelParser
from groupwise.training import RowsOfEpoch, SftRow
from groupwise_drawn.desktops import ACTIVITIES, write_task
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.prompt import (
    has_description,
    make_pair_example,
    write_description,
    write_target,
)
from groupwise_recipes.on_task.screens import DRAWN


def make_warmup_rows(screens: Sequence[Screenshot], config: OnTaskConfig) -> RowsOfEpoch:
    """Return a function from an epoch to its rows; real and drawn screens are paired apart."""
    drawn = [screen for screen in screens if screen.source == DRAWN]
    real = [screen for screen in screens if screen.source != DRAWN]

    def list_rows(epoch: int) -> list[SftRow]:
        pairs = _pair(real, config.sft.pairs_per_screen, config, epoch)
        pairs += _pair(drawn, config.sft.drawn_pairs_per_screen, config, epoch)
        rng = random.Random(derive_seed(config.seed, "written tasks", epoch))
        pairs = [_rewrite_task(pair, config.sft.written_tasks, rng) for pair in pairs]
        return [_make_row(make_pair_example(pair, config), config) for pair in pairs]

    return list_rows


def make_label_rows(
    examples: Sequence[Example], prefixes: Sequence[str], parser: LabelParser
) -> RowsOfEpoch:
    """Return rows that teach the label after the policy's own description.

    That is all that GRPO's rewards know: the label, and nothing about the description.
    """
    rows = [
        SftRow(example, prefix + parser.write(str(example.label)))
        for example, prefix in zip(examples, prefixes, strict=True)
    ]
    return lambda _: rows


def _pair(
    screens: Sequence[Screenshot], pairs_per_screen: int, config: OnTaskConfig, epoch: int
) -> list[Pair]:
    if not screens:
        return []
    seed = derive_seed(config.seed, "warm-up", epoch)
    return make_pairs(screens, seed=seed, pairs_per_screen=pairs_per_screen, on_tasks="activity")


def _rewrite_task(pair: Pair, probability: float, rng: random.Random) -> Pair:
    drawn = rng.random()
    if drawn >= probability or pair.task_activity not in ACTIVITIES:
        return pair
    language = pair.screen.language
    return replace(pair, task=write_task(pair.task_activity, rng=rng, language=language))


def _make_row(example: Example, config: OnTaskConfig) -> SftRow:
    if _is_labelled(example, config):
        return SftRow(example, write_target(example, config.answer))
    return SftRow(example, write_description(example, config.answer), is_finished=False)


def _is_labelled(example: Example, config: OnTaskConfig) -> bool:
    """Whether the decision on this session's screens is taught, the same in every epoch."""
    if not has_description(example, config.answer):
        return True
    rng = random.Random(derive_seed(config.seed, "labelled", example.cluster))
    return rng.random() < config.sft.labelled_share
