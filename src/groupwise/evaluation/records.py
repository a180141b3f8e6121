"""The JSON files of a run, read as what they hold."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, with_config

from groupwise.core import EvaluationError, parse_value, read_json

T = TypeVar("T")
exact = with_config(ConfigDict(extra="forbid"))
"""Marks a dataclass whose files have no other keys."""


def read_as(path: Path, shape: TypeAdapter[T], *, kind: type[Any] = list) -> T:
    """Return what a file holds.

    Args:
        path: a JSON file.
        shape: what is made of it.
        kind: what it is as JSON: ``list`` or ``dict``.

    Raises:
        DataError: if the file cannot be read, is not JSON, or is of another kind.
        EvaluationError: if it has another shape.
    """
    return parse_as(read_json(path, kind), shape, path)


def parse_as(value: object, shape: TypeAdapter[T], path: Path) -> T:
    """Return what is made of a value that stands in a file.

    Raises:
        EvaluationError: if it has another shape.
    """
    fix = "run the step that writes it again"
    return parse_value(value, shape, f"{path} is damaged", error=EvaluationError, fix=fix)


def parse_open(value: object, model: type[BaseModel], path: Path) -> dict[str, Any]:
    """Return a JSON object whose keys that a model has are of its types; others stay as they are.

    Raises:
        EvaluationError: if one of them is not.
    """
    found = parse_as(value, TypeAdapter(model), path)
    return {name: part for name, part in found if name in found.model_fields_set}
