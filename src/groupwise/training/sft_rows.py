"""Rows of supervised fine-tuning: what is asked, and what is taught as the answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from groupwise.core import Example


@dataclass(frozen=True)
class SftRow:
    """An example and the text the policy is taught to answer.

    Attributes:
        is_finished: whether the answer ends after the target; if not, what follows the target,
            the end token included, is not taught.
    """

    example: Example
    target: str
    is_finished: bool = True


RowsOfEpoch = Callable[[int], Sequence[SftRow]]
"""Gives the rows of an epoch; the same number in each, deterministic."""
