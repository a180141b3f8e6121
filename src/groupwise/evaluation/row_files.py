"""JSON files that are a list of equal rows: written from dataclasses and read back into them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from groupwise.core import EvaluationError

Row = TypeVar("Row")


def read_rows(path: Path, make: Callable[..., Row], *, what: str) -> list[Row]:
    """Return what ``make`` makes of the keys and values of each row.

    Raises:
        EvaluationError: if the file is missing or is not a list of ``what``.
    """
    try:
        rows: list[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return [make(**row) for row in rows]
    except OSError as error:
        raise EvaluationError(f"cannot read {path} ({error.strerror})") from error
    except (ValueError, TypeError) as error:
        raise EvaluationError(f"{path} is not a list of {what} ({error})") from error
