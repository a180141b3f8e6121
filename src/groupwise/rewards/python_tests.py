"""Python tests of data sets, read without running them: what would run, and what they assert.

They come as plain asserts (MBPP), as ``check(candidate)`` (HumanEval), as functions ``test_*`` and
classes ``Test*`` for pytest, and as unittest cases. What only defines tests is made to run them;
what could not fail for any program, or could not run for any, is unusable.
"""

import ast
import builtins
import re
import sys
from collections.abc import Collection, Iterator, Mapping
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
    """Return the tests with calls of what they only define."""
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnusableTestsError(f"the tests do not parse ({error})") from None
    outline = _Outline(tree, entry_point)
    calls = [*outline.call_check(), *outline.call_functions(), *outline.call_classes()]
    outline.check_imports()
    outline.check_assertions()
    modules, free = outline.check_names(known)
    before = [f"import {name}" for name in modules]
    before += [line for name, line in imports.items() if name in free and name not in modules]
    if outline.cases:
        before.append(_QUIET_MAIN)
        calls.append(_RUN_CASES.format(cases=", ".join(outline.cases)))
    text = _wrap(source, before, calls, num_first=outline.count_future_lines())
    return ProgramTests(text, entry_point)


def _wrap(source: str, before: list[str], after: list[str], *, num_first: int) -> str:
    """Return a source with lines before and after it; its first lines stay the first."""
    if not before and not after:
        return source
    lines = source.split("\n")
    return "\n".join([*lines[:num_first], *before, *lines[num_first:], *after])


class _Outline:
    """What tests define, and which of it runs.

    Attributes:
        cases: names of unittest cases.
        roots: nodes that run: statements of the module, and what is called for it.
    """

    def __init__(self, tree: ast.Module, entry_point: str | None) -> None:
        self.tree = tree
        self.entry_point = entry_point
        self.defined = {node.name: node for node in tree.body if isinstance(node, _Definition)}
        self.roots: list[ast.AST] = [n for n in tree.body if not isinstance(n, _Definition)]
        self.cases: list[str] = []
        self.takes_candidate = False

    def call_check(self) -> Iterator[str]:
        """Yield the call of ``check``, as HumanEval has it, unless the tests call it."""
        check = self.defined.get("check")
        if not isinstance(check, _Function) or "check" in _list_loaded(self.tree):
            return
        if self.entry_point is None:
            raise UnusableTestsError("the tests define check and there is no entry point for it")
        arguments = [*check.args.posonlyargs, *check.args.args]
        if len(arguments) != 1 or arguments[0].arg not in _list_loaded(check):
            raise UnusableTestsError("check does nothing with one candidate")
        self.takes_candidate = True
        self.roots.append(check)
        yield _write_call(check, f"check({self.entry_point})")

    def call_functions(self) -> Iterator[str]:
        """Yield calls of the functions ``test*`` that nothing calls yet."""
        used = self._list_used()
        for name, node in self.defined.items():
            if isinstance(node, _Function) and name.startswith("test") and name not in used:
                _refuse_fixtures(node, given=0)
                self.roots.append(node)
                yield _write_call(node, f"{name}()")

    def call_classes(self) -> Iterator[str]:
        """Note unittest cases, and yield calls of the methods ``test*`` of other test classes."""
        num_tests = 0
        for name, node in self.defined.items():
            if not isinstance(node, ast.ClassDef):
                continue
            tests = [n for n in node.body if isinstance(n, _Function) and _is_test(n)]
            if self._is_case(node):
                self.cases.append(name)
                num_tests += len(tests)
                self.roots.append(node)
            elif name.startswith("Test") and tests and name not in self._list_used():
                if any(isinstance(n, _Function) and "setup" in n.name.lower() for n in node.body):
                    raise UnusableTestsError("the tests use the setup of pytest classes")
                self.roots.append(node)
                for test in tests:
                    _refuse_fixtures(test, given=1)
                    yield _write_call(test, f"{name}().{test.name}()")
        if self.cases and not num_tests:
            raise UnusableTestsError("the unittest cases have no tests that run")

    def _is_case(self, node: ast.ClassDef) -> bool:
        for base in node.bases:
            name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            above = self.defined.get(name)
            if name in _CASES or (isinstance(above, ast.ClassDef) and self._is_case(above)):
                return True
        return False

    def _list_used(self) -> set[str]:
        """Return the names that anything reads which runs by itself."""
        return {name for node in self.list_running() for name in _list_loaded(node)}

    def count_future_lines(self) -> int:
        """Return how many lines there are up to the last import of ``__future__``."""
        imports = [n for n in self.tree.body if isinstance(n, ast.ImportFrom)]
        return max((n.end_lineno or 0 for n in imports if n.module == "__future__"), default=0)

    def list_running(self) -> list[ast.AST]:
        """Return the roots, and every definition whose name something that runs reads."""
        running = list(self.roots)
        for node in running:  # grows
            names = [n for n in _list_loaded(node) if n in self.defined]
            running += [self.defined[n] for n in names if self.defined[n] not in running]
        return running

    def check_imports(self) -> None:
        """Refuse modules that the sandbox does not have, unless the tests can do without."""
        tried = {n for t in ast.walk(self.tree) if isinstance(t, ast.Try) for n in ast.walk(t)}
        for node in ast.walk(self.tree):
            if node in tried or not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            for name in names:
                if (name or "").partition(".")[0] not in sys.stdlib_module_names:
                    raise UnusableTestsError(
                        f"the tests import {name or 'a relative module'}, which the sandbox has not"
                    )

    def check_assertions(self) -> None:
        """Refuse tests in which nothing that runs could fail."""
        if not any(_asserts(n) for node in self.list_running() for n in ast.walk(node)):
            raise UnusableTestsError("the tests assert nothing")

    def check_names(self, known: Collection[str]) -> tuple[list[str], set[str]]:
        """Return the modules that the tests use without importing them, and all such names."""
        free = self._list_free()
        if self.entry_point is not None and not self._uses_entry_point():
            raise UnusableTestsError(f"the tests never use {self.entry_point}")
        if self.entry_point is None and not free:
            raise UnusableTestsError("the tests use nothing of the program")
        known = {*known, *([self.entry_point] if self.entry_point else [])}
        modules = (free - known) & sys.stdlib_module_names & self._list_owners()
        odd = sorted(free - known - modules) if known & free else []
        if odd and not _imports_all(self.tree):
            raise UnusableTestsError(f"the tests use {odd[0]}, which nothing defines")
        return sorted(modules), free - {self.entry_point}

    def _list_owners(self) -> set[str]:
        """Return the names that are only used as ``name.attribute``."""
        nodes = [n for node in self.list_running() for n in ast.walk(node)]
        owners = [n.value for n in nodes if isinstance(n, ast.Attribute)]
        others = {n.id for n in nodes if isinstance(n, ast.Name) and n not in owners}
        return {n.id for n in owners if isinstance(n, ast.Name)} - others

    def _uses_entry_point(self) -> bool:
        return self.takes_candidate or any(
            (isinstance(n, ast.Name) and n.id == self.entry_point)
            or (isinstance(n, ast.Attribute) and n.attr == self.entry_point)
            for node in self.list_running()
            for n in ast.walk(node)
        )

    def _list_free(self) -> set[str]:
        """Return the names that what runs reads, and nothing in the tests binds."""
        bound = {"__name__", "__file__", "__doc__", *_list_bound(self.tree)}
        loaded = {name for node in self.list_running() for name in _list_loaded(node)}
        return {
            name
            for name in loaded - bound
            if not hasattr(builtins, name) or name == self.entry_point
        }


