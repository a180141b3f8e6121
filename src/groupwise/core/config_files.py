"""Config files as they are written: one YAML file, and those that it includes.

``include: [parts/judge.yaml]`` names files by their paths from the file that includes them. They
must be in its folder or below, and each is included once. Sections are joined key by key; of
several values of one key the last included one counts, and the file's own before all.

YAML is what people expect: the core schema of YAML 1.2, where ``on`` is a word, ``1e-5`` is a
number and a date is a text; a key stands once. PyYAML follows YAML 1.1 in all of these, so that
only its parser is used. Tags, and what is nested deeply or large once its aliases are written out,
are refused.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from groupwise.core.errors import ConfigError
from groupwise.core.files import is_below, read_once

_MAX_BYTES = 4 * 2**20
_MAX_FILES = 8
_MAX_LEVELS = 64
_MAX_VALUES = 200_000
_TOO_MANY = f"more than {_MAX_VALUES} values, aliases written out"
_INCLUDE = "include"

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.inf)|\.nan"
)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", "")),
}

Layer = tuple[Path, dict[str, Any]]
"""A file and its own keys and values."""


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
            raise _refuse(_TOO_MANY, first)
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
                    raise _refuse(_TOO_MANY, key)
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
    return join_layers(read_layers(path))


def read_layers(path: Path, *, seen: Sequence[Path] = ()) -> list[Layer]:
    """Return a config file behind those that it includes, in the order in which they count.

    ``seen`` are files that were read before.
    """
    values, layers = _read_file(path), list[Layer]()
    given: Any = values.pop(_INCLUDE, [])
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
        layers += read_layers(file, seen=known)
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


def join_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return a copy of the keys and values of all layers, a later one's before an earlier one's."""
    joined: dict[str, Any] = {}
    for _, values in layers:
        joined = _join(joined, values)
    return joined


def _join(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(earlier)
    for key, value in later.items():
        if isinstance(value, Mapping):
            known = joined.get(key)
            above = cast("dict[str, Any]", known if isinstance(known, Mapping) else {})
            value = _join(above, cast("Mapping[str, Any]", value))
        joined[key] = value
    return joined


def find_layer(layers: Sequence[Layer], location: Sequence[int | str]) -> Path:
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
