"""Which variable a name is: the scopes of a program."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(eq=False)
class Scope:
    """A part of a program with variables of its own.

    Attributes:
        parent: the scope around it; None for the module.
        is_comprehension: its variables are of one expression; ``:=`` assigns outside of it.
        names: its variables.
        unassigned: those of them that lose their value somewhere: ``del``, ``except … as``.
    """

    parent: "Scope | None" = None
    is_comprehension: bool = False
    names: set[str] = field(default_factory=set)
    unassigned: set[str] = field(default_factory=set)

    def find(self, name: str) -> "Scope | None":
        """Return the scope whose variable a name is here; None if it is no variable."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.parent
        return scope

    @property
    def function(self) -> "Scope":
        """The function, or module, around a comprehension."""
        scope = self
        while scope.is_comprehension and scope.parent is not None:
            scope = scope.parent
        return scope


def list_bindings(node: ast.AST) -> Iterator[str]:
    """Yield the names to which a node itself gives a value, or from which it takes it."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


def find_scopes(tree: ast.Module) -> dict[ast.AST, Scope]:
    """Return the scope that each function, comprehension and the module itself opens."""
    module = Scope()
    scopes: dict[ast.AST, Scope] = {tree: module}
    for statement in tree.body:
        _visit(statement, module, scopes)
    return scopes


def list_arguments(arguments: ast.arguments) -> list[ast.arg]:
    """Return every parameter, also ``*args`` and ``**kwargs``."""
    packed = [arg for arg in (arguments.vararg, arguments.kwarg) if arg]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *packed]


def list_defaults(arguments: ast.arguments) -> list[ast.expr]:
    """Return the default values, which the scope around the function computes."""
    return [*arguments.defaults, *(value for value in arguments.kw_defaults if value)]


def list_annotations(function: Function) -> list[ast.expr]:
    """Return the annotations of a function, which the scope around it computes."""
    if isinstance(function, ast.Lambda):
        return []
    found = [arg.annotation for arg in list_arguments(function.args)]
    return [annotation for annotation in (*found, function.returns) if annotation]


def _visit(node: ast.AST, scope: Scope, scopes: dict[ast.AST, Scope]) -> None:
    if isinstance(node, ast.NamedExpr):
        assert isinstance(node.target, ast.Name)
        scope.function.names.add(node.target.id)
        _visit(node.value, scope, scopes)
        return
    _bind(node, scope)
    if isinstance(node, Function):
        _visit_function(node, scope, scopes)
    elif isinstance(node, Comprehension):
        _visit_comprehension(node, scope, scopes)
    else:
        for child in ast.iter_child_nodes(node):
            _visit(child, scope, scopes)


def _bind(node: ast.AST, scope: Scope) -> None:
    names = list(list_bindings(node))
    scope.names.update(names)
    is_deleted = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del)
    if is_deleted or isinstance(node, ast.ExceptHandler):
        scope.unassigned.update(names)


def _visit_function(node: Function, scope: Scope, scopes: dict[ast.AST, Scope]) -> None:
    for outside in (*list_defaults(node.args), *list_annotations(node)):
        _visit(outside, scope, scopes)
    inside = scopes[node] = Scope(scope)
    inside.names.update(arg.arg for arg in list_arguments(node.args))
    for child in node.body if isinstance(node.body, list) else [node.body]:
        _visit(child, inside, scopes)


def _visit_comprehension(node: Comprehension, scope: Scope, scopes: dict[ast.AST, Scope]) -> None:
    inside = scopes[node] = Scope(scope, is_comprehension=True)
    _visit(node.generators[0].iter, scope, scopes)
    for child in ast.iter_child_nodes(node):
        if child is not node.generators[0]:
            _visit(child, inside, scopes)
    for part in (node.generators[0].target, *node.generators[0].ifs):
        _visit(part, inside, scopes)
