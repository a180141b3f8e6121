"""Python tests of data sets, read without running them: what would run, and what they assert.

They come as plain asserts (MBPP), as ``check(candidate)`` (HumanEval), as functions ``test_*``, and
as unittest cases. What only defines tests is made to run them;
what could not fail for any program, or could not run for any, is unusable.
"""

import ast
import builtins
import re
import sys
from collections.abc import Collection, Mapping
from types import MappingProxyType

from groupwise.core import parse_python
from groupwise.sandbox import ProgramTests

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef
_CASES = ("TestCase", "IsolatedAsyncioTestCase")
# The checker's process runs one program: what is set in its modules is set for these tests alone.
_QUIET_MAIN = "import unittest\nunittest.main = lambda *args, **options: None\n"
_RUN_CASES = """
import unittest as unittest_
result_ = unittest_.TestResult()
for case_ in ({cases},):
    unittest_.defaultTestLoader.loadTestsFromTestCase(case_).run(result_)
for _, text_ in result_.errors + result_.failures:
    raise AssertionError(text_.strip().splitlines()[-1])
assert not result_.unexpectedSuccesses, "a test that should fail passed"
assert result_.testsRun > len(result_.skipped), "every test was skipped"
"""


class UnusableTestsError(Exception):
    """Tests that can decide about no program; its text says why."""


def prepare_tests(
    source: str,
    entry_point: str | None,
    *,
    known: Collection[str] = (),
    imports: Mapping[str, str] = MappingProxyType({}),
) -> ProgramTests:
    """Return the tests with calls of what they only define.

    Args:
        source: of the tests.
        entry_point: name of the tested function, where it is known.
        known: names that a program has, where they are known; others that no test binds are typos.
        imports: lines that import names, for those that the tests use and do not import.

    Raises:
        UnusableTestsError: if they cannot decide.
    """
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnusableTestsError(f"the tests do not parse ({error})") from None
    outline = _Outline(tree, entry_point)
    calls = outline.list_calls()
    _check_imports(tree)
    running = outline.list_running()
    nodes = [n for node in running for n in ast.walk(node)]
    if not any(map(_asserts, nodes)):
        raise UnusableTestsError("the tests assert nothing")
    if entry_point is not None and not (
        outline.takes_candidate
        or any(entry_point in (getattr(n, "id", ""), getattr(n, "attr", "")) for n in nodes)
    ):
        raise UnusableTestsError(f"the tests never use {entry_point}")
    bound = {"__name__", "__file__", "__doc__", *_list_bound(tree)}
    loaded = {name for node in running for name in _list_loaded(node)} - bound
    free = {name for name in loaded if not hasattr(builtins, name) or name == entry_point}
    if entry_point is None and not free:
        raise UnusableTestsError("the tests use nothing of the program")
    known = {*known, *([entry_point] if entry_point else [])}
    # Modules that the tests forgot are used as ``name.attribute`` and not otherwise.
    owners = [n.value for n in nodes if isinstance(n, ast.Attribute)]
    others = {n.id for n in nodes if isinstance(n, ast.Name) and n not in owners}
    owned = {n.id for n in owners if isinstance(n, ast.Name)} - others
    modules = (free - known) & sys.stdlib_module_names & owned
    odd = sorted(free - known - modules) if known & free else []
    imports_all = any(isinstance(n, ast.alias) and n.name == "*" for n in ast.walk(tree))
    if odd and not imports_all:
        raise UnusableTestsError(f"the tests use {odd[0]}, which nothing defines")
    before = [f"import {name}" for name in sorted(modules)]
    wanted = free - {entry_point} - modules
    before += [line for name, line in imports.items() if name in wanted]
    if outline.cases:
        before.append(_QUIET_MAIN)
        calls.append(_RUN_CASES.format(cases=", ".join(outline.cases)))
    if before or calls:  # behind the imports of __future__, which have to stay the first
        froms = [n for n in tree.body if isinstance(n, ast.ImportFrom)]
        first = max((n.end_lineno or 0 for n in froms if n.module == "__future__"), default=0)
        lines = source.split("\n")
        source = "\n".join([*lines[:first], *before, *lines[first:], *calls])
    return ProgramTests(source, entry_point)


