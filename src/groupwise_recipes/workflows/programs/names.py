"""The names of a program: none is taken, each one is known, modules are used as they may be."""

import ast
from collections.abc import Iterable, Set

from groupwise.core import suggest_name
from groupwise_recipes.workflows.programs.language import (
    BUILTINS,
    MODULES,
    PRELUDE,
    list_module_names,
)
from groupwise_recipes.workflows.programs.nodes import Placed, get_line, walk
from groupwise_recipes.workflows.programs.reasons import RefusedError
from groupwise_recipes.workflows.programs.scopes import list_bindings


def check_names(tree: ast.Module, operators: Set[str]) -> None:
    """Refuse names that are taken, private or unknown, and what modules do not have."""
    nodes = list(walk(tree))
    for placed in nodes:
        if isinstance(placed.node, ast.Import | ast.ImportFrom):
            _check_import(placed.node)
    modules = _find_modules(nodes)
    _check_bindings(nodes, operators)
    own = {name for placed in nodes for name in list_bindings(placed.node)} - {"workflow"}
    for placed in nodes:
        if isinstance(placed.node, ast.Name):
            _check_known(placed, placed.node, own, operators)
            if placed.node.id in modules:
                _check_module(placed, modules[placed.node.id])


def _check_import(node: ast.Import | ast.ImportFrom) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name not in MODULES or (alias.name == "asyncio" and alias.asname):
                raise RefusedError("import", node.lineno, _explain_module(alias.name))
        return
    module = "." * node.level + (node.module or "")
    if module not in MODULES or module == "asyncio":
        raise RefusedError("import", node.lineno, _explain_module(module))
    for alias in node.names:
        if alias.name not in list_module_names(module):
            raise RefusedError("import", node.lineno, f"{module!r} has no {alias.name!r} here")


def _explain_module(name: str) -> str:
    if name == "asyncio":
        return "write `import asyncio` and `await asyncio.gather(...)`"
    return f"{name!r} may not be imported (allowed: {', '.join(MODULES)})"


def _find_modules(nodes: Iterable[Placed]) -> dict[str, str]:
    """Return the names that a program gives to modules."""
    imports = (placed.node for placed in nodes if isinstance(placed.node, ast.Import))
    return {alias.asname or alias.name: alias.name for node in imports for alias in node.names}


def _check_bindings(nodes: Iterable[Placed], operators: Set[str]) -> None:
    """A name is an operator, a module, an async function or a variable, and that everywhere."""
    given = dict.fromkeys((*operators, *PRELUDE, "workflow"), "taken")
    for placed in nodes:
        for name in list_bindings(placed.node):
            line = get_line(placed)
            if name.startswith("__"):
                raise RefusedError("private_name", line, f"{name!r} is private to Python")
            kind = _get_kind(placed)
            if given.setdefault(name, kind) != kind:
                message = f"{name!r} is taken; give this another name"
                raise RefusedError("taken_name", line, message)


def _get_kind(placed: Placed) -> str:
    node, around = placed
    if isinstance(node, ast.alias) and isinstance(around[0], ast.Import):
        return "module"
    if not isinstance(node, ast.AsyncFunctionDef):
        return "variable"
    is_workflow = node.name == "workflow" and isinstance(around[0], ast.Module)
    return "taken" if is_workflow else "async"


def _check_known(placed: Placed, node: ast.Name, own: Set[str], operators: Set[str]) -> None:
    known = own | operators
    if node.id in known or node.id in BUILTINS:
        return
    call, outside = placed.around[:2]
    is_awaited = isinstance(outside, ast.Await) and isinstance(call, ast.Call) and call.func is node
    reason = "unknown_operator" if is_awaited else "unknown_name"
    if node.id.startswith("__"):
        reason = "private_name"
    hint = suggest_name(node.id, sorted(operators if is_awaited else known))
    raise RefusedError(reason, node.lineno, f"there is no {node.id!r}{hint}")


def _check_module(placed: Placed, module: str) -> None:
    node, outside = placed.node, placed.around[0]
    if isinstance(outside, ast.alias) or not isinstance(node, ast.Name):
        return
    if not isinstance(outside, ast.Attribute):
        raise RefusedError("import", node.lineno, f"the module {node.id!r} is no value")
    if outside.attr not in list_module_names(module):
        raise RefusedError("import", node.lineno, f"{module!r} has no {outside.attr!r} here")
