"""What a program does, whatever its comments say and its variables are called."""

import ast
from collections.abc import Iterator
from itertools import count

from groupwise.core import parse_python
from groupwise_recipes.workflows.programs.nodes import walk


def describe_shape(source: str) -> str:
    """Return a program without comments, its variables named in the order in which they come.

    What is returned does the same as the program, so programs of one shape do the same. Names that
    are bound by more than assignments and loops (parameters, functions, ...) stay.
    """
    tree = parse_python(source)
    names = [one.node for one in walk(tree) if isinstance(one.node, ast.Name)]
    stored = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    variables = stored - {name for node in ast.walk(tree) for name in _list_other_names(node)}
    taken = {name.id for name in names} - variables
    free = (name for n in count(1) if (name := f"v{n}") not in taken)
    renamed = {name: next(free) for name in dict.fromkeys(n.id for n in names) if name in variables}
    for name in names:
        name.id = renamed.get(name.id, name.id)
    return ast.unparse(tree)


def _list_other_names(node: ast.AST) -> Iterator[str]:
    """Yield names that a node binds as a text or a list of texts, and not by a ``Name``."""
    if isinstance(node, ast.Name | ast.Constant | ast.Attribute | ast.keyword):
        return
    for _, value in ast.iter_fields(node):
        yield from (
            one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)
        )
