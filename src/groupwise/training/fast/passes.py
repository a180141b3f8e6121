"""Between the arguments of TRL's passes and the rows of a shared one."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from groupwise.training.fast.scoring import Pictures, PromptRows, ScoredRows

# Of padding, before and behind. With an odd number of columns more, kernels split the rest apart.
_WIDER = ((1, 0), (4, 3), (9, 0), (16, 5))
_UNDERSTOOD = {"pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids"}


def collect_prompts(
    ids: torch.Tensor, mask: torch.Tensor, named: Mapping[str, Any]
) -> PromptRows | None:
    """Return the prompts of a pass, or None if they cannot be shared.

    Args:
        ids: of the prompts, padded on the left, shape [rows, prompt].
        mask: of the same shape.
        named: what TRL gives beside ids and masks of prompts and completions.
    """
    given = {name for name, value in named.items() if value is not None}
    if not given <= _UNDERSTOOD or int(mask.sum(1).min()) < 2:
        return None
    pictures = None
    if "pixel_values" in given:
        if not {"image_grid_thw", "num_images"} <= given:
            return None
        pictures = Pictures(named["pixel_values"], named["image_grid_thw"], named["num_images"])
    types = named.get("mm_token_type_ids")
    types = None if types is None else types[:, : ids.shape[1]]
    return PromptRows(ids, mask, pictures=pictures, token_types=types)


def name_plain(rows: ScoredRows) -> dict[str, Any]:
    """Return the arguments of TRL's own pass over these rows."""
    prompts, width = rows.prompts, rows.ids.shape[1]
    named: dict[str, Any] = {
        "input_ids": torch.cat([prompts.ids, rows.ids], dim=1),
        "attention_mask": torch.cat([prompts.mask, rows.mask], dim=1),
        "logits_to_keep": width,
    }
    if prompts.token_types is not None:
        named["mm_token_type_ids"] = functional.pad(prompts.token_types, (0, width))
    if prompts.pictures is not None:
        named["pixel_values"] = prompts.pictures.copy_pixels()
        named["image_grid_thw"] = prompts.pictures.find_grid()
        named["num_images"] = prompts.pictures.count()
    return named


def vary_batches(rows: ScoredRows) -> list[list[ScoredRows]]:
    """Return the same rows in batches of different shapes: together, in halves, with padding."""
    places = torch.arange(len(rows.ids), device=rows.ids.device)
    halves = [rows.take(half) for half in places.chunk(2)]
    return [[rows], halves, *([rows.widen(*columns)] for columns in _WIDER)]


def pick_rows(rows: ScoredRows, max_rows: int) -> torch.Tensor:
    """Return rows that have real tokens, spread evenly over all of them, shape [chosen]."""
    found = rows.mask.any(1).nonzero().flatten()
    places = torch.linspace(0, len(found) - 1, min(len(found), max_rows))
    return found[places.round().long().to(found.device)]
