"""Configuration: a YAML file, what it includes, and ``--set a.b=value``, checked as a whole.

Config classes stand beside the code they configure. All problems are reported at once, each
with its file, its key, what was given, what is allowed and the nearest known name.
"""

import difflib
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args, get_origin

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

from groupwise.core.config_files import find_layer, join_layers, parse_yaml, read_layers
from groupwise.core.errors import ConfigError

C = TypeVar("C", bound="Config")

_QUOTE = "'"
_MAX_LEVELS = 64
_MAX_PROBLEMS = 50
_MAX_WHOLE = 10**9
_MAX_NUMBER = 10**12


class Config(BaseModel):
    """Base of all configs: frozen; unknown keys, and values that no run can use, are errors.

    A number may be larger than others only where its field says how large. ``retired`` names
    settings that are gone, with values that changed no result: finished runs still say them. Those
    of the classes that a section extends count, too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @model_validator(mode="before")
    @classmethod
    def _drop_retired(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        given = cast("Mapping[str, Any]", values)
        retired: dict[str, tuple[Any, ...]] = {}
        for kind in reversed(cls.__mro__):
            retired |= vars(kind).get("retired", {})
        return {key: one for key, one in given.items() if one not in retired.get(key, ())}

    @field_validator("*")
    @classmethod
    def _refuse_unusable(cls, value: Any, info: ValidationInfo) -> Any:
        marks = cls.model_fields[str(info.field_name)].metadata
        has_limit = any(hasattr(mark, "le") or hasattr(mark, "lt") for mark in marks)
        problem = _find_unusable(value, may_be_huge=has_limit)
        if problem is not None:
            raise ValueError(problem)
        return value


def _find_unusable(value: object, *, may_be_huge: bool) -> str | None:
    """Return what is wrong with a setting, or with what is in it; None if a run can use it."""
    inner: Iterable[object] = ()
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            return "a number must be finite"
        limit = _MAX_WHOLE if isinstance(value, int) else _MAX_NUMBER
        if abs(value) > limit and not may_be_huge:
            return f"a number must not be beyond {limit:,}"
    elif isinstance(value, str | PurePath):
        if "\0" in str(value):
            return "a text must not hold a NUL"
        try:
            str(value).encode()
        except UnicodeEncodeError:
            return "a text must not hold half of a surrogate pair"
    elif isinstance(value, Mapping):
        found = cast("Mapping[object, object]", value)
        inner = [*found, *found.values()]
    elif isinstance(value, list | tuple | Set):
        inner = cast("Iterable[object]", value)
    problems = (_find_unusable(one, may_be_huge=may_be_huge) for one in inner)
    return next((problem for problem in problems if problem is not None), None)


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
    layers = read_layers(source) if is_file else [(Path("config"), dict(source))]
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
        hint = suggest_name(context["tag"], kinds)
        name = context["discriminator"].strip(_QUOTE)
        return f"{key}.{name}: there is no {context['tag']!r}{hint} (allowed: {', '.join(kinds)})"
    message = detail["msg"].removeprefix("Value error, ")
    if isinstance(given, dict | list) and detail["type"] == "value_error":
        return f"{key}: {message}" if key else message
    shown = repr(detail["input"])
    return f"{key}: {message}; got {shown if len(shown) <= 200 else f'{shown[:200]}...'}"


def _suggest_name(location: tuple[int | str, ...], config_type: type[Config]) -> str:
    name = str(location[-1])
    _, owner = _follow(location[:-1], config_type)
    allowed = sorted(owner.model_fields) if owner else []
    near = find_nearest(name, allowed)
    # Else the settings of all sections that are called so.
    paths = ((path, path.rpartition(".")[2]) for path, _ in _walk(config_type))
    meant = [near] if near else [path for path, own in paths if is_called(own, name)]
    hint = f"; did you mean {' or '.join(map(repr, dict.fromkeys(meant)))}?" if meant else ""
    return f"{hint} (allowed: {', '.join(allowed)})" if allowed else hint


def _follow(
    location: tuple[int | str, ...], config_type: type[Config]
) -> tuple[str, type[BaseModel] | None]:
    """Return the key of a place and the section that it is, if it is one.

    Where a section is of one of several kinds, its kind is a part of the location and not of the
    key. Of sections by name, the name is a part of both.
    """
    keys: list[str] = []
    is_named = False
    section: type[BaseModel] | None = config_type
    kinds: dict[str, type[BaseModel]] = {}
    for part in map(str, location):
        if part in kinds:
            section, kinds = kinds[part], {}
            continue
        keys.append(part)
        if is_named:
            is_named = False
            continue
        field = section.model_fields.get(part) if section else None
        sections = [one for one, _ in _find_sections(field.annotation)] if field else []
        section = sections[0] if sections else None
        is_named = field is not None and get_origin(field.annotation) is Mapping
        kinds = {s.model_fields["kind"].default: s for s in sections if "kind" in s.model_fields}
    return ".".join(keys), section


def _find_sections(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the sections in an annotation, each with what stands between it and its fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ""
        return
    origin: Any = get_origin(annotation)
    if origin in (list, tuple, set, frozenset):
        return  # A list is one value.
    key = "*." if isinstance(origin, type) and issubclass(origin, Mapping) else ""
    for part in get_args(annotation):
        yield from ((inner, f"{key}{rest}") for inner, rest in _find_sections(part))


@dataclass(frozen=True, slots=True)
class Effect:
    """What a setting changes.

    Attributes:
        kind: ``counts``: what is trained or measured; ``budget``: that, and how much is trained;
            ``source``: where something comes from, whose content counts; ``harmless``: nothing.
        reason: why it is harmless, a clause; of a source, what its content is recorded as.
        reason_zh: the same in Chinese.
        is_place: it says where something is reached, which leaves no trace in what is made: work
            that is done is not done again for it.
    """

    kind: Literal["counts", "budget", "source", "harmless"] = "counts"
    reason: str = ""
    reason_zh: str = ""
    is_place: bool = False


_COUNTS = Effect()
BUDGET = Effect("budget")
"""Marks a field that decides how much is trained."""


def Harmless(reason: str, reason_zh: str) -> Effect:  # noqa: N802 (reads as a mark)
    """Return the mark of a field that changes no result, with the reason in both languages."""
    return Effect("harmless", reason, reason_zh)


def Place(reason: str, reason_zh: str) -> Effect:  # noqa: N802 (reads as a mark)
    """Return the mark of a harmless field for whose change no step is done again."""
    return Effect("harmless", reason, reason_zh, is_place=True)


def Source(aspect: str) -> Effect:  # noqa: N802 (reads as a mark)
    """Return the mark of a field that says where something comes from.

    ``aspect`` is what the content is recorded as: ``data``, ``base_weights``, ``items``.
    """
    return Effect("source", aspect, aspect)


@cache
def list_effects(config_type: type[BaseModel]) -> dict[str, Effect]:
    """Return the effect of every field by its path, sections and their fields alike.

    Fields of a section that may be absent or one of several are there; ``*`` stands for any key
    of a mapping of sections. A field that several sections at one place have counts, unless they
    agree.
    """
    found: dict[str, Effect] = {}
    for path, effect in _walk(config_type):
        found[path] = effect if found.get(path, effect) == effect else _COUNTS
    return found


def find_effect(effects: Mapping[str, Effect], path: str) -> Effect:
    """Return the effect of a setting, or that of the section it is in; otherwise it counts."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        for known, effect in effects.items():
            names = known.split(".")
            if len(names) == end and all(n in ("*", p) for n, p in zip(names, parts, strict=False)):
                return effect
    return _COUNTS


