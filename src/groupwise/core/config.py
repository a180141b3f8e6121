"""Configuration: YAML files, what they include, and ``--set a.b=value``, checked as a whole.

Config classes stand beside the code they configure. All problems are reported at once, each
with its file, its key, what was given, what is allowed and the nearest known name.

``include: [parts/judge.yaml]`` names files by their paths from the file that includes them. They
must be in its folder or below, and each is included once. Sections are joined key by key; of
several values of one key the last included one counts, and the file's own before all.

YAML is what people expect: the core schema of YAML 1.2, where ``on`` is a word, ``1e-5`` is a
number and a date is a text; a key stands once. PyYAML follows YAML 1.1 in all of these, so that
only its parser is used. Tags, and what is nested deeply or large once its aliases are written out,
are refused.
"""

import difflib
import math
import re
import reprlib
from collections import Counter
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

from groupwise.core.errors import ConfigError
from groupwise.core.files import is_below, read_once

C = TypeVar("C", bound="Config")

_MAX_BYTES = 4 * 2**20
_MAX_FILES = 8
_MAX_LEVELS = 64
_MAX_VALUES = 200_000
_MAX_PROBLEMS = 50
_MAX_WHOLE = 10**9
_MAX_NUMBER = 10**12

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.inf)|\.nan"
)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", "")),
}
_Layer = tuple[Path, dict[str, Any]]  # a file with its own keys and values


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
        retired: dict[str, tuple[Any, ...]] = {}
        for kind in reversed(cls.__mro__):
            retired |= vars(kind).get("retired", {})
        given = cast("Mapping[str, Any]", values)
        return {key: one for key, one in given.items() if one not in retired.get(key, ())}

    @field_validator("*")
    @classmethod
    def _refuse_unusable(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what no run can use, also deep inside a value."""
        marks = cls.model_fields[str(info.field_name)].metadata
        has_limit = any(hasattr(mark, "le") or hasattr(mark, "lt") for mark in marks)
        inner: list[Any] = [value]
        for one in inner:  # which grows
            if isinstance(one, Mapping):
                inner += [*one, *one.values()]
            elif isinstance(one, list | tuple | Set):
                inner += one
            elif isinstance(one, int | float) and not isinstance(one, bool):
                if isinstance(one, float) and not math.isfinite(one):
                    raise ValueError("a number must be finite")
                limit = _MAX_WHOLE if isinstance(one, int) else _MAX_NUMBER
                if abs(one) > limit and not has_limit:
                    raise ValueError(f"a number must not be beyond {limit:,}")
            elif isinstance(one, str | PurePath):
                if "\0" in str(one):
                    raise ValueError("a text must not hold a NUL")
                try:
                    str(one).encode()
                except UnicodeEncodeError as error:
                    what = "a text must not hold half of a surrogate pair"
                    raise ValueError(what) from error
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
    layers = _read_layers(source) if is_file else [(Path("config"), dict(source))]
    values = _join(layers)
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
            f"{_find_layer(layers, one['loc'])}: {_describe_problem(one, config_type)}"
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
    """Return key, problem and what was given; of an unknown name, which may be meant."""
    key, _ = _follow(detail["loc"], config_type)
    given, context = detail["input"], detail.get("ctx", {})
    if detail["type"] == "missing":
        return f"{key}: missing"
    if detail["type"].startswith("union_tag"):
        name = ".".join([key, context["discriminator"].strip("'")])
        if detail["type"] == "union_tag_not_found":
            return f"{name}: missing"
        kinds = [kind.strip("'") for kind in context["expected_tags"].split(", ")]
        hint = suggest_name(context["tag"], kinds)
        return f"{name}: there is no {context['tag']!r}{hint} (allowed: {', '.join(kinds)})"
    if detail["type"] == "extra_forbidden":
        name = str(detail["loc"][-1])
        _, owner = _follow(detail["loc"][:-1], config_type)
        allowed = sorted(owner.model_fields) if owner else []
        near = find_nearest(name, allowed)
        # Else the settings of all sections that are called so.
        paths = ((path, path.rpartition(".")[2]) for path, _ in _walk(config_type))
        meant = [near] if near else [path for path, own in paths if _is_called(own, name)]
        hint = f"; did you mean {' or '.join(map(repr, dict.fromkeys(meant)))}?" if meant else ""
        known = f" (allowed: {', '.join(allowed)})" if allowed else ""
        return f"{key}: unknown key{hint}{known}"
    message = detail["msg"].removeprefix("Value error, ")
    if isinstance(given, dict | list) and detail["type"] == "value_error":
        return f"{key}: {message}" if key else message
    shown = repr(detail["input"])
    return f"{key}: {message}; got {shown if len(shown) <= 200 else f'{shown[:200]}...'}"


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
    lines = Path(__file__).with_name("other_names.txt").read_text(encoding="utf-8").splitlines()
    parts = (line.partition(":") for line in lines)
    return {ours: theirs.split() for ours, _, theirs in parts}


def _is_called(setting: str, name: str) -> bool:
    return name == setting or name in read_other_names().get(setting, ())


def find_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None if none is like it.

    A setting is also found by what other trainers and servers call it.
    """
    names = list(known)
    meant = [one for one in names if _is_called(one, name)]
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


def parse_yaml(text: str) -> Any:
    """Parse one YAML document into plain Python values.

    Raises:
        yaml.YAMLError: if the text is not YAML, repeats a key, has a tag, is nested too deeply or
            too large.
    """
    untyped: Any = yaml
    around = (yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)
    try:
        events = (
            event
            for event in untyped.parse(text, Loader=yaml.SafeLoader)
            if not isinstance(event, around)
        )
        first = next(events)
        is_empty = isinstance(first, yaml.StreamEndEvent)
        value = None if is_empty else _make(first, events, {}, Counter(), level=1)
        if not is_empty and not isinstance(another := next(events), yaml.StreamEndEvent):
            raise _refuse("there is more than one document", another)
    except (ValueError, OverflowError) as error:  # "\UFFFFFFFF", %YAML 1.999…
        raise yaml.YAMLError(f"a code is out of range: {error}") from error
    waiting, num_values = [(value, 1)], 0
    while waiting:  # aliases make it deeper and larger than the text is
        one, level = waiting.pop()
        num_values += 1
        if level > _MAX_LEVELS:
            raise _refuse(f"more than {_MAX_LEVELS} levels", first)
        if num_values > _MAX_VALUES:
            raise _refuse(f"more than {_MAX_VALUES} values, aliases written out", first)
        if isinstance(one, dict):
            waiting += [(item, level + 1) for item in cast("dict[Any, Any]", one).values()]
        elif isinstance(one, list):
            waiting += [(item, level + 1) for item in cast("list[Any]", one)]
    return value


def _make(
    event: Any, events: Iterator[Any], anchored: dict[str, Any], copied: Counter[str], *, level: int
) -> Any:
    """Return the value that begins with an event.

    ``anchored`` are those with a name so far; ``copied`` counts what merges have copied of them.
    """
    if level > _MAX_LEVELS:
        raise _refuse(f"more than {_MAX_LEVELS} levels", event)
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in anchored:
            raise _refuse(f"there is no whole {event.anchor!r} above", event)
        return anchored[event.anchor]
    if event.tag is not None:
        raise _refuse(f"a configuration has no tags such as {event.tag!r}", event)
    value: Any
    if isinstance(event, yaml.ScalarEvent):
        value = _read_plain(event.value) if event.style is None else event.value
    elif isinstance(event, yaml.SequenceStartEvent):
        value = []
        while not isinstance(inner := next(events), yaml.SequenceEndEvent):
            value.append(_make(inner, events, anchored, copied, level=level + 1))
    else:
        own, merged, seen = dict[Any, Any](), dict[Any, Any](), set[str]()
        while not isinstance(key := next(events), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                raise _refuse("a key is a list or a section", key)
            if key.value in seen:
                raise _refuse(f"the key {key.value!r} appears twice", key)
            seen.add(key.value)
            name = _make(key, events, anchored, copied, level=level + 1)
            inner = _make(next(events), events, anchored, copied, level=level + 1)
            if (key.value, key.style) != ("<<", None):
                own[name] = inner
                continue
            for one in reversed(cast("list[Any]", inner) if isinstance(inner, list) else [inner]):
                if not isinstance(one, dict):
                    raise _refuse("what is merged is no section", key)
                copied["merged"] += len(cast("dict[Any, Any]", one))
                if copied["merged"] > _MAX_VALUES:
                    what = f"more than {_MAX_VALUES} values, aliases written out"
                    raise _refuse(what, key)
                merged |= one
        value = merged | own
    if event.anchor is not None:
        anchored[event.anchor] = value
    return value


def _read_plain(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(re.sub(r"\.(?=inf|nan)", "", text)) if _FLOAT.fullmatch(text) else text


def _refuse(problem: str, event: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def read_config(path: Path) -> dict[str, Any]:
    """Return the keys and values of a config file as they are written, included ones among them.

    Raises:
        ConfigError: if a file cannot be read, has no keys or must not be included.
    """
    return _join(_read_layers(path))


def _read_layers(path: Path, *, seen: Sequence[Path] = ()) -> list[_Layer]:
    """Return a config file behind those that it includes, in the order in which they count."""
    values, layers = _read_file(path), list[_Layer]()
    given: Any = values.pop("include", [])
    got = repr(given)[:200]
    names = cast("list[Any]", given)
    if not isinstance(given, list) or not all(one and isinstance(one, str) for one in names):
        raise ConfigError(f"{path}: include is wrong", got=got, expected="a list of files")
    for name in names:
        file = path.parent / name
        if not is_below(file, path.parent):
            raise ConfigError(f"{path}: {file} is outside the folder {path.parent}")
        if not file.is_file():
            raise ConfigError(f"{path}: there is no file {file}")
        known = [*seen, path, *(one for one, _ in layers)]
        if any(file.samefile(one) for one in known):
            raise ConfigError(f"{path}: {file} is included twice, or includes itself")
        if len(known) > _MAX_FILES:
            raise ConfigError(f"{path}: more than {_MAX_FILES} files include one another")
        layers += _read_layers(file, seen=known)
    return [*layers, (path, values)]


def _read_file(path: Path) -> dict[str, Any]:
    try:
        if path.is_file() and path.stat().st_size <= _MAX_BYTES:
            found = read_once(path)
        else:  # a device, say, which has no size
            with path.open("rb") as stream:
                found = stream.read(_MAX_BYTES + 1)
        if len(found) > _MAX_BYTES:
            raise ConfigError(
                f"{path} is no configuration", expected=f"at most {_MAX_BYTES // 2**20} MiB"
            )
        value = parse_yaml(found.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path} ({error})") from error
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid YAML ({where})") from error
    if not isinstance(value, dict):
        raise ConfigError(
            f"{path} is not a configuration", got=type(value).__name__, expected="keys and values"
        )
    return cast("dict[str, Any]", value)


def _join(layers: Sequence[_Layer]) -> dict[str, Any]:
    """Return a copy of the keys and values of all layers, a later one's before an earlier one's."""
    joined: dict[str, Any] = {}
    for _, values in layers:
        _merge(joined, values)
    return joined


def _merge(joined: dict[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in later.items():
        if isinstance(value, Mapping):
            known = joined.get(key)
            above = cast("dict[str, Any]", known if isinstance(known, dict) else {})
            value = _merge(above, cast("Mapping[str, Any]", value))
        joined[key] = value
    return joined


def _find_layer(layers: Sequence[_Layer], location: Sequence[int | str]) -> Path:
    """Return the file that says the most of a place in the joined values, the last of several."""
    found, most = layers[-1][0], 0
    for path, values in layers:
        depth, inner = 0, cast("object", values)
        for part in location:
            section = cast("dict[object, object]", inner) if isinstance(inner, dict) else {}
            if part not in section:
                break
            inner, depth = section[part], depth + 1
        if depth and depth >= most:
            found, most = path, depth
    return found
