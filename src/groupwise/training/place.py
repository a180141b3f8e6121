"""Where a training step is done, as far as memory is concerned."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Place:
    """The devices of a step.

    Attributes:
        device: the CPU, or a GPU, where attention and the output head hold less.
        num_processes: that share the step, on a device each.
        is_spread: whether each holds a part of the weights (FSDP2), or all (DDP).
    """

    device: Literal["cpu", "cuda"]
    num_processes: int = 1
    is_spread: bool = False
