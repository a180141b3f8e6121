"""A page for each public package, which mkdocstrings fills from its docstrings."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules, walk_packages

import groupwise

NOT_FOR_IMPORT = ("cli",)
"""Packages that are used from a shell."""


def make_api_pages() -> dict[str, str]:
    """Return the texts of the pages by place."""
    return {f"api/{name}.md": _write_page(f"groupwise.{name}") for name in _list_packages()}


def _write_page(package: str) -> str:
    """A package without ``__all__`` is public by its modules."""
    found = import_module(package)
    if hasattr(found, "__all__"):
        return f"::: {package}\n"
    names = [m.name for m in walk_packages(found.__path__, f"{package}.") if not m.ispkg]
    return "".join(f"::: {name}\n\n" for name in [package, *names])


def describe_packages() -> str:
    """Return a list of the packages, each with what it is and a link to its source."""
    names = _list_packages()
    return "\n".join(
        f"- [`groupwise.{name}`](../../src/groupwise/{name}): {_summarize(name)}" for name in names
    )


def _list_packages() -> list[str]:
    modules = iter_modules(groupwise.__path__)
    return [m.name for m in modules if m.ispkg and m.name not in NOT_FOR_IMPORT]


def _summarize(name: str) -> str:
    spec = find_spec(f"groupwise.{name}")
    source = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
