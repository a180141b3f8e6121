"""What a person may answer with one key: the labels, or that an open answer is right."""

from collections.abc import Sequence
from dataclasses import dataclass

_TWO, _DIGITS = "fj", "123456789"


@dataclass(frozen=True, slots=True)
class Choice:
    """A button.

    Attributes:
        label: what is said with it.
        key: that presses it; empty for the tenth label and further ones.
    """

    label: str
    key: str


def list_choices(labels: Sequence[str]) -> list[Choice]:
    """Return the labels with their keys: F and J, under the forefingers, or digits."""
    keys = _TWO if len(labels) == len(_TWO) else _DIGITS
    padded = [*keys, *[""] * max(len(labels) - len(keys), 0)]
    return [Choice(label, key) for label, key in zip(labels, padded, strict=False)]