def _is_test(function: _Function) -> bool:
    """Return whether unittest runs a method as a test, and does not skip it."""
    is_skipped = any("skip" in ast.dump(decorator) for decorator in function.decorator_list)
    return not is_skipped and (function.name.startswith("test") or function.name == "runTest")


def _write_call(function: _Function, call: str) -> str:
    return f"await {call}" if isinstance(function, ast.AsyncFunctionDef) else call


def _refuse_fixtures(function: _Function, *, given: int) -> None:
    arguments = [*function.args.posonlyargs, *function.args.args]
    needed = len(arguments) - len(function.args.defaults) - given
    if needed > 0:
        name = arguments[given].arg
        raise UnusableTestsError(f"{function.name} wants {name}, a fixture or parameter of pytest")


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
            if isinstance(node, ast.Import | ast.ImportFrom):
                found |= dict(_split_import(node))
    return found


def _split_import(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    origin = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        module = (origin.split(" ")[1] if origin else alias.name).partition(".")[0]
        if module in sys.stdlib_module_names and module != "__future__" and alias.name != "*":
            name = alias.asname or alias.name.partition(".")[0]
            whole = f" as {alias.asname}" if alias.asname else ""
            yield name, f"{origin}import {alias.name}{whole}"


def _imports_all(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.alias) and node.name == "*" for node in ast.walk(tree))


def _asserts(node: ast.AST) -> bool:
    """Return whether a node can fail for one program and not for another."""
    if isinstance(node, ast.Assert):
        return bool(_list_loaded(node.test))
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else name
        return name.startswith(("assert", "fail")) or called in ("exit", "_exit", "quit")
    return isinstance(node, ast.Raise)
