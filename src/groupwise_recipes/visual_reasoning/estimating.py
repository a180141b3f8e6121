"""What a dry run says of the rows: how many, how long their prompts, from where."""

from collections import Counter
from pathlib import Path

from groupwise.flow import Estimate, estimate_picture
from groupwise_recipes.visual_reasoning.boxes import Size
from groupwise_recipes.visual_reasoning.config import VisualConfig, choose_alignment
from groupwise_recipes.visual_reasoning.loading import SplitRows, load_rows
from groupwise_recipes.visual_reasoning.rows import VisualRow

_TARGET_TOKENS, _TEXT_TOKENS, _BOXES_TOKENS, _LETTERS_PER_TOKEN = 60, 40, 60, 4
_USUAL_SIZE = (640, 480)


def estimate_run(config: VisualConfig) -> Estimate:
    """Return rows, tokens and sources; what stops the stage ``prepare`` is raised.

    Where scenes are drawn, rows that are read beside them are not looked at.
    """
    drawn, judge = config.data.drawn, choose_alignment(config)
    facts = [("alignment", "not judged" if judge is None else judge.describe())]
    if drawn is None:
        loaded = load_rows(config, Path())
        rows = loaded.rows["train"]
        num_rows = len(rows)
        num_tokens = max((_count_tokens(row, config) for row in rows), default=0)
        sources = {
            name: dict(Counter(row.source for row in found))
            for name, found in loaded.rows.items()
            if found
        }
        facts.append(("rows", _describe_rows(loaded)))
    else:
        # Every relation of drawn scenes is as often true as false.
        kept = 1 if config.data.keep is None else config.data.keep
        num_rows, sources = round((1 + kept) * drawn.num_pairs), {}
        num_tokens = _count_shown(config, (drawn.side, drawn.side)) + _TEXT_TOKENS
    share = 0 if config.sft is None else config.data.warmup_share
    return Estimate(
        num_prompts=round(num_rows * (1 - share)),
        num_sft_rows=round(num_rows * share),
        tokens_per_prompt=num_tokens,
        tokens_per_answer=_TARGET_TOKENS,
        sources=sources,
        facts=facts,
    )


def _count_tokens(row: VisualRow, config: VisualConfig) -> int:
    """Return about how many tokens a row's prompt has, the picture included."""
    prompt = config.prompt if row.is_statement else config.choice_prompt
    letters = len(prompt) + len(row.text) + sum(map(len, row.choices.values()))
    shown = _count_shown(config, row.picture_size or _USUAL_SIZE)
    return shown + letters // _LETTERS_PER_TOKEN + _TEXT_TOKENS


def _count_shown(config: VisualConfig, size: Size) -> int:
    """Return about how many tokens the pictures of a row have, and boxes beside them."""
    num_pictures = 2 if "depth" in config.inputs else 1
    boxes = _BOXES_TOKENS if "boxes" in config.inputs else 0
    return num_pictures * estimate_picture(config, size) + boxes


def _describe_rows(loaded: SplitRows) -> str:
    num_used = sum(map(len, loaded.rows.values()))
    dropped = "".join(f"; {count:,} x {reason}" for reason, count in loaded.drops.counts.items())
    return f"{num_used:,} of {loaded.num_records:,} used{dropped}"
