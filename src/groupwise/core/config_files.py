"""Config files as they are written: one YAML file, and those that it includes.

``include: [parts/judge.yaml]`` names files by their paths from the file that includes them. They
must be in its folder or below, and each is included once. Sections are joined key by key; of
several values of one key the last included one counts, and the file's own before all.

YAML is what people expect: ``on`` is a word, ``1e-5`` is a number, a key stands once. PyYAML
follows YAML 1.1, where ``on``, ``off``, ``yes`` and ``no`` are booleans, ``1e-5`` is a string and
``2020-01-01`` a date; the scalars here are those of the YAML 1.2 core schema. What is nested
deeply, or large once its aliases are written out, is refused.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, cast

import yaml

from groupwise.core.errors import ConfigError
from groupwise.core.files import is_below, read_once

_MAX_BYTES = 4 * 2**20
_MAX_DEPTH = 8
_MAX_LEVELS = 64
_MAX_VALUES = 200_000
_MAX_DIGITS = 400
_INCLUDE = "include"

_TAG = "tag:yaml.org,2002:"
_FLOAT = (
    r"^(?:[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
    r"|[-+]?\.inf|\.nan)$"
)
_SCALARS = {
    f"{_TAG}bool": (re.compile(r"^(?:true|false|True|False|TRUE|FALSE)$"), "tTfF"),
    f"{_TAG}int": (re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), "-+0123456789"),
    f"{_TAG}float": (re.compile(_FLOAT), "-+.0123456789"),
    f"{_TAG}null": (re.compile(r"^(?:~|null|Null|NULL|)$"), ("~", "n", "N", "")),
    f"{_TAG}merge": (re.compile(r"^<<$"), "<"),
}
"""What each kind of scalar looks like, and the characters that it begins with."""
_KINDS = ("bool", "int", "float", "null", "str", "seq", "map")
"""What is made into values; a merge is made into nothing of its own."""

Layer = tuple[Path, dict[str, Any]]
"""A file and its own keys and values."""


class _Loader(yaml.SafeLoader):
    """Safe loader with YAML 1.2 scalars, no repeated keys and a bound on what it makes."""

    yaml_constructors: ClassVar = {
        tag: yaml.SafeLoader.yaml_constructors[tag]
        for tag in (*(f"{_TAG}{kind}" for kind in _KINDS), None)
    }
    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, (pattern, firsts) in _SCALARS.items() if first in firsts]
        for first in chain("tTfF-+.0123456789<", ("~", "n", "N", ""))
    }
    level = 0

    def compose_document(self) -> yaml.Node | None:
        """Compose it; refuse what is, with its aliases written out, too deep or too large."""
        root = super().compose_document()
        assert root is not None
        waiting, num_values = [(root, 1)], 0
        while waiting:
            node, level = waiting.pop()
            num_values += 1
            if level > _MAX_LEVELS:
                raise _refuse(f"more than {_MAX_LEVELS} levels", node)
            if num_values > _MAX_VALUES:
                raise _refuse(f"more than {_MAX_VALUES} values, aliases written out", node)
            inner: list[yaml.Node] = []
            if isinstance(node, yaml.MappingNode):
                _check_keys([key for key, _ in node.value])
                inner = list(chain.from_iterable(node.value))
            elif isinstance(node, yaml.SequenceNode):
                inner = node.value
            waiting += [(one, level + 1) for one in inner]
        return root

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.level += 1
        if self.level > _MAX_LEVELS and parent is not None:
            raise _refuse(f"more than {_MAX_LEVELS} levels", parent)
        node = super().compose_node(parent, index)
        self.level -= 1
        return node

    def construct_scalar(self, node: Any) -> Any:
        """Return the text of a scalar, which looks like what its tag says that it is."""
        text = super().construct_scalar(node)
        pattern, _ = _SCALARS.get(node.tag, (None, ""))
        if pattern is not None and not pattern.match(text):
            raise _refuse(f"{text[:80]!r} is no {node.tag.removeprefix(_TAG)}", node)
        if node.tag == f"{_TAG}int" and len(text) > _MAX_DIGITS:
            raise _refuse(f"a number of {len(text)} digits", node)
        return text


def _check_keys(keys: Sequence[yaml.Node]) -> None:
    seen: set[str] = set()
    for key in keys:
        if not isinstance(key, yaml.ScalarNode):
            raise _refuse("a key is a list or a section", key)
        if key.value in seen:
            raise _refuse(f"the key {key.value!r} appears twice", key)
        seen.add(key.value)


def _refuse(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def parse_yaml(text: str) -> Any:
    """Parse one YAML document into plain Python values.

    Raises:
        yaml.YAMLError: if the text is not YAML, repeats a key, is nested too deeply or too large.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (ValueError, OverflowError) as error:  # "\UFFFFFFFF", %YAML 1.999…
        raise yaml.YAMLError(f"a code is out of range: {error}") from error


def read_config(path: Path) -> dict[str, Any]:
    """Return the keys and values of a config file as they are written, included ones among them.

    Raises:
        ConfigError: if a file cannot be read, has no keys or must not be included.
    """
    return join_layers(read_layers(path))


def read_layers(path: Path) -> list[Layer]:
    """Return a config file behind those that it includes, in the order in which they count."""
    return _read(path, {path.resolve()}, depth=0)


def join_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the keys and values of all layers, a later one's before an earlier one's."""
    joined: dict[str, Any] = {}
    for _, values in layers:
        joined = _join(joined, values)
    return joined


def _join(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(earlier)
    for key, value in later.items():
        known = joined.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            value = _join(cast("dict[str, Any]", known), cast("dict[str, Any]", value))
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


def _read(path: Path, seen: set[Path], *, depth: int) -> list[Layer]:
    text, values = _read_file(path)
    layers: list[Layer] = []
    if _INCLUDE in values:
        untyped: Any = yaml
        pairs = untyped.compose(text, Loader=_Loader).value
        lines = (node.start_mark.line + 1 for node, _ in pairs if node.value == _INCLUDE)
        where = f"{path} line {next(lines, 1)}"  # a merge may bring it
        for name in _list_included(values.pop(_INCLUDE), where):
            file = path.parent / name
            if not is_below(file, path.parent):
                raise ConfigError(f"{where}: {file} is outside the folder {path.parent}")
            if not file.is_file():
                raise ConfigError(f"{where}: there is no file {file}")
            if file.resolve() in seen:
                raise ConfigError(f"{where}: {file} is included twice, or includes itself")
            if depth == _MAX_DEPTH:
                raise ConfigError(f"{where}: more than {_MAX_DEPTH} files include one another")
            seen.add(file.resolve())
            layers += _read(file, seen, depth=depth + 1)
    return [*layers, (path, values)]


def _read_file(path: Path) -> tuple[str, dict[str, Any]]:
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
        text = found.decode()
        value = parse_yaml(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path} ({error})") from error
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid YAML ({where})") from error
    if not isinstance(value, dict):
        raise ConfigError(
            f"{path} is not a configuration", got=type(value).__name__, expected="keys and values"
        )
    return text, cast("dict[str, Any]", value)


def _list_included(value: object, where: str) -> list[str]:
    got = repr(value)[:200]
    names = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{where}: include is wrong", got=got, expected="a list of files")
    return cast("list[str]", names)
