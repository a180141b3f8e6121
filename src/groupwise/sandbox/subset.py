"""Which programs Monty may decide: those that do the same in it as in CPython.

Monty is another implementation of Python, and some of what it does differs without an error:
``map`` and ``enumerate`` give lists, sets have another order, an instance is true whatever its
``__bool__`` says. So there is a list of what is known to be the same, and one thing outside it
sends the whole program to CPython. What is on the list is checked by name and place only, before
anything runs; it is a list of what occurs often, not of all that Monty can do.
"""

import ast
import builtins
import sys
from collections.abc import Collection

from groupwise.sandbox.subset_dicts import find_mixed_keys
from groupwise.sandbox.subset_names import (
    ATTRIBUTES,
    BUILTINS,
    LAZY,
    MODULES,
    MUTATORS,
    NODES,
    TAKE_ALL,
    TAKE_SOME,
    UNORDERED_TAKERS,
)

_BUILTIN_NAMES = frozenset(dir(builtins))
_OTHER_LINE_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_Lazy = ast.GeneratorExp


def find_obstacle(program: str, tests: str, functions: Collection[str] = ()) -> str | None:
    """Return the first thing that Monty may do otherwise than CPython, or None.

    Args:
        program: source of the program.
        tests: source of its tests.
        functions: names of host functions.
    """
    if any(mark in program + tests for mark in _OTHER_LINE_ENDS):
        return "it has unusual line ends"
    try:
        # As bytes, so that line ends and odd characters are read as CPython reads a file.
        trees = [ast.parse(program.encode()), ast.parse(tests.encode())]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "it does not parse"
    try:
        screens = [_Screen(functions), _Screen(functions)]
        for screen, tree, source in zip(screens, trees, (program, tests), strict=True):
            screen.check(tree, source)
        mixed = find_mixed_keys(trees, has_functions=bool(functions))
    except _ObstacleError as obstacle:
        return str(obstacle)
    except RecursionError:
        return "it is nested too deep"
    if mixed is not None:
        return mixed
    shared = screens[1].bound_at_top & (screens[0].bound_at_top | screens[0].loaded)
    return f"program and tests both have {min(shared)}" if shared else None


def can_assert(program: str) -> bool:
    """Return whether the program itself may raise an AssertionError."""
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Name) and node.id in ("AssertionError", "Exception"))
        for node in ast.walk(ast.parse(program.encode()))
    )


def split_last_value(program: str) -> tuple[str, str]:
    """Return a program without its last line if that is an expression, and that expression."""
    body = ast.parse(program.encode()).body
    if not body or not isinstance(body[-1], ast.Expr):
        return program, ""
    last = body[-1]
    lines = program.splitlines(keepends=True)
    before = lines[last.lineno - 1].encode()[: last.col_offset].decode()
    expression = ast.get_source_segment(program, last) or ""
    return "".join(lines[: last.lineno - 1]) + before, expression


class _ObstacleError(Exception):
    pass


