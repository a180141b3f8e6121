"""JSON files that are a list of equal rows: written from dataclasses and read back into them."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from groupwise.core import EvaluationError, read_json

Row = TypeVar("Row")


def read_rows(path: Path, make: Callable[..., Row], *, what: str) -> list[Row]:
    """Return what ``make`` makes of the keys and values of each row.

    Raises:
        DataError: if the file is missing or is not a list.
        EvaluationError: if it is not one of ``what``.
    """
    try:
        return [make(**row) for row in read_json(path, list)]
    except (ValueError, TypeError) as error:
        raise EvaluationError(f"{path} is not a list of {what} ({error})") from error
