"""YAML as people expect it: ``on`` is a word, ``1e-5`` is a number, a key stands once.

PyYAML follows YAML 1.1, where ``on``, ``off``, ``yes`` and ``no`` are booleans, ``1e-5`` is
a string and ``2020-01-01`` a date; the scalars here are those of the YAML 1.2 core schema. What is
nested deeply, or large once its aliases are written out, is refused.
"""

import re
from itertools import chain
from typing import Any, ClassVar

import yaml

_MAX_LEVELS = 64
_MAX_VALUES = 200_000
_MAX_DIGITS = 400

_BOOL = r"^(?:true|false|True|False|TRUE|FALSE)$"
_INT = r"^[-+]?(?:0|[1-9][0-9]*)$"
_FLOAT = (
    r"^(?:[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
    r"|[-+]?\.inf|\.nan)$"
)
_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    f"{_TAG}bool": (re.compile(_BOOL), "tTfF"),
    f"{_TAG}int": (re.compile(_INT), "-+0123456789"),
    f"{_TAG}float": (re.compile(_FLOAT), "-+.0123456789"),
    f"{_TAG}null": (re.compile(r"^(?:~|null|Null|NULL|)$"), ("~", "n", "N", "")),
    f"{_TAG}merge": (re.compile(r"^<<$"), "<"),
}
"""What each kind of scalar looks like, and the characters that it begins with."""
_KINDS = ("bool", "int", "float", "null", "str", "seq", "map")
"""What is made into values; a merge is made into nothing of its own."""


class _Loader(yaml.SafeLoader):
    """Safe loader with YAML 1.2 scalars, no repeated keys and a bound on what it makes."""

    yaml_constructors: ClassVar = {
        tag: yaml.SafeLoader.yaml_constructors[tag]
        for tag in (*(f"{_TAG}{kind}" for kind in _KINDS), None)
    }
    level = 0

    def compose_document(self) -> yaml.Node | None:
        root = super().compose_document()
        assert root is not None
        _check_size(root)
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


def _check_size(root: yaml.Node) -> None:
    """Refuse what is, with its aliases written out, nested too deeply or too large."""
    waiting, num_values = [(root, 1)], 0
    while waiting:
        node, level = waiting.pop()
        num_values += 1
        if level > _MAX_LEVELS:
            raise _refuse(f"more than {_MAX_LEVELS} levels", node)
        if num_values > _MAX_VALUES:
            raise _refuse(f"more than {_MAX_VALUES} values, aliases written out", node)
        waiting += [(inner, level + 1) for inner in _list_inner(node)]


def _list_inner(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        return list(chain.from_iterable(node.value))
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _refuse("a key is a list or a section", key)
        if key.value in seen:
            raise _refuse(f"the key {key.value!r} appears twice", key)
        seen.add(key.value)


def _refuse(problem: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _build_resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return PyYAML's table (first character to rules) with the scalars of YAML 1.2."""
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, (pattern, firsts) in _SCALARS.items():
        for first in firsts:
            table.setdefault(first, []).append((tag, pattern))
    return table


_Loader.yaml_implicit_resolvers = _build_resolvers()


def parse_yaml(text: str) -> Any:
    """Parse one YAML document into plain Python values.

    Raises:
        yaml.YAMLError: if the text is not YAML, repeats a key, is nested too deeply or too large.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except (ValueError, OverflowError) as error:  # "\UFFFFFFFF", %YAML 1.999…
        raise yaml.YAMLError(f"a code is out of range: {error}") from error


def find_line(text: str, key: str) -> int:
    """Return the line, from 1, where a document that parses has a key of its outermost level."""
    untyped: Any = yaml
    root: Any = untyped.compose(text, Loader=_Loader)
    lines = (node.start_mark.line + 1 for node, _ in root.value if node.value == key)
    return next(lines, 1)  # a merge may bring it