class _Screen:
    """Walks over one source; the first obstacle ends the walk.

    Attributes:
        bound_at_top: names that the source binds anywhere; more than those at its top, to be safe.
        loaded: names that it reads.
    """

    def __init__(self, functions: Collection[str]) -> None:
        self.functions = frozenset(functions)
        self.bound_at_top: set[str] = set()
        self.loaded: set[str] = set()
        self.parents: dict[ast.AST, ast.AST] = {}

    def check(self, tree: ast.Module, source: str) -> None:
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
        self._collect_names(tree)
        for node in ast.walk(tree):
            name = type(node).__name__
            if name not in NODES:
                raise _ObstacleError(f"{name} at line {getattr(node, 'lineno', '?')}")
            check = getattr(self, f"_check_{name.lower()}", None)
            if check is not None and not check(node):
                # As written: to write a number of thousands of digits again may be an error.
                text = (ast.get_source_segment(source, node) or name).splitlines()[0][:60]
                raise _ObstacleError(f"`{text}` at line {getattr(node, 'lineno', '?')}")
        _check_changed_loops(tree)

    def _collect_names(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                target = self.loaded if isinstance(node.ctx, ast.Load) else self.bound_at_top
                target.add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.bound_at_top.add(node.name)
            elif isinstance(node, ast.arg):
                self.bound_at_top.add(node.arg)
            elif isinstance(node, ast.alias):
                self.bound_at_top.add(node.asname or node.name)
        hidden = self.bound_at_top & _BUILTIN_NAMES
        if hidden:
            raise _ObstacleError(f"it has a {min(hidden)} of its own")

    def _check_constant(self, node: ast.Constant) -> bool:
        if isinstance(node.value, str):
            # Monty has neither a NaN that is itself nor halves of characters.
            is_odd = any("\ud800" <= character <= "\udfff" for character in node.value)
            return not is_odd and node.value.strip("+- ").lower() not in _FLOAT_WORDS
        return not isinstance(node.value, bytes | complex)

    def _check_name(self, node: ast.Name) -> bool:
        if node.id.startswith("__"):
            return False
        if node.id == "sum" and sys.version_info >= (3, 12):
            return False  # it adds floats more exactly since then, and Monty does not
        if node.id in LAZY:
            parent = self.parents[node]
            return isinstance(parent, ast.Call) and parent.func is node
        if node.id in ("set", "frozenset"):
            parent = self.parents[node]
            return self._is_type_of_check(node) or (
                isinstance(parent, ast.Call) and parent.func is node
            )
        return node.id not in _BUILTIN_NAMES or node.id in BUILTINS

    def _is_type_of_check(self, node: ast.AST) -> bool:
        parent = self.parents[node]
        if isinstance(parent, ast.Tuple):
            parent = self.parents[parent]
        return isinstance(parent, ast.Call) and _get_called(parent) == "isinstance"

    def _check_attribute(self, node: ast.Attribute) -> bool:
        if not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node.value, ast.Name) and node.value.id in MODULES:
            return node.attr in MODULES[node.value.id]
        parent = self.parents[node]
        return node.attr in ATTRIBUTES and isinstance(parent, ast.Call) and parent.func is node

    def _check_import(self, node: ast.Import) -> bool:
        return all(a.name in MODULES and a.asname in (None, a.name) for a in node.names)

    def _check_importfrom(self, node: ast.ImportFrom) -> bool:
        names = MODULES.get(node.module or "", frozenset())
        return not node.level and all(a.name in names and not a.asname for a in node.names)

    def _check_functiondef(self, node: ast.FunctionDef) -> bool:
        return not node.decorator_list

    def _check_asyncfunctiondef(self, node: ast.AsyncFunctionDef) -> bool:
        return not node.decorator_list and bool(self.functions)

    def _check_compare(self, node: ast.Compare) -> bool:
        for operator, right in zip(node.ops, node.comparators, strict=True):
            is_identity = isinstance(operator, ast.Is | ast.IsNot)
            if is_identity and not (isinstance(right, ast.Constant) and right.value is None):
                return False
        return True

    def _check_binop(self, node: ast.BinOp) -> bool:
        left = node.left
        is_text = isinstance(left, ast.JoinedStr) or (
            isinstance(left, ast.Constant) and isinstance(left.value, str)
        )
        return not (isinstance(node.op, ast.Mod) and is_text)

    def _check_formattedvalue(self, node: ast.FormattedValue) -> bool:
        return node.format_spec is None and node.conversion == -1

    def _check_call(self, node: ast.Call) -> bool:
        called = _get_called(node)
        if called in ("set", "frozenset"):
            return self._is_unordered_use(node)
        if called in LAZY:
            return self._is_taken_at_once(node)
        if called == "round":
            return len(node.args) + len(node.keywords) == 1  # Monty rounds 2.675 to 2.68
        if called == "print":
            return all(k.arg in ("sep", "end") for k in node.keywords)
        return True

    def _check_set(self, node: ast.Set) -> bool:
        return self._is_unordered_use(node)

    def _check_setcomp(self, node: ast.SetComp) -> bool:
        return self._is_unordered_use(node)

    def _check_generatorexp(self, node: ast.GeneratorExp) -> bool:
        return self._is_taken_at_once(node)

    def _is_unordered_use(self, node: ast.expr) -> bool:
        """Return whether nothing can come of the order of a set: it is counted, or looked into."""
        parent = self.parents[node]
        if isinstance(parent, ast.Call):
            return _get_called(parent) in UNORDERED_TAKERS and node in parent.args
        if isinstance(parent, ast.Compare):
            if node in parent.comparators:
                index = parent.comparators.index(node)
                return isinstance(parent.ops[index], ast.In | ast.NotIn | ast.Eq | ast.NotEq)
            return isinstance(parent.ops[0], ast.Eq | ast.NotEq)
        return False

    def _is_taken_at_once(self, node: ast.expr) -> bool:
        """Return whether an iterator is used up where it is made, so that it may be a list."""
        parent = self.parents[node]
        if isinstance(parent, ast.Call) and node in parent.args:
            called = _get_called(parent)
            if called in self.bound_at_top:
                return False
            if called in TAKE_ALL:
                return not _has_effects(node)
            return called in TAKE_SOME and not self._calls_own(node)
        if isinstance(parent, ast.For | ast.comprehension) and parent.iter is node:
            return not self._calls_own(node)
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple | ast.List):
            return not self._calls_own(node)
        return False

    def _calls_own(self, node: ast.expr) -> bool:
        """Return whether taking items early could be seen: something but builtins is called."""
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        called = {_get_called(n) for n in ast.walk(node) if isinstance(n, ast.Call)}
        own = called - _BUILTIN_NAMES - ATTRIBUTES
        takes_own = isinstance(node, ast.Call) and _get_called(node) in ("map", "filter")
        first = node.args[0] if takes_own and isinstance(node, ast.Call) and node.args else None
        is_plain = first is None or (isinstance(first, ast.Name) and first.id in _BUILTIN_NAMES)
        return bool(own) or _has_effects(node) or not is_plain or bool(names & self.functions)


