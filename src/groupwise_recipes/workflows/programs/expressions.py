"""The paths through an expression."""

import ast
from collections.abc import Iterable, Set

from groupwise_recipes.workflows.programs.paths import (
    FAILING,
    NEVER,
    NOTHING,
    Paths,
    Variable,
    assign,
    lose,
    read,
)
from groupwise_recipes.workflows.programs.scopes import (
    Comprehension,
    Scope,
    list_arguments,
    list_defaults,
)

_CANNOT_FAIL = (
    *(ast.Constant, ast.Name, ast.Tuple, ast.List, ast.NamedExpr, ast.Lambda, ast.Slice),
    *(ast.IfExp, ast.BoolOp, ast.expr_context),
)
_USING_UP = frozenset(
    ("all", "any", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple")
)


class Expressions:
    """The paths through expressions of one program.

    Args:
        scopes: of the program, by the nodes that open them.
        scope: where the expressions stand.
        known: names that have a value without the program.
    """

    def __init__(self, scopes: dict[ast.AST, Scope], scope: Scope, known: Set[str]) -> None:
        self.scopes = scopes
        self.scope = scope
        self.known = known
        self.faults: dict[Variable, int] = {}
        self.used_up: set[ast.AST] = set()  # generators that are run where they stand

    def run_all(self, nodes: Iterable[ast.AST | None]) -> Paths:
        """Return the paths through several, one after the other."""
        paths = NOTHING
        for node in nodes:
            if node is not None:
                paths = paths.then(self.run(node))
        return paths

    def run(self, node: ast.AST) -> Paths:
        """Return the paths through an expression, or a part of one."""
        if isinstance(node, ast.Name):
            return self._read(node)
        if isinstance(node, ast.NamedExpr):
            return self.run(node.value).then(self.store(node.target))
        if isinstance(node, ast.BoolOp | ast.IfExp):
            return self._choose(node)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.Lambda):
            return self._run_lambda(node)
        if isinstance(node, Comprehension):
            return self._run_comprehension(node)
        self.used_up.update(self._list_used_up(node))
        parts = self.run_all(_list_parts(node))
        return parts if isinstance(node, _CANNOT_FAIL) else parts.then(FAILING)

    def decide(self, node: ast.expr) -> tuple[Paths, Paths]:
        """Return the paths through a condition that holds, and through one that does not."""
        if isinstance(node, ast.Constant):
            return (NOTHING, NEVER) if node.value else (NEVER, NOTHING)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            holds, fails = self.decide(node.operand)
            return fails, holds
        if not isinstance(node, ast.BoolOp):
            paths = self.run(node).then(FAILING)
            return paths, paths
        is_and = isinstance(node.op, ast.And)
        on, out = NOTHING, NEVER
        for value in node.values:
            holds, fails = self.decide(value)
            out = out.either(on.then(fails if is_and else holds))
            on = on.then(holds if is_and else fails)
        return (on, out) if is_and else (out, on)

    def store(self, target: ast.AST) -> Paths:
        """Return the paths through what is assigned to: names get a value."""
        if isinstance(target, ast.Name):
            return assign([self.find(target.id)])
        if isinstance(target, ast.Tuple | ast.List):
            paths = FAILING
            for part in target.elts:
                paths = paths.then(self.store(part))
            return paths
        if isinstance(target, ast.Starred):
            return self.store(target.value)
        return self.run_all(_list_parts(target)).then(FAILING)

    def delete(self, target: ast.expr) -> Paths:
        """Return the paths through what is deleted."""
        if isinstance(target, ast.Name):
            variable = self.find(target.id)
            return read(variable, target.lineno).then(lose([variable]))
        if isinstance(target, ast.Tuple | ast.List):
            paths = NOTHING
            for part in target.elts:
                paths = paths.then(self.delete(part))
            return paths
        return self.run_all(_list_parts(target)).then(FAILING)

    def find(self, name: str) -> Variable:
        """Return the variable that a name is here; the module's where it is none."""
        scope = self.scope.find(name)
        while scope is None:
            scope = self.scope
            while scope.parent is not None:
                scope = scope.parent
        return scope, name

    def close(self, inside: Paths, owner: Scope) -> Paths:
        """Return a function's making: what it reads from outside has a value then, and keeps it."""
        paths = NOTHING
        for (scope, name), line in sorted(inside.reads.items(), key=lambda item: item[1]):
            if scope is owner:
                self.faults.setdefault((scope, name), line)
            elif scope.parent is not None:
                paths = paths.then(read((scope, name), line))
                if name in scope.unassigned:
                    self.faults.setdefault((scope, name), line)
        for variable, line in inside.faults:
            self.faults[variable] = min(line, self.faults.get(variable, line))
        return paths

    def assign_parameters(self, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> Paths:
        """Return a function's beginning."""
        scope = self.scopes[node]
        return assign((scope, arg.arg) for arg in list_arguments(node.args))

    def _read(self, node: ast.Name) -> Paths:
        variable = self.find(node.id)
        if variable[0].find(node.id) is not None:
            return read(variable, node.lineno)
        if node.id not in self.known:
            self.faults.setdefault(variable, node.lineno)
        return NOTHING

    def _list_used_up(self, node: ast.AST) -> list[ast.expr]:
        if isinstance(node, ast.Starred):
            return [node.value]
        if not isinstance(node, ast.Call):
            return []
        if isinstance(node.func, ast.Name):
            is_builtin = self.scope.find(node.func.id) is None
            return node.args if is_builtin and node.func.id in _USING_UP else []
        return (
            node.args if isinstance(node.func, ast.Attribute) and node.func.attr == "join" else []
        )

    def _choose(self, node: ast.BoolOp | ast.IfExp) -> Paths:
        if isinstance(node, ast.BoolOp):
            on, out = self.decide(node)
            return on.either(out)
        holds, fails = self.decide(node.test)
        return holds.then(self.run(node.body)).either(fails.then(self.run(node.orelse)))

    def _compare(self, node: ast.Compare) -> Paths:
        """Later parts of ``a < b < c`` are computed only if the earlier ones hold."""
        paths = self.run_all([node.left, node.comparators[0]]).then(FAILING)
        later = NOTHING
        for part in reversed(node.comparators[1:]):
            later = NOTHING.either(self.run(part).then(FAILING).then(later))
        return paths.then(later)

    def _run_lambda(self, node: ast.Lambda) -> Paths:
        defaults = self.run_all(list_defaults(node.args))
        outside, self.scope = self.scope, self.scopes[node]
        inside = self.assign_parameters(node).then(self.run(node.body))
        self.scope = outside
        return defaults.then(self.close(inside, self.scopes[node]))

    def _run_comprehension(self, node: Comprehension) -> Paths:
        first = self.run(node.generators[0].iter).then(FAILING)
        outside, self.scope = self.scope, self.scopes[node]
        inside = self._run_generators(node)
        self.scope = outside
        if isinstance(node, ast.GeneratorExp) and node not in self.used_up:
            first = first.then(self.close(inside, self.scopes[node]))
        return first.then(NOTHING.either(inside))

    def _run_generators(self, node: Comprehension) -> Paths:
        paths = NOTHING
        for number, generator in enumerate(node.generators):
            if number:
                paths = paths.then(self.run(generator.iter)).then(FAILING)
            paths = paths.then(self.store(generator.target))
            for condition in generator.ifs:
                paths = paths.then(self.decide(condition)[0])
        if isinstance(node, ast.DictComp):
            return paths.then(self.run_all([node.key, node.value])).then(FAILING)
        return paths.then(self.run(node.elt)).then(FAILING)


def _list_parts(node: ast.AST) -> list[ast.AST]:
    """Return what a node computes, in that order."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [part for pair in pairs for part in pair if part is not None]
    return list(ast.iter_child_nodes(node))
