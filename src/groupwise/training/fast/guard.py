"""A shared pass may differ from plain ones about as far as these differ from each other.

How far that is, is measured on the same rows each time that a new shape of batches turns up.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object
from torch.nn import functional

from groupwise.models.processor import TOKEN_TYPES
from groupwise.training.fast.pictures import Pictures
from groupwise.training.fast.scoring import PromptRows, ScoredRows
from groupwise.training.on_policy import PICTURE_NAMES

# Of padding, before and behind. With an odd number of columns more, kernels split the rest apart.
_WIDER = ((9, 0), (1, 0), (4, 3), (16, 5))


def collect_prompts(
    ids: torch.Tensor, mask: torch.Tensor, named: Mapping[str, Any]
) -> PromptRows | None:
    """Return the prompts [rows, prompt] of a pass, or None if they cannot be shared."""
    given = {name for name, value in named.items() if value is not None}
    if not given <= {*PICTURE_NAMES} or int(mask.sum(1).min()) < 2:
        return None
    pictures = None
    if "pixel_values" in given:
        if "num_images" in given:
            pictures = Pictures.of(named, named["num_images"], named.get("num_tiles"))
        if pictures is None:
            return None
    types = {name: named[name][:, : ids.shape[1]] for name in TOKEN_TYPES if name in given}
    return PromptRows(ids, mask, pictures=pictures, token_types=types)


def name_plain(rows: ScoredRows) -> dict[str, Any]:
    """Return the arguments of TRL's own pass over these rows."""
    prompts, width = rows.prompts, rows.ids.shape[1]
    named: dict[str, Any] = {
        "input_ids": torch.cat([prompts.ids, rows.ids], dim=1),
        "attention_mask": torch.cat([prompts.mask, rows.mask], dim=1),
        "logits_to_keep": width,
    }
    for name, types in prompts.token_types.items():
        named[name] = functional.pad(types, (0, width))
    pictures = prompts.pictures
    if pictures is not None:
        named |= pictures.copy_fields()
        named |= {"num_images": pictures.count(), "num_tiles": pictures.count_tiles()}
    return named


def vary_batches(rows: ScoredRows, dtype: torch.dtype) -> list[list[ScoredRows]]:
    """Return the same rows in batches of different shapes; in float32 two are enough."""
    if dtype == torch.float32:
        return [[rows], [rows.widen(*_WIDER[0])]]
    places = torch.arange(len(rows.ids), device=rows.ids.device)
    halves = [rows.take(half) for half in places.chunk(2)]
    return [[rows], halves, *([rows.widen(*columns)] for columns in _WIDER)]


def pick_rows(rows: ScoredRows, max_rows: int) -> torch.Tensor:
    found = rows.mask.any(1).nonzero().flatten()
    places = torch.linspace(0, len(found) - 1, min(len(found), max_rows))
    return found[places.round().long().to(found.device)]


@dataclass(frozen=True)
class Comparison:
    """How far log-probabilities are from those of plain passes."""

    difference: float  # greatest one of a token, from the plain pass that is nearest
    noise: float  # greatest one of a token between two plain passes
    ulp: float  # one unit in the last place of logits or log-probabilities, whichever is coarser

    @property
    def tolerance(self) -> float:
        """Twice the noise; what is measured on few tokens may be less than the logits resolve."""
        return 2 * max(self.noise, self.ulp)

    @property
    def is_close(self) -> bool:
        return self.difference <= self.tolerance < math.inf

    def __str__(self) -> str:
        return (
            f"differ by {self.difference:.1e} from plain passes, "
            f"which differ by {self.noise:.1e} from each other"
        )


def compare_passes(given: torch.Tensor, plain: Sequence[torch.Tensor], *, ulp: float) -> Comparison:
    passes = torch.stack([one.detach().double() for one in plain])
    noise = (passes.amax(0) - passes.amin(0)).max()
    difference = (passes - given.detach().double()).abs().amax(1).min()
    return Comparison(float(difference), float(noise), ulp)


def agree(accelerator: Any, fault: str | None) -> str | None:
    """Return a fault that some process has found, or None; every process must take part."""
    if accelerator.num_processes == 1:
        return fault
    has_fault = torch.tensor(fault is not None, dtype=torch.int, device=accelerator.device)
    if not int(accelerator.reduce(has_fault, "sum")):
        return None
    return next(found for found in gather_object([fault]) if found is not None)


class ShapeGuard:
    """Remembers which shapes of batches were compared, and what was measured since the start."""

    def __init__(self) -> None:
        self.compared: set[Hashable] = set()
        self.comparisons: list[Comparison] = []

    def is_new(self, shape: Hashable) -> bool:
        is_new = shape not in self.compared
        self.compared.add(shape)
        return is_new