class _Outline:
    """What tests define, and which of it runs.

    Attributes:
        cases: names of unittest cases.
        takes_candidate: whether ``check`` is called with the tested function.
    """

    def __init__(self, tree: ast.Module, entry_point: str | None) -> None:
        self._tree = tree
        self._entry_point = entry_point
        self._defined = {node.name: node for node in tree.body if isinstance(node, _Definition)}
        # What runs: statements of the module, and what is called for it.
        self._roots: list[ast.AST] = [n for n in tree.body if not isinstance(n, _Definition)]
        self.cases: list[str] = []
        self.takes_candidate = False

    def list_running(self) -> list[ast.AST]:
        """Return the roots, and every definition whose name something that runs reads."""
        running = list(self._roots)
        for node in running:  # grows
            names = [n for n in _list_loaded(node) if n in self._defined]
            running += [self._defined[n] for n in names if self._defined[n] not in running]
        return running

    def list_calls(self) -> list[str]:
        """Return the calls of tests that nothing calls; unittest cases are noted instead."""
        calls: list[str] = []
        check = self._defined.get("check")
        if isinstance(check, _Function) and "check" not in _list_loaded(self._tree):
            if self._entry_point is None:
                problem = "the tests define check and there is no entry point for it"
                raise UnusableTestsError(problem)
            arguments = [*check.args.posonlyargs, *check.args.args]
            if len(arguments) != 1 or arguments[0].arg not in _list_loaded(check):
                raise UnusableTestsError("check does nothing with one candidate")
            self.takes_candidate = True
            self._roots.append(check)
            calls.append(_write_call(check, f"check({self._entry_point})"))
        used = {name for node in self.list_running() for name in _list_loaded(node)}
        for name, node in self._defined.items():
            if isinstance(node, _Function) and name.startswith("test") and name not in used:
                arguments = [*node.args.posonlyargs, *node.args.args]
                if len(arguments) > len(node.args.defaults):
                    wanted = arguments[0].arg
                    raise UnusableTestsError(
                        f"{name} wants {wanted}, a fixture or parameter of pytest"
                    )
                self._roots.append(node)
                calls.append(_write_call(node, f"{name}()"))
        num_tests = 0
        for name, node in self._defined.items():
            if not isinstance(node, ast.ClassDef):
                continue
            num_own = sum(isinstance(n, _Function) and _is_test(n) for n in node.body)
            if self._is_case(node):
                self.cases.append(name)
                self._roots.append(node)
                num_tests += num_own
            elif num_own and name.startswith("Test") and name not in used:
                raise UnusableTestsError(f"{name} is a class for pytest; make it a unittest case")
        if self.cases and not num_tests:
            raise UnusableTestsError("the unittest cases have no tests that run")
        return calls

    def _is_case(self, node: ast.ClassDef) -> bool:
        for base in node.bases:
            name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            above = self._defined.get(name)
            if name in _CASES or (isinstance(above, ast.ClassDef) and self._is_case(above)):
                return True
        return False


def _check_imports(tree: ast.Module) -> None:
    """Refuse modules that the sandbox does not have, unless the tests can do without."""
    tried = {n for t in ast.walk(tree) if isinstance(t, ast.Try) for n in ast.walk(t)}
    for node in ast.walk(tree):
        if node in tried or not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        for name in names:
            if (name or "").partition(".")[0] not in sys.stdlib_module_names:
                raise UnusableTestsError(
                    f"the tests import {name or 'a relative module'}, which the sandbox has not"
                )


def _is_test(function: _Function) -> bool:
    """Return whether unittest runs a method as a test, and does not skip it."""
    is_skipped = any("skip" in ast.dump(decorator) for decorator in function.decorator_list)
    return not is_skipped and (function.name.startswith("test") or function.name == "runTest")


def _write_call(function: _Function, call: str) -> str:
    return f"await {call}" if isinstance(function, ast.AsyncFunctionDef) else call


def _list_loaded(node: ast.AST) -> set[str]:
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    return {n.id for n in names if isinstance(n.ctx, ast.Load)}


def _list_bound(tree: ast.AST) -> set[str]:
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, _Definition):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
    return bound


def list_names(source: str) -> set[str]:
    """Return every name that a program binds; none if it does not parse."""
    try:
        return _list_bound(parse_python(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


def list_imports(source: str) -> dict[str, str]:
    """Return the lines that import from the standard library, in a program or a text, by name."""
    found: dict[str, str] = {}
    for line in re.findall(r"^[ \t]*((?:import|from)[ \t][^\n;#]+)", source, re.MULTILINE):
        try:
            nodes = parse_python(line).body
        except (SyntaxError, ValueError):
            continue  # words of a text
        for node in nodes:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            origin = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                module = (origin.split(" ")[1] if origin else alias.name).partition(".")[0]
                if module in {*sys.stdlib_module_names} - {"__future__"} and alias.name != "*":
                    name = alias.asname or alias.name.partition(".")[0]
                    whole = f" as {alias.asname}" if alias.asname else ""
                    found[name] = f"{origin}import {alias.name}{whole}"
    return found


def _asserts(node: ast.AST) -> bool:
    """Return whether a node can fail for one program and not for another."""
    if isinstance(node, ast.Assert):
        return bool(_list_loaded(node.test))
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else name
        return name.startswith(("assert", "fail")) or called in ("exit", "_exit", "quit")
    return isinstance(node, ast.Raise)
