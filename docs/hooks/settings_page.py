"""The page of all settings, made from the configs of the installed recipes.

The library's sections stand there once, whichever recipes have them, each with what it adds to the
section it extends: every setting is one row. Types, defaults and bounds are those of the pydantic
models, meanings the lines of their docstrings.
"""

import inspect
import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from groupwise.core import Config, Effect
from groupwise.run.recipe import find_recipes

_BOUNDS = {Ge: "≥ {ge}", Gt: "> {gt}", Le: "≤ {le}", Lt: "< {lt}"}
_LENGTHS = {MinLen: "at least {min_length}", MaxLen: "at most {max_length}"}


def describe_settings() -> str:
    """Return the tables of all recipes and of their sections."""
    tops = {name: recipe.load_config_type() for name, recipe in find_recipes().items()}
    sections = _list_sections(list(tops.values()))
    lines: list[str] = []
    for name, top in tops.items():
        lines += [f"## {name}", "", *_describe_section(top)]
        for section in sections:
            if _find_recipe(section) == name:
                lines += _head_section(section)
    lines += ["## Sections of every recipe", ""]
    for section in sections:
        if not _find_recipe(section):
            lines += _head_section(section)
    return "\n".join(lines)


def describe_section(section: type[BaseModel]) -> str:
    """Return the table of one section, inherited settings included, for another page."""
    table = "\n".join([*_tabulate(section, list(section.model_fields)), ""])
    return re.sub(r"\[(\w+)\]\(#[^)]*\)", r"`\1`", table)


def read_meanings(section: type[BaseModel]) -> dict[str, str]:
    """Return what the docstrings of a section and of those it extends say of its fields."""
    found: dict[str, str] = {}
    for base in reversed(section.__mro__[: -len(Config.__mro__)]):
        doc = inspect.cleandoc(vars(base).get("__doc__") or "")
        _, _, block = doc.partition("Attributes:\n")
        entries = re.split(r"\n(?=    \S)", "\n" + block.partition("\n\n")[0])
        for entry in entries:
            names, colon, meaning = entry.partition(":")
            if colon:
                text = " ".join(meaning.split()).replace("``", "`")
                found |= {name.strip(): text for name in names.split(",")}
    return found


def describe_type(annotation: Any) -> str:
    """Return a type as people write it in YAML, sections as links."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, UnionType):
        names = [describe_type(part) for part in inner if part is not NoneType]
        return " or ".join([*names, *(["null"] if NoneType in inner else [])])
    if hasattr(annotation, "__metadata__"):
        return describe_type(inner[0])
    if origin in (tuple, list):
        return f"list of {describe_type(inner[0])}"
    if origin is not None and issubclass(origin, Mapping):
        return f"mapping of {describe_type(inner[1])}"
    if _is_section(annotation):
        return f"[{annotation.__name__}](#{_name_anchor(annotation)})"
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(
        annotation, getattr(annotation, "__name__", str(annotation)).lower()
    )


def _describe_section(section: type[BaseModel]) -> list[str]:
    """Return what a section is for, what it extends, its sections, and the table of the others."""
    summary = inspect.cleandoc(section.__doc__ or "").partition("Attributes:")[0].strip()
    meanings = read_meanings(section)
    own = [name for name in section.model_fields if name in inspect.get_annotations(section)]
    inner = {name for name in own if _list_inner(section.model_fields[name].annotation)}
    extended = [f"[{one.__name__}](#{_name_anchor(one)})" for one in _list_extended(section)]
    beside = f"{'Beside these' if own else 'Its settings'}: those of {' and '.join(extended)}."
    lines = [summary.replace("``", "`"), *(["", beside] if extended else []), ""]
    for name in own:
        if name in inner:
            lines.append(_name_section(name, section.model_fields[name], meanings.get(name, "")))
    table = _tabulate(section, [name for name in own if name not in inner])
    return [*lines, *([""] if inner else []), *([*table, ""] if len(own) > len(inner) else [])]


def _name_section(name: str, field: FieldInfo, meaning: str) -> str:
    effect, default = _describe_effect(field), _describe_default(field)
    told = {"its defaults": "", "null": " unless given"}.get(default, f", {default}")
    marked = f" ({effect})" if effect else ""
    return f"- `{name}`: {_describe_values(field)}{told}{f'; {meaning}' if meaning else ''}{marked}"


def _tabulate(section: type[BaseModel], names: list[str]) -> list[str]:
    meanings = read_meanings(section)
    rows = [
        (
            f"`{name}`",
            _describe_values(field),
            _describe_default(field),
            meanings.get(name, ""),
            _describe_effect(field),
        )
        for name, field in section.model_fields.items()
        if name in names
    ]
    head = ["| setting | values | default | meaning | between two runs |", "|---|---|---|---|---|"]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    return [*head, *(f"| {row} |" for row in cells)]


def _head_section(section: type[BaseModel]) -> list[str]:
    # Readers of Markdown make the same anchor of it as `_name_anchor`.
    title = ": ".join(filter(None, (_find_recipe(section), section.__name__)))
    return [f"### {title}", "", *_describe_section(section)]


def _name_anchor(section: type[BaseModel]) -> str:
    return "-".join(filter(None, (_find_recipe(section), section.__name__.lower())))


def _find_recipe(section: type[BaseModel]) -> str:
    """Return the recipe whose own a section is; of the library's it is empty."""
    package, _, rest = section.__module__.partition(".")
    return "" if package == "groupwise" else rest.partition(".")[0]


def _describe_values(field: FieldInfo) -> str:
    bounds = [
        text.format(**{key: getattr(given, key) for key in type(given).__slots__})
        for given in field.metadata
        for kind, text in {**_BOUNDS, **_LENGTHS}.items()
        if isinstance(given, kind)
    ]
    return ", ".join([describe_type(field.annotation), *bounds])


def _describe_default(field: FieldInfo) -> str:
    if field.default_factory_takes_validated_data:
        return "depends"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "*required*"
    if isinstance(value, BaseModel):
        own = value.model_dump(mode="json", exclude_unset=True)
        return f"`{own}`" if own else "its defaults"
    if value is None:
        return "null"
    return f"`{list(value)}`" if isinstance(value, tuple) else f"`{value}`"


def _describe_effect(field: FieldInfo) -> str:
    """Return what the field's own mark says; one without a mark counts, or is as its section."""
    effect = next((mark for mark in field.metadata if isinstance(mark, Effect)), Effect())
    if effect.kind == "counts":
        return ""
    return f"{effect.kind}: {effect.reason}" if effect.reason else effect.kind


def _list_sections(tops: list[type[Config]]) -> list[type[BaseModel]]:
    """Return the sections below configs, each once, in the order they are met."""
    found: list[type[BaseModel]] = []

    def visit(annotation: Any) -> None:
        for part in get_args(annotation):
            visit(part)
        if _is_section(annotation) and annotation not in found:
            found.append(annotation)
            enter(annotation)

    def enter(section: type[BaseModel]) -> None:
        for field in section.model_fields.values():
            visit(field.annotation)
        for one in _list_extended(section):
            visit(one)

    for top in tops:
        enter(top)
    return found


def _list_extended(section: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the sections whose settings a section has, too."""
    return [one for one in section.__bases__ if _is_section(one) and one.model_fields]


def _list_inner(annotation: Any) -> list[type[BaseModel]]:
    if _is_section(annotation):
        return [annotation]
    return [one for part in get_args(annotation) for one in _list_inner(part)]


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
