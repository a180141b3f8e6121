"""A shared pass may differ from plain ones about as far as these differ from each other.

How far that is depends on the precision, the kernels and the model, so it is measured on the same
rows each time that a new shape of batches turns up.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import gather_object

from groupwise.training.fast.passes import name_plain
from groupwise.training.fast.scoring import ScoredRows


@dataclass(frozen=True)
class Comparison:
    """How far log-probabilities are from those of plain passes.

    Attributes:
        difference: greatest one of a token, from the plain pass that is nearest.
        noise: greatest one of a token between two plain passes.
        ulp: one unit in the last place of logits or log-probabilities, whichever is coarser.
    """

    difference: float
    noise: float
    ulp: float

    @property
    def tolerance(self) -> float:
        """Twice the noise; what is measured on few tokens may be less than the logits resolve."""
        return 2 * max(self.noise, self.ulp)

    @property
    def is_close(self) -> bool:
        """Whether rounding explains the difference; NaN never does."""
        return self.difference <= self.tolerance < math.inf

    def __str__(self) -> str:
        """Say what was measured."""
        return (
            f"differ by {self.difference:.1e} from plain passes, "
            f"which differ by {self.noise:.1e} from each other"
        )


def compare_passes(given: torch.Tensor, plain: Sequence[torch.Tensor], *, ulp: float) -> Comparison:
    """Compare log-probabilities of the same tokens, each of shape [tokens].

    Args:
        given: what is judged.
        plain: from passes over batches of different shapes.
        ulp: one unit in the last place of the logits.
    """
    passes = torch.stack([one.detach().double() for one in plain])
    noise = (passes.amax(0) - passes.amin(0)).max()
    difference = (passes - given.detach().double()).abs().amax(1).min()
    return Comparison(float(difference), float(noise), ulp)


@torch.no_grad()
def compute_logits(model: Any, rows: ScoredRows) -> torch.Tensor:
    """Return a model's logits of the first row, shape [1, tokens, vocabulary]."""
    named = name_plain(rows.take(torch.arange(1, device=rows.ids.device)))
    named.pop("num_images", None)
    return model(**named, use_cache=False).logits


def agree(accelerator: Any, fault: str | None) -> str | None:
    """Return a fault that some process has found, the same in each; None: none has found one.

    Every process must take part.
    """
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
        """Whether this shape was never asked for before."""
        is_new = shape not in self.compared
        self.compared.add(shape)
        return is_new
