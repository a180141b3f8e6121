"""Axes of a grid, as they are typed, and the cells that they span.

A value is YAML, as with ``--set``. A coordinate is a value's text in one spelling, so that
``0.10`` and ``0.1`` are the same cell.
"""

import itertools
import json
import math
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from groupwise.core import ConfigError, digest_json, parse_yaml

_MAX_CELLS = 10_000
_MAX_NAME_BYTES = 120
_UNSAFE = re.compile(r"[^\w.+-]")
_OPENING, _CLOSING, _QUOTES = "[{", "]}", "\"'"
# A quote inside a word is an apostrophe; one behind a quote is an escaped one.
_BEFORE_QUOTES = "[{,:'"


@dataclass(frozen=True, slots=True)
class Axis:
    """One setting that varies.

    Attributes:
        key: of the config, ``section.name``.
        values: the texts of its values, as coordinates have them.
    """

    key: str
    values: tuple[str, ...]


def parse_axes(
    grids: Sequence[str], *, settings: Sequence[str] = ()
) -> tuple[tuple[Axis, ...], list[str]]:
    """Read ``key=value,value`` texts.

    Returns:
        The axes that could be read, and a clause for everything that is wrong.
    """
    problems: list[str] = []
    axes = tuple(axis for text in grids if (axis := _parse_axis(text, problems)) is not None)
    fixed = [text.partition("=")[0].strip() for text in settings]
    for position, axis in enumerate(axes):
        others = [other.key for other in axes[:position]]
        if any(_overlaps(axis.key, other) for other in others):
            problems.append(f"--grid {axis.key}: there is another axis for it")
        if any(_overlaps(axis.key, key) for key in fixed):
            problems.append(f"--grid {axis.key}: it is in --set, too; leave one of them out")
    return axes, problems


def list_coordinates(axes: Sequence[Axis]) -> list[dict[str, str]]:
    """Return all combinations of values; the last axis varies fastest."""
    num_cells = math.prod(len(axis.values) for axis in axes)
    if num_cells > _MAX_CELLS:
        raise ConfigError(
            "the grid is too large", got=f"{num_cells} cells", expected=f"at most {_MAX_CELLS}"
        )
    keys = [axis.key for axis in axes]
    values = itertools.product(*(axis.values for axis in axes))
    return [dict(zip(keys, combination, strict=True)) for combination in values]


def parse_coordinates(text: str) -> dict[str, str]:
    """Read ``key=value,key=value``; what cannot be read is left out."""
    axes, _ = parse_axes(list(_split(text)))
    return {axis.key: axis.values[0] for axis in axes}


def name_cell(coordinates: Mapping[str, str]) -> str:
    """Return ``key=value,key=value`` as the name of a folder.

    Where characters had to be replaced or the end to be cut, a digest keeps names apart.
    """
    whole = ",".join(f"{key}={text}" for key, text in coordinates.items())
    safe = {_UNSAFE.sub("_", key): _UNSAFE.sub("_", text) for key, text in coordinates.items()}
    name = ",".join(f"{key}={text}" for key, text in safe.items())
    if name == whole and len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    short = name.encode()[: _MAX_NAME_BYTES - 9].decode(errors="ignore")
    return f"{short}-{digest_json(dict(coordinates))[:8]}"


def _parse_axis(text: str, problems: list[str]) -> Axis | None:
    key, equals, rest = text.partition("=")
    key = key.strip()
    if not equals or not all(part.strip() for part in key.split(".")):
        problems.append(f"--grid {text}: expected key.path=value,value")
        return None
    values: list[str] = []
    for part in _split(rest):
        value = _read_value(key, part, problems)
        if value is not None and value in values:
            problems.append(f"--grid {key}: the value {value} appears twice")
        elif value is not None:
            values.append(value)
    return Axis(key, tuple(values)) if values else None


def _split(text: str) -> Iterator[str]:
    """Cut at the commas that stand in no brackets and no quotes."""
    depth, quote, start = 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES and text[start:position].rstrip()[-1:] in _BEFORE_QUOTES:
            quote = character
        elif character == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
        else:
            depth += (character in _OPENING) - (character in _CLOSING)
    yield text[start:].strip()


def _read_value(key: str, text: str, problems: list[str]) -> str | None:
    if not text:
        problems.append(f"--grid {key}: a value is empty; write null for none")
        return None
    try:
        return _spell(parse_yaml(text), text)
    except yaml.YAMLError:
        problems.append(f"--grid {key}: {reprlib.repr(text)} is no YAML value")
        return None


def _spell(value: Any, text: str) -> str:
    """Return the one spelling of a value that reads as this value again; else as it was typed."""
    if isinstance(value, str):
        candidates = [value, json.dumps(value, ensure_ascii=False)]
    else:
        candidates = [json.dumps(value, ensure_ascii=False, default=str)]
    return next((spelling for spelling in candidates if _reads_as(spelling, value)), text)


def _reads_as(spelling: str, value: Any) -> bool:
    try:
        found = parse_yaml(spelling)
    except yaml.YAMLError:
        return False
    return type(found) is type(value) and found == value


def _overlaps(one: str, other: str) -> bool:
    """Return whether two keys are the same, or one is in the section that the other names."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
