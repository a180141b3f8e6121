"""Fields of examples as rewards read them: JSON values of unknown shape."""

from collections.abc import Mapping, Sequence
from typing import cast


def read_list(value: object) -> Sequence[object] | None:
    """Return a list or tuple as it is; None for anything else."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else None


def read_mapping(value: object) -> Mapping[str, object] | None:
    """Return a mapping as it is; None for anything else."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None


def read_numbers(value: object) -> list[float] | None:
    """Return a list of numbers as floats; None for anything else."""
    items = read_list(value)
    if items is None:
        return None
    numbers = [float(item) for item in items if isinstance(item, int | float)]
    return numbers if len(numbers) == len(items) else None
