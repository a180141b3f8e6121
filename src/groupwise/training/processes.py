"""This process among those that train together, as its launcher says in the environment."""

import os
from collections.abc import Callable
from typing import TypeVar

from groupwise.core import TrainingError

T = TypeVar("T")
SHARDING = "GROUPWISE_SHARDING"
"""The variable that says whether weights are spread over the processes: ``fsdp``, else not."""


def count_processes() -> int:
    """Return how many processes train together; 1: this one is alone."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def find_rank() -> int:
    """Return the number of this process among them, from 0 on."""
    return int(os.environ.get("RANK", "0"))


def is_first_process() -> bool:
    """Return whether this process writes what a training leaves: the others only compute."""
    return find_rank() == 0


def spreads_weights() -> bool:
    return os.environ.get(SHARDING) == "fsdp"


def divide_batch(num_rows: int, *, setting: str) -> int:
    num_processes = count_processes()
    if num_rows % num_processes:
        raise TrainingError(
            f"{setting} {num_rows} cannot be shared equally by {num_processes} processes",
            fix="make it a multiple of their number",
        )
    return num_rows // num_processes


def ask_first(make: Callable[[], T]) -> T:
    """Return in every process what ``make`` returns in the first; only there it is called."""
    from torch.distributed import broadcast_object_list

    if count_processes() == 1:
        return make()
    found = [make() if is_first_process() else None]
    # Accelerate's own leaves everyone with None, in silence, before a trainer is there.
    broadcast_object_list(found, src=0)
    return found[0]  # pyright: ignore[reportReturnType] (the first process's)
