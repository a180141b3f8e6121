"""The nodes of a program's tree, each with those around it."""

import ast
from collections.abc import Iterator
from typing import NamedTuple


class Placed(NamedTuple):
    """A node, and the nodes around it from the innermost; never empty but for the module."""

    node: ast.AST
    around: tuple[ast.AST, ...]


def walk(tree: ast.AST) -> Iterator[Placed]:
    """Yield every node in the order of the text."""
    waiting = [Placed(tree, ())]
    while waiting:
        placed = waiting.pop()
        yield placed
        around = (placed.node, *placed.around)
        children = list(ast.iter_child_nodes(placed.node))
        waiting.extend(Placed(child, around) for child in reversed(children))


def get_line(placed: Placed) -> int:
    """Return the line of a node, or of the nearest one around it that has one."""
    nodes = (placed.node, *placed.around)
    return next((line for node in nodes if (line := getattr(node, "lineno", 0))), 0)
