"""YAML as people expect it: ``on`` is a word, ``1e-5`` is a number, a key stands once.

PyYAML follows YAML 1.1, where ``on``, ``off``, ``yes`` and ``no`` are booleans and ``1e-5`` is
a string; the scalars here follow the YAML 1.2 core schema.
"""

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """Safe loader with YAML 1.2 scalars and no repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                mark = key.start_mark
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} appears twice", mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_BOOL = r"^(?:true|false|True|False|TRUE|FALSE)$"
_INT = r"^[-+]?(?:0|[1-9][0-9]*)$"
_FLOAT = (
    r"^(?:[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
    r"|[-+]?\.inf|\.nan)$"
)
_SCALARS = [
    ("tag:yaml.org,2002:bool", re.compile(_BOOL), "tTfF"),
    ("tag:yaml.org,2002:int", re.compile(_INT), "-+0123456789"),
    ("tag:yaml.org,2002:float", re.compile(_FLOAT), "-+.0123456789"),
]


def _build_resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return PyYAML's table (first character to rules) with the scalars of YAML 1.2."""
    replaced = {tag for tag, _, _ in _SCALARS}
    table = {
        first: [rule for rule in rules if rule[0] not in replaced]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for tag, pattern, firsts in _SCALARS:
        for first in firsts:
            table.setdefault(first, []).append((tag, pattern))
    return table


_Loader.yaml_implicit_resolvers = _build_resolvers()


def parse_yaml(text: str) -> Any:
    """Parse one YAML document into plain Python values.

    Raises:
        yaml.YAMLError: if the text is not YAML or repeats a key.
    """
    return yaml.load(text, Loader=_Loader)
