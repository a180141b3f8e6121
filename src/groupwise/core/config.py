"""Configuration: a YAML file, what it includes, and ``--set a.b=value``, checked as a whole.

Config classes stand beside the code they configure. All problems are reported at once, each
with its file, its key, what was given, what is allowed and the nearest known name.
"""

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from groupwise.core.config_files import find_layer, join_layers, read_layers
from groupwise.core.errors import ConfigError
from groupwise.core.hints import find_nearest, is_called
from groupwise.core.usable import find_unusable
from groupwise.core.yaml_loader import parse_yaml

C = TypeVar("C", bound="Config")

_QUOTE = "'"
_MAX_LEVELS = 64
_MAX_PROBLEMS = 50


class Config(BaseModel):
    """Base of all configs: frozen; unknown keys, and values that no run can use, are errors.

    A number may be larger than others only where its field says how large. ``retired`` names
    settings that are gone, with values that changed no result: finished runs still say them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _drop_retired(cls, values: Any) -> Any:
        if not (cls.retired and isinstance(values, Mapping)):
            return values
        given = cast("Mapping[str, Any]", values)
        return {key: one for key, one in given.items() if one not in cls.retired.get(key, ())}

    @field_validator("*")
    @classmethod
    def _refuse_unusable(cls, value: Any, info: ValidationInfo) -> Any:
        marks = cls.model_fields[str(info.field_name)].metadata
        has_limit = any(hasattr(mark, "le") or hasattr(mark, "lt") for mark in marks)
        problem = find_unusable(value, may_be_huge=has_limit)
        if problem is not None:
            raise ValueError(problem)
        return value


def load_config(
    config_type: type[C], source: Path | Mapping[str, Any], *, overrides: Sequence[str] = ()
) -> C:
    """Read a config and apply ``key.path=value`` overrides (values are YAML).

    Validators find the file's folder, which paths may be relative to, as ``context["folder"]``;
    ``"was_read"``: what is read may be somebody else's; and the overridden keys as ``"set"``.

    Raises:
        ConfigError: listing every problem of the file and the overrides.
    """
    is_file = isinstance(source, Path)
    layers = read_layers(source) if is_file else [(Path("config"), _copy(source))]
    values = join_layers(layers)
    for override in overrides:
        _apply_override(values, override)
    keys = [override.partition("=")[0].strip() for override in overrides]
    context: dict[str, Any] = {"was_read": "yes", "set": keys}
    context |= {"folder": str(source.parent)} if is_file else {}
    try:
        return config_type.model_validate(values, context=context)
    except ValidationError as error:
        # A default that rests on another setting is not the fault where that one is wrong.
        found = [one for one in error.errors() if one["type"] != "default_factory_not_called"]
        lines = [
            f"{find_layer(layers, one['loc'])}: {_describe_problem(one, config_type)}"
            for one in found[:_MAX_PROBLEMS]
        ]
        if len(found) > _MAX_PROBLEMS:
            lines.append("...")
        count = f"{len(found)} problem(s) in the configuration:"
        raise ConfigError("\n  ".join([count, *lines])) from error


def dump_config(config: Config) -> dict[str, Any]:
    """Return the resolved config as JSON values, defaults included."""
    return config.model_dump(mode="json")


def flatten_settings(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested values by dotted key, behind ``prefix``; empty sections stay as they are."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            section = cast("Mapping[str, Any]", value)
            yield from flatten_settings(section, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _copy(source: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _copy(value) if isinstance(value, Mapping) else value  # pyright: ignore
        for key, value in source.items()
    }


def _apply_override(values: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names) or len(names) > _MAX_LEVELS:
        got = reprlib.repr(override)
        raise ConfigError("cannot apply --set", got=got, expected="key.path=value")
    for name in names[:-1]:
        inner = values.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"cannot apply --set {override}", got=f"a value at {name}", expected="a section"
            )
        values = inner  # pyright: ignore[reportUnknownVariableType]
    try:
        values[names[-1]] = parse_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"cannot apply --set {key}", got=reprlib.repr(text), expected="a YAML value"
        ) from error


def _describe_problem(detail: ErrorDetails, config_type: type[Config]) -> str:
    key, _ = _follow(detail["loc"], config_type)
    given, context = detail["input"], detail.get("ctx", {})
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown key{_suggest_name(detail['loc'], config_type)}"
    if detail["type"] == "missing":
        return f"{key}: missing"
    if detail["type"] == "union_tag_not_found":
        return f"{key}.{context['discriminator'].strip(_QUOTE)}: missing"
    if detail["type"] == "union_tag_invalid":
        kinds = [kind.strip(_QUOTE) for kind in context["expected_tags"].split(", ")]
        near = find_nearest(context["tag"], kinds)
        hint = f"; did you mean {near!r}?" if near else ""
        name = context["discriminator"].strip(_QUOTE)
        return f"{key}.{name}: there is no {context['tag']!r}{hint} (allowed: {', '.join(kinds)})"
    message = detail["msg"].removeprefix("Value error, ")
    if isinstance(given, dict | list) and detail["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key}: {message}; got {_show(given)}"


def _show(value: Any) -> str:
    """Return what was given, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _suggest_name(location: tuple[int | str, ...], config_type: type[Config]) -> str:
    name = str(location[-1])
    _, owner = _follow(location[:-1], config_type)
    allowed = sorted(owner.model_fields) if owner else []
    near = find_nearest(name, allowed)
    meant = [near] if near else _find_elsewhere(name, config_type)
    hint = f"; did you mean {' or '.join(map(repr, meant))}?" if meant else ""
    return f"{hint} (allowed: {', '.join(allowed)})" if allowed else hint


def _find_elsewhere(name: str, config_type: type[Config], prefix: str = "") -> list[str]:
    """Return the paths of the settings of all sections that are called so."""
    found: list[str] = []
    for field, info in config_type.model_fields.items():
        if is_called(field, name):
            found.append(f"{prefix}{field}")
        for section in _list_sections(info.annotation):
            found += _find_elsewhere(name, section, f"{prefix}{field}.")
    return list(dict.fromkeys(found))


def _follow(
    location: tuple[int | str, ...], config_type: type[Config]
) -> tuple[str, type[Config] | None]:
    """Return the key of a place and the section that it is, if it is one.

    Where a section is of one of several kinds, its kind is a part of the location and not of the
    key. Of sections by name, the name is a part of both.
    """
    keys: list[str] = []
    is_named = False
    section: type[Config] | None = config_type
    kinds: dict[str, type[Config]] = {}
    for part in map(str, location):
        if part in kinds:
            section, kinds = kinds[part], {}
            continue
        keys.append(part)
        if is_named:
            is_named = False
            continue
        field = section.model_fields.get(part) if section else None
        sections = _list_sections(field.annotation) if field else []
        section = sections[0] if sections else None
        is_named = field is not None and get_origin(field.annotation) is Mapping
        kinds = {s.model_fields["kind"].default: s for s in sections if "kind" in s.model_fields}
    return ".".join(keys), section


def _list_sections(annotation: Any) -> list[type[Config]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return [annotation]
    return [section for part in get_args(annotation) for section in _list_sections(part)]
