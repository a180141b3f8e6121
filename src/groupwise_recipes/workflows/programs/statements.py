"""The paths through statements: which variables are assigned where, and how blocks end."""

import ast
from collections.abc import Sequence, Set

from groupwise_recipes.workflows.programs.expressions import Expressions
from groupwise_recipes.workflows.programs.paths import (
    FAILING,
    NEVER,
    NOTHING,
    Change,
    Paths,
    Variable,
    assign,
    leave,
    lose,
    repeat,
)
from groupwise_recipes.workflows.programs.scopes import (
    find_scopes,
    list_annotations,
    list_bindings,
    list_defaults,
)


def find_unassigned(tree: ast.Module, known: Set[str]) -> tuple[dict[Variable, int], bool]:
    """Return the variables that a program may read without a value, and whether it always answers.

    Returns:
        The first line of each such variable, and whether ``workflow`` returns on every path.
    """
    scopes = find_scopes(tree)
    statements = Statements(Expressions(scopes, scopes[tree], known))
    module = statements.run_block(tree.body)
    faults = statements.expressions.faults
    for variable, line in (*module.faults, *module.reads.items()):
        faults[variable] = min(line, faults.get(variable, line))
    return faults, statements.always_returns


class Statements:
    """The paths through statements of one program.

    Args:
        expressions: what sums up the expressions in them.
    """

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self.always_returns = False

    def run_block(self, block: Sequence[ast.stmt]) -> Paths:
        """Return the paths through a block; what is never reached is not looked at."""
        paths = NOTHING
        for statement in block:
            if "next" not in paths.ends:
                break
            paths = paths.then(self._run(statement))
        return paths

    def _run(self, node: ast.stmt) -> Paths:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            return self._assign(node)
        if isinstance(node, ast.If):
            holds, fails = self.expressions.decide(node.test)
            body = self._run_if_reached(holds, node.body)
            return body.either(self._run_if_reached(fails, node.orelse))
        if isinstance(node, ast.For | ast.While):
            return self._loop(node)
        if isinstance(node, ast.Try):
            return self._try(node)
        if isinstance(node, ast.With):
            return self._with(node)
        if isinstance(node, ast.Match):
            return self._match(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return self._define(node)
        return self._run_simple(node)

    def _run_if_reached(self, before: Paths, block: Sequence[ast.stmt]) -> Paths:
        return before.then(self.run_block(block)) if "next" in before.ends else before

    def _run_simple(self, node: ast.stmt) -> Paths:
        if isinstance(node, ast.Return):
            return self.expressions.run_all([node.value]).then(leave("return"))
        if isinstance(node, ast.Raise):
            return self.expressions.run_all([node.exc, node.cause]).then(leave("raise"))
        if isinstance(node, ast.Break):
            return leave("break")
        if isinstance(node, ast.Continue):
            return leave("continue")
        if isinstance(node, ast.Delete):
            paths = NOTHING
            for target in node.targets:
                paths = paths.then(self.expressions.delete(target))
            return paths
        if isinstance(node, ast.Assert):
            holds, fails = self.expressions.decide(node.test)
            message = self.expressions.run_all([node.msg])
            return holds.either(fails.then(message).then(leave("raise")))
        if isinstance(node, ast.Expr):
            return self.expressions.run(node.value)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [name for alias in node.names for name in list_bindings(alias)]
            return FAILING.then(assign(map(self.expressions.find, names)))
        return NOTHING

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Paths:
        if isinstance(node, ast.AugAssign):
            return self._augment(node)
        if node.value is None:
            return NOTHING  # `x: int` gives no value
        paths = self.expressions.run(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            paths = paths.then(self.expressions.store(target))
        return paths

    def _augment(self, node: ast.AugAssign) -> Paths:
        run, store = self.expressions.run, self.expressions.store
        if not isinstance(node.target, ast.Name):
            return store(node.target).then(run(node.value)).then(FAILING)
        read = run(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
        return read.then(run(node.value)).then(FAILING).then(store(node.target))

    def _loop(self, node: ast.For | ast.While) -> Paths:
        if isinstance(node, ast.While):
            holds, fails = self.expressions.decide(node.test)
            # Even a loop that does nothing may be interrupted.
            once = FAILING.then(self._run_if_reached(holds, node.body))
            return repeat(once, leaving=self._run_if_reached(fails, node.orelse))
        first = self.expressions.run(node.iter).then(FAILING)
        turn = FAILING.then(self.expressions.store(node.target)).then(self.run_block(node.body))
        is_builtin = self.expressions.scope.find("range") is None
        is_certain = _has_items(node.iter, is_range_known=is_builtin)
        orelse = self.run_block(node.orelse)
        return first.then(repeat(turn, leaving=orelse, is_certain=is_certain))

    def _try(self, node: ast.Try) -> Paths:
        body = self.run_block(node.body)
        caught = body.ending("raise")
        paths = self._run_if_reached(body, node.orelse)
        for handler in node.handlers if "raise" in body.ends else ():
            caught = caught.then(self.expressions.run_all([handler.type]))
            paths = paths.either(caught.then(self._handle(handler)))
        return paths.finish(self.run_block(node.finalbody)) if node.finalbody else paths

    def _handle(self, handler: ast.ExceptHandler) -> Paths:
        names = list(map(self.expressions.find, list_bindings(handler)))
        return assign(names).then(self.run_block(handler.body)).finish(lose(names))

    def _with(self, node: ast.With) -> Paths:
        """A context may swallow an error of its block, which is left halfway then."""
        paths = NOTHING
        for item in node.items:
            paths = paths.then(self.expressions.run(item.context_expr)).then(FAILING)
            if item.optional_vars is not None:
                paths = paths.then(self.expressions.store(item.optional_vars))
        body = self.run_block(node.body).then(FAILING)
        return paths.then(body.either(body.ending("raise")))

    def _match(self, node: ast.Match) -> Paths:
        rest = self.expressions.run(node.subject)
        paths = NEVER
        for case in node.cases:
            if "next" not in rest.ends:
                break
            looked = self._look(case.pattern)
            holds, fails = self.expressions.decide(case.guard or ast.Constant(True))
            found = rest.then(looked).then(self._capture(case.pattern))
            paths = paths.either(self._run_if_reached(found.then(holds), case.body))
            missed = NEVER if _always_matches(case.pattern) else rest.then(looked)
            rest = missed.either(found.then(fails))
        return paths.either(rest)

    def _look(self, pattern: ast.pattern) -> Paths:
        """Return the paths through the classes and constants that a pattern compares with."""
        parts = [node for node in ast.walk(pattern) if isinstance(node, ast.expr)]
        return self.expressions.run_all(parts).then(FAILING)

    def _capture(self, pattern: ast.pattern) -> Paths:
        names = {name for node in ast.walk(pattern) for name in list_bindings(node)}
        return assign(map(self.expressions.find, names))

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Paths:
        """A function reads its own name only when it is called, and then that has a value."""
        inner = self.expressions
        outside = inner.run_all([*list_defaults(node.args), *list_annotations(node)])
        variable, own = inner.find(node.name), inner.scopes[node]
        inner.scope, scope = own, inner.scope
        body = inner.assign_parameters(node).then(self.run_block(node.body))
        inner.scope = scope
        if node.name == "workflow":
            self.always_returns = "next" not in body.ends
        reads = {v: line for v, line in body.reads.items() if v != variable or _is_lost(v)}
        made = inner.close(Paths({"next": Change()}, reads, body.faults), own)
        return outside.then(made).then(assign([variable]))


def _is_lost(variable: Variable) -> bool:
    scope, name = variable
    return name in scope.unassigned


def _always_matches(pattern: ast.pattern) -> bool:
    """Return whether a pattern is ``_``, a name, or has one of these."""
    if isinstance(pattern, ast.MatchOr):
        return any(map(_always_matches, pattern.patterns))
    return isinstance(pattern, ast.MatchAs) and (
        pattern.pattern is None or _always_matches(pattern.pattern)
    )


def _has_items(node: ast.expr, *, is_range_known: bool) -> bool:
    """Return whether what is looped over surely has an item: ``range(3)``, ``[a, b]``."""
    if isinstance(node, ast.List | ast.Tuple):
        return any(not isinstance(item, ast.Starred) for item in node.elts)
    is_range = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range"
    if not is_range or not is_range_known or not isinstance(node, ast.Call) or node.keywords:
        return False
    try:
        return bool(range(*map(ast.literal_eval, node.args)))
    except (ValueError, TypeError, OverflowError):
        return False
