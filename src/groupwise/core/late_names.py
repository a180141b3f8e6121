"""Packages whose public names are imported when they are first asked for.

Mistakes of a config are reported before torch is needed, which takes seconds to import.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def import_late(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, as its stub lists them.

    The stub is the ``.pyi`` file beside ``__init__.py``: ``from module import name`` lines, which
    type checkers read, too. A public name must not be that of a module of the package.

    Source: PEP 562.

    Args:
        package: its ``__name__``.
        file: its ``__file__``.
    """
    tree = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted(homes), sorted(homes)
