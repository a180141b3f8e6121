"""Config files as they are written: one YAML file, and those that it includes.

``include: [parts/judge.yaml]`` names files by their paths from the file that includes them. They
must be in its folder or below, and each is included once. Sections are joined key by key; of
several values of one key the last included one counts, and the file's own before all.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from groupwise.core.errors import ConfigError
from groupwise.core.paths import is_below
from groupwise.core.yaml_loader import find_line, parse_yaml

_MAX_BYTES = 4 * 2**20
_MAX_DEPTH = 8
_INCLUDE = "include"

Layer = tuple[Path, dict[str, Any]]
"""A file and its own keys and values."""


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


def find_layer(layers: Sequence[Layer], location: Sequence[int | str]) -> Path:
    """Return the file that says the most of a place in the joined values, the last of several."""
    found, most = layers[-1][0], 0
    for path, values in layers:
        depth = _count_known(values, location)
        if depth and depth >= most:
            found, most = path, depth
    return found


def _read(path: Path, seen: set[Path], *, depth: int) -> list[Layer]:
    text = _read_text(path)
    values = _parse(path, text)
    layers: list[Layer] = []
    if _INCLUDE in values:
        where = f"{path} line {find_line(text, _INCLUDE)}"
        for name in _list_included(values.pop(_INCLUDE), where):
            file = path.parent / name
            _check_place(file, path.parent, seen, where)
            if depth == _MAX_DEPTH:
                raise ConfigError(f"{where}: more than {_MAX_DEPTH} files include one another")
            layers += _read(file, seen, depth=depth + 1)
    return [*layers, (path, values)]


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        value = parse_yaml(text)
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise ConfigError(f"{path} is not valid YAML ({where})") from error
    if not isinstance(value, dict):
        raise ConfigError(
            f"{path} is not a configuration", got=type(value).__name__, expected="keys and values"
        )
    return cast("dict[str, Any]", value)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            found = stream.read(_MAX_BYTES + 1)
        if len(found) > _MAX_BYTES:
            raise ConfigError(
                f"{path} is no configuration", expected=f"at most {_MAX_BYTES // 2**20} MiB"
            )
        return found.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path} ({error})") from error


def _list_included(value: object, where: str) -> list[str]:
    given = repr(value)[:200]
    names = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{where}: include is wrong", got=given, expected="a list of files")
    return cast("list[str]", names)


def _check_place(file: Path, folder: Path, seen: set[Path], where: str) -> None:
    """Refuse a file outside the folder, one that is not there, and one that is there already."""
    if not is_below(file, folder):
        raise ConfigError(f"{where}: {file} is outside the folder {folder or '.'}")
    if not file.is_file():
        raise ConfigError(f"{where}: there is no file {file}")
    if file.resolve() in seen:
        raise ConfigError(f"{where}: {file} is included twice, or includes itself")
    seen.add(file.resolve())


def _join(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(earlier)
    for key, value in later.items():
        known = joined.get(key)
        are_sections = isinstance(known, dict) and isinstance(value, dict)
        joined[key] = (
            _join(cast("dict[str, Any]", known), cast("dict[str, Any]", value))
            if are_sections
            else value
        )
    return joined


def _count_known(values: object, location: Sequence[int | str]) -> int:
    """Return how many steps of a location lead to something in the values."""
    depth = 0
    for part in location:
        section = cast("dict[object, object]", values) if isinstance(values, dict) else {}
        if part not in section:
            break
        values, depth = section[part], depth + 1
    return depth
