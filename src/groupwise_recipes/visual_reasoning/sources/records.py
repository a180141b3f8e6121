"""What the published forms share: records of one shape, files of pictures, statements."""

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from groupwise.core import DataError, parse_value
from groupwise_recipes.visual_reasoning.rows import RowError, Split

SPLIT_NAMES: dict[str, Split] = {
    "train": "train",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
"""The splits by the names that the data sets have for them."""

T = TypeVar("T")


def read_record(value: object, shape: TypeAdapter[T]) -> T:
    """Return what is made of a record."""
    try:
        return parse_value(value, shape, "the record is not of the published form")
    except DataError as fault:
        raise RowError("not of the published form", str(fault)) from fault


def find_picture(folder: Path | None, name: str) -> Path | None:
    """Return the file of a picture; None where no folder is given."""
    if folder is None:
        return None
    path = folder / name
    if not path.is_file():
        raise RowError("missing picture", f"the picture {path} does not exist")
    return path


def state(subject: str, relation: str, object_: str) -> str:
    """Return the statement that a subject stands in a relation to an object."""
    return " ".join(f"{subject} {relation} {object_}".split())
