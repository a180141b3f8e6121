"""The form of a program: its size, its top level, and what it may use of Python."""

import ast
from collections.abc import Callable

from groupwise_recipes.workflows.programs.language import (
    PARAMETERS,
    describe,
    is_allowed,
    is_private,
)
from groupwise_recipes.workflows.programs.nodes import Placed, get_line, walk
from groupwise_recipes.workflows.programs.reasons import MAX_BLOCKS, MAX_DEPTH, RefusedError
from groupwise_recipes.workflows.programs.scopes import (
    Function,
    list_annotations,
    list_arguments,
    list_defaults,
)

_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)
_ANNOTATION = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List, ast.BinOp),
    *(ast.BitOr, ast.expr_context),
)
_MAX_FINALS = 2  # one in another: Python writes the inner one out for every way into it


def check_size(tree: ast.Module) -> None:
    """Refuse a program that is nested too deeply for the other checks."""
    waiting: list[tuple[ast.AST, int, int, int, int]] = [(tree, 0, 0, 0, 0)]
    while waiting:
        node, line, depth, blocks, finals = waiting.pop()
        line = getattr(node, "lineno", line)
        if depth > MAX_DEPTH or blocks > MAX_BLOCKS or finals > _MAX_FINALS:
            raise RefusedError("too_nested", line)
        last = node.finalbody if isinstance(node, ast.Try) else []
        for child in ast.iter_child_nodes(node):
            is_block = isinstance(child, _BLOCKS) and not _is_elif(node, child)
            is_last = any(child is statement for statement in last)
            waiting.append((child, line, depth + 1, blocks + is_block, finals + is_last))


def check_top_level(tree: ast.Module) -> None:
    """Refuse a program that is not one ``workflow`` beside imports, constants and functions."""
    for node in tree.body:
        if not isinstance(node, _TOP_LEVEL) and not _is_constant(node):
            raise RefusedError("top_level", node.lineno)
    functions = (node for node in tree.body if isinstance(node, ast.AsyncFunctionDef))
    found = [node for node in functions if node.name == "workflow"]
    if len(found) != 1:
        raise RefusedError("no_workflow", found[-1].lineno if found else 0)
    arguments = found[0].args
    names = tuple(arg.arg for arg in arguments.args)
    is_plain = len(names) == len(list_arguments(arguments)) and not list_defaults(arguments)
    if not is_plain or names not in [PARAMETERS[:count] for count in (1, 2, 3)]:
        raise RefusedError("parameters", found[0].lineno, f"got ({ast.unparse(arguments)})")


def check_language(tree: ast.Module) -> None:
    """Refuse what a program may not use of Python."""
    for placed in walk(tree):
        if not is_allowed(placed.node):
            raise _refuse(placed, describe(placed.node))
        for kind, check in _CHECKS:
            if isinstance(placed.node, kind):
                check(placed)


def _check_function(placed: Placed) -> None:
    node = placed.node
    assert isinstance(node, Function)
    if getattr(node, "decorator_list", []) or getattr(node, "type_params", []):
        raise _refuse(placed, "a decorator or type parameter")
    if not all(map(_is_literal, list_defaults(node.args))):
        raise _refuse(placed, "a default value that is computed")
    parts = (part for found in list_annotations(node) for part in ast.walk(found))
    if not all(isinstance(part, _ANNOTATION) for part in parts):
        raise _refuse(placed, "an annotation that is computed")


def _check_attribute(placed: Placed) -> None:
    node = placed.node
    assert isinstance(node, ast.Attribute)
    if is_private(node.attr):
        raise RefusedError("private_name", node.lineno, f"`.{node.attr}` is private to Python")
    if not isinstance(node.ctx, ast.Load):
        raise _refuse(placed, "assigning to an attribute")


def _check_name(placed: Placed) -> None:
    """``getattr`` is for attributes that could be written with a dot."""
    node, call = placed.node, placed.around[0]
    assert isinstance(node, ast.Name)
    if node.id not in ("getattr", "hasattr"):
        return
    args = call.args if isinstance(call, ast.Call) and call.func is node else []
    name = args[1].value if len(args) > 1 and isinstance(args[1], ast.Constant) else None
    if not isinstance(name, str) or is_private(name):
        raise RefusedError("private_name", node.lineno, f"`{node.id}` needs a plain public name")


def _check_return(placed: Placed) -> None:
    node = placed.node
    assert isinstance(node, ast.Return)
    function = next(one for one in placed.around if isinstance(one, Function))
    if node.value is None and getattr(function, "name", "") == "workflow":
        raise RefusedError("no_answer", node.lineno, "`return` without a value")


def _check_await(placed: Placed) -> None:
    if any(isinstance(node, ast.GeneratorExp) for node in placed.around):
        raise _refuse(placed, "`await` in a generator expression; write a list")


def _refuse(placed: Placed, what: str) -> RefusedError:
    return RefusedError("not_allowed", get_line(placed), f"{what} is not allowed in a workflow")


def _is_elif(node: ast.AST, child: ast.AST) -> bool:
    return isinstance(node, ast.If) and node.orelse == [child] and isinstance(child, ast.If)


def _is_constant(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if not isinstance(node, ast.Assign):
        return False
    return all(isinstance(t, ast.Name) for t in node.targets) and _is_literal(node.value)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


_TOP_LEVEL = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom)
_CHECKS: tuple[tuple[type | tuple[type, ...], Callable[[Placed], None]], ...] = (
    ((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda), _check_function),
    (ast.Attribute, _check_attribute),
    (ast.Name, _check_name),
    (ast.Return, _check_return),
    (ast.Await, _check_await),
)
