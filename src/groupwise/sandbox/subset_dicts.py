"""Dicts whose keys may be equal without being the same, such as 1, 1.0 and True.

CPython keeps the first of such keys and Monty the last, so that a program that could make them is
none for Monty. Whether it could is read from its source: dicts that are displays of text keys, or
of whole numbers, cannot, unless something is stored in them later.
"""

import ast
from collections.abc import Iterator, Sequence

_STORING_METHODS = frozenset({"update", "setdefault"})


def find_mixed_keys(trees: Sequence[ast.Module], *, has_functions: bool) -> str | None:
    """Return what could make equal keys that are not the same, or None.

    Args:
        trees: the sources that share their values.
        has_functions: host functions may return dicts.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    for tree in trees:
        for node in _list_values(tree):
            if _makes_any_keys(node):
                return f"keys of {type(node).__name__} at line {getattr(node, 'lineno', '?')}"
    if has_functions or _has_plain_dicts(trees):
        for node in nodes:
            if _stores_any_key(node):
                return f"a key may be stored at line {getattr(node, 'lineno', '?')}"
    return None


def _list_values(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes but annotations and the types that ``isinstance`` is given."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        skipped: list[ast.AST | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            skipped = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            skipped = [node.returns]
        elif isinstance(node, ast.Call) and _is_called(node, "isinstance"):
            skipped = list(node.args[1:])
        elif isinstance(node, ast.Call) and _is_called(node, "dict") and not _has_arguments(node):
            skipped = [node.func]
        waiting += [child for child in ast.iter_child_nodes(node) if child not in skipped]


def _makes_any_keys(node: ast.AST) -> bool:
    if isinstance(node, ast.Dict):
        return not _has_plain_keys(node)
    return isinstance(node, ast.Name) and node.id == "dict"


def _has_plain_keys(node: ast.Dict) -> bool:
    values = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
    return {type(value) for value in values} in (set(), {str}, {int})


def _has_plain_dicts(trees: Sequence[ast.Module]) -> bool:
    """Return whether there is a dict, unless it is given to a name that is never read."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    unread = {
        node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and all(isinstance(name, ast.Name) and name.id not in read for name in node.targets)
    }
    return any(
        (isinstance(node, ast.Dict) and node not in unread)
        or (isinstance(node, ast.Call) and _is_called(node, "dict"))
        or (isinstance(node, ast.arguments) and node.kwarg is not None)
        for node in nodes
    )


def _stores_any_key(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        is_text = isinstance(node.slice, ast.JoinedStr) or (
            isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
        )
        return not is_text and not isinstance(node.slice, ast.Slice)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _STORING_METHODS
    return isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.BitOr)


def _is_called(node: ast.Call, name: str) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id == name


def _has_arguments(node: ast.Call) -> bool:
    return bool(node.args or node.keywords)