_FLOAT_WORDS = ("nan", "inf", "infinity")


def _get_called(node: ast.Call) -> str:
    """Return the called name, of a method its last part."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _has_effects(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Await)
        or (isinstance(n, ast.Call) and _get_called(n) in (*MUTATORS, "print", "next"))
        for n in ast.walk(node)
    )


def _check_changed_loops(tree: ast.Module) -> None:
    """Refuse loops over ``enumerate(x)`` and the like in functions that change an ``x``.

    CPython looks at ``x`` while the loop goes on, Monty before it starts.
    """
    scopes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in [tree, *scopes]:
        loops = [n.iter for n in ast.walk(scope) if isinstance(n, ast.For | ast.comprehension)]
        lazy = [n for n in loops if isinstance(n, _Lazy) or _is_lazy_call(n)]
        if lazy and _changes_items(scope):
            line = getattr(lazy[0], "lineno", "?")
            raise _ObstacleError(f"items may change in the loop at line {line}")


def _is_lazy_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _get_called(node) in LAZY


def _changes_items(scope: ast.AST) -> bool:
    """Return whether anything but a list that grows at its end is changed in a scope."""
    loops = [n for n in ast.walk(scope) if isinstance(n, ast.For) and _is_lazy_call(n.iter)]
    read = {n.id for loop in loops for n in ast.walk(loop.iter) if isinstance(n, ast.Name)}
    for node in ast.walk(scope):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if _get_root(node) in read or _get_root(node) == "":
                return True
        elif isinstance(node, ast.Call) and _get_called(node) in MUTATORS:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else node
            if _get_root(owner) in read or _get_root(owner) == "":
                return True
        elif isinstance(node, ast.AugAssign) and _get_root(node.target) in read:
            return True
        elif isinstance(node, ast.Assign) and _get_root(node.value) in read:
            return True  # another name for the same list
    return False


def _get_root(node: ast.AST) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