def _walk(
    config_type: type[BaseModel], prefix: str = "", inherited: Effect = _COUNTS
) -> Iterator[tuple[str, Effect]]:
    """Yield the path and the effect of every field, of sections and their fields alike."""
    for name, field in config_type.model_fields.items():
        own = next((one for one in field.metadata if isinstance(one, Effect)), inherited)
        yield f"{prefix}{name}", own
        for inner, key in _find_sections(field.annotation):
            yield from _walk(inner, f"{prefix}{name}.{key}", own)


@cache
def read_other_names() -> Mapping[str, Sequence[str]]:
    """Return what other trainers and servers call the settings that have a name here."""
    path = Path(__file__).with_name("other_names.yaml")
    return parse_yaml(path.read_text(encoding="utf-8"))


def is_called(setting: str, name: str) -> bool:
    """Return whether ``name`` is that of a setting, here or in other trainers and servers."""
    return name == setting or name in read_other_names().get(setting, ())


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None if none is like it.

    A setting is also found by what other trainers and servers call it.
    """
    names = list(known)
    meant = [one for one in names if is_called(one, name)]
    near = meant or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return near[0] if near else None


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'NEAREST'?``, or nothing if no known name is like it."""
    near = find_nearest(name, known)
    return f"; did you mean {near!r}?" if near else ""


def describe_unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Return ``there is no WHAT 'NAME'; did you mean 'NEAREST'? (there are: …)``."""
    names = list(known)
    there_are = ", ".join(names) or "none"
    return f"there is no {what} {name!r}{suggest_name(name, names)} (there are: {there_are})"
