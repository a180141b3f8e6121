"""Running out of memory: told from other errors, and remembered so that it happens once."""

from collections.abc import Sequence
from typing import TypeVar

import torch

T = TypeVar("T")
_SIGNS = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error means that memory, of whichever device, did not suffice."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def free_memory() -> None:
    """Give back what the allocator holds; call it when the error is no longer referred to."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class MemoryLimit:
    """How many tokens, padding and answers included, were too many for one batch."""

    def __init__(self) -> None:
        self.num_tokens: float = float("inf")

    def fits(self, num_rows: int, num_tokens_per_row: int) -> bool:
        """Say whether a batch may be tried; one row always may."""
        return num_rows == 1 or num_rows * num_tokens_per_row <= self.num_tokens

    def lower(self, num_rows: int, num_tokens_per_row: int) -> None:
        """Remember a batch that did not fit: half of it is tried next."""
        half = -(-num_rows // 2)
        self.num_tokens = min(self.num_tokens, half * num_tokens_per_row)


def halve(rows: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Return both halves; the first is the larger one."""
    middle = -(-len(rows) // 2)
    return rows[:middle], rows[middle:]
