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
                    None, None, f"the key {key.value!r} stands twice", mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [rule for rule in rules if not rule[0].endswith((":bool", ":float", ":int"))]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|false|True|False|TRUE|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
        r"|[-+]?\.inf|\.nan)$"
    ),
    list("-+.0123456789"),
)


def parse_yaml(text: str) -> Any:
    """Parse one YAML document into plain Python values.

    Raises:
        yaml.YAMLError: if the text is not YAML or repeats a key.
    """
    return yaml.load(text, Loader=_Loader)
