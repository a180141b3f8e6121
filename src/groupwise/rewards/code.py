"""Programs as answers: their parser, and the reward of passing the example's tests.

Range: 0 or 1. The program runs in ``groupwise.sandbox``, its tests where it cannot reach them.

Tests are Python, or inputs for a program's stdin with the outputs that it has to print:
``{"inputs": [...], "outputs": [...]}`` as APPS has them, or a list of ``{"input", "output"}`` as
LiveCodeBench has, each also as the text of that JSON. Python tests come as plain asserts (MBPP), as
``check(candidate)`` (HumanEval), as functions ``test_*`` and as unittest cases; they are read
without running them. What only defines tests is made to run them; what could not fail for any
program, or could not run for any, is unusable.

Source: testing_util.py of github.com/hendrycks/apps. As there, lines are compared without the space
around them and all of the output without the empty lines around it; lines of numbers are compared
as numbers, and an exit is an end.
"""

import ast
import builtins
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Literal

from groupwise.core import Completion, Example, Score, parse_python
from groupwise.rewards.reward import (
    BatchReward,
    OpenParser,
    Parsed,
    Reward,
    RewardKind,
    read_list,
    read_mapping,
)
from groupwise.sandbox import Limits, ProgramTests, Result, run_python

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)
_NUM_WORKERS = 4
_DEFINITION = re.compile(r"^(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*\(", re.M)


class UnusableTestsError(Exception):
    """Tests that can decide about no program; its text says why."""


class CodeParser(OpenParser):
    """The last fenced block that defines the entry point, else the last one, else all of the text.

    Text without a program, or with one that does not parse, is no answer.

    Attributes:
        entry_point: field of examples with the name of the function that is to be defined.
    """

    kind: Literal["code"] = "code"
    entry_point: str = "entry_point"

    def make_reward(self) -> Reward:
        return CodeTests(self)

    def _read(self, text: str, example: Example | None) -> Parsed:
        name: object = example.fields.get(self.entry_point) if example else None
        program, start = _find_program(text, name if isinstance(name, str) else None)
        problem = _explain_unparsable(program)
        if problem:
            return Parsed(None, problem)
        return Parsed(program.strip("\n"), prefix=text[:start])

    def _normalize(self, target: str) -> str:
        """Return the program of a target; one that stands alone may have fences in its strings."""
        is_bare = not _explain_unparsable(target)
        return (target if is_bare else _find_program(target)[0]).strip("\n")

    def _spell(self, answer: str) -> str:
        longest = max(map(len, re.findall("`{3,}", answer)), default=2)
        fence = "`" * (longest + 1)
        return f"{fence}python\n{answer}\n{fence}"


def _find_program(text: str, entry_point: str | None = None) -> tuple[str, int]:
    """Return the program in a text, and where it or its fence starts."""
    blocks = list(_FENCE.finditer(text))
    if not blocks:
        return text, 0
    pattern = re.compile(rf"^\s*(?:async\s+def|def|class)\s+{re.escape(entry_point or '')}\b", re.M)
    fitting = [block for block in blocks if entry_point and pattern.search(block.group(2))]
    chosen = (fitting or blocks)[-1]
    return chosen.group(2), chosen.start()


def _explain_unparsable(program: str) -> str:
    """Return why a text is no program; empty if it is one."""
    try:
        tree = parse_python(program.encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the program does not parse ({error})"
    return "" if tree.body else "there is no program"


_Suite = ProgramTests | tuple[tuple[str, str], ...]
"""Python tests; or what a program is given and what it has to print, at least one pair."""


class CodeTests(BatchReward):
    """1 if the program passes the example's tests, else 0.

    Tests are Python source (plain asserts, ``check(candidate)``, functions ``test_*``, unittest
    cases), a list of sources, or inputs with outputs as in APPS and LiveCodeBench;
    whatever they only define is called. Whether they can decide is said from the example alone,
    once: by reading them, by a program that defines nothing, which must not pass, and by the
    reference solution where there is one, which must. An example whose tests cannot decide has no
    score for any program, and neither has a program that the sandbox refuses. Where the reference
    solution passed, tests need nothing that the sandbox cannot do: what is refused then was the
    program's doing, and is 0. Examples have their tests in the field ``tests`` and may have a
    reference solution in ``solution``, or as their label if that is a program.

    Args:
        parser: finds the program, and has the field with the name of the tested function; without
            that field, it is the function of the reference solution or of the prompt that the
            tests use. None: a CodeParser.
        limits: of the program with its tests; of each input, where tests are inputs and outputs.
    """

    name = "code_tests"
    kind: RewardKind = "truth"

    def __init__(self, parser: CodeParser | None = None, *, limits: Limits | None = None) -> None:
        self.parser = parser or CodeParser()
        self.limits = limits or Limits()
        self._suites: dict[str, _Suite | str] = {}
        self._proven: set[str] = set()

    def applies_to(self, example: Example) -> bool:
        return example.fields.get("tests") is not None

    def __call__(self, example: Example, completion: Completion) -> Score:
        if not self.applies_to(example):
            return Score(None, "no tests")
        suite = self._look_up(example)
        if isinstance(suite, str):
            return Score(None, suite)
        name = suite.entry_point if isinstance(suite, ProgramTests) else None
        fields = {**example.fields, self.parser.entry_point: name}
        answer = self.parser.parse(completion.text, replace(example, fields=fields))
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        result = _run_suite(answer.label, suite, self.limits)
        if result.status == "passed":
            return Score(1.0, "it passes its tests")
        is_own_doing = result.in_tests and example.id in self._proven
        is_unknown = result.status == "refused" and not is_own_doing
        return Score(None if is_unknown else 0.0, _describe(result))

    def explain_unusable(self, example: Example) -> str | None:
        suite = self._look_up(example) if self.applies_to(example) else None
        return suite if isinstance(suite, str) else None

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score for each pair, in order; several programs run at a time."""
        with ThreadPoolExecutor(_NUM_WORKERS) as workers:
            # Each example's tests first, so that no two workers find out about the same ones.
            list(workers.map(self.explain_unusable, {e.id: e for e in examples}.values()))
            return list(workers.map(self, examples, completions))

    def _look_up(self, example: Example) -> _Suite | str:
        """Return the example's tests, or why they cannot be used; once per example."""
        if example.id not in self._suites:
            try:
                self._suites[example.id] = self._make_suite(example)
            except UnusableTestsError as error:
                self._suites[example.id] = str(error)
        return self._suites[example.id]

    def _make_suite(self, example: Example) -> _Suite:
        given = example.fields["tests"]
        prompt = "\n".join(message.text for message in example.prompt)
        name = example.fields.get(self.parser.entry_point)
        if name is not None and not (isinstance(name, str) and name.isidentifier()):
            raise UnusableTestsError(f"the entry point {name!r} is no name")
        solution = example.fields.get("solution")
        reference = _find_program(solution if isinstance(solution, str) else example.label or "")[0]
        tree = None if _explain_unparsable(reference) else parse_python(reference.encode())
        if not isinstance(solution, str):  # a label such as 42 parses, but is no program
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Call)
            is_program = tree is not None and any(isinstance(n, kinds) for n in ast.walk(tree))
            reference = reference if is_program else ""
        parts = [given] if isinstance(given, str) else read_list(given)
        texts = [part for part in parts or () if isinstance(part, str)]
        source = None if parts is None or len(texts) < len(parts) else "\n".join(texts)
        if source is not None and not source.strip():
            raise UnusableTestsError("the tests are empty")
        if source is None or source.lstrip()[0] in "{[":
            suite = _read_cases(given)
        else:
            if name is None:  # the function that tests use first; ``check`` means the last one
                names = _DEFINITION.findall(reference or prompt)
                uses = [re.search(rf"\b{re.escape(known)}\b", source) for known in names]
                starts = [(use.start(), use.group()) for use in uses if use]
                if "check" in _DEFINITION.findall(source):
                    name = names[-1] if names else None
                else:
                    name = min(starts, default=(0, None))[1]
            known = set(re.findall(r"\w+", prompt))
            if reference:
                known = set[str]() if tree is None else _list_bound(tree)
            imports = list_imports(reference or prompt)
            suite = prepare_tests(source, name, known=known, imports=imports)
            if _run_suite("", suite, self.limits).status == "passed":
                raise UnusableTestsError("a program that defines nothing passes the tests")
        if reference:
            result = _run_suite(reference, suite, self.limits)
            is_unknown = result.status == "refused" and not result.in_tests
            if result.status == "passed":
                self._proven.add(example.id)
            elif not is_unknown:
                why = _describe(result)
                raise UnusableTestsError(f"the reference solution does not pass: {why}")
        return suite


def _read_cases(given: object) -> tuple[tuple[str, str], ...]:
    """Return the cases in a mapping, or in a list of mappings, also as the text of its JSON."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise UnusableTestsError("the tests are neither Python nor JSON") from None
    table, rows = read_mapping(given), [read_mapping(row) for row in read_list(given) or ()]
    if table is None and rows and None not in rows:
        names = [("inputs", "input"), ("outputs", "output")]
        table = {name: [(row or {}).get(key) for row in rows] for name, key in names}
        if any((row or {}).get("testtype", "stdin") != "stdin" for row in rows):
            table = {"fn_name": "one"}
    if table and table.get("fn_name") is not None:
        raise UnusableTestsError("the tests call a function with JSON; write them as Python")
    inputs, outputs = (read_list((table or {}).get(name)) for name in ("inputs", "outputs"))
    if inputs is None or outputs is None:
        raise UnusableTestsError("the tests are neither Python nor inputs with outputs")
    if len(inputs) != len(outputs) or not inputs:
        raise UnusableTestsError(f"the tests have {len(inputs)} inputs and {len(outputs)} outputs")
    texts: list[str] = []
    for one in (*inputs, *outputs):  # APPS also has lists of lines
        lines = [one] if isinstance(one, str) else read_list(one) or [None]
        if not all(isinstance(line, str) for line in lines):
            raise UnusableTestsError("an input or output is no text")
        texts.append("\n".join(map(str, lines)))
    if not any(output.strip() for output in texts[len(inputs) :]):
        raise UnusableTestsError("the tests expect no output")
    return tuple(zip(texts[: len(inputs)], texts[len(inputs) :], strict=True))


def _run_suite(program: str, suite: _Suite, limits: Limits) -> Result:
    """Run a program with its tests; where they are inputs, up to the first wrong output."""
    if isinstance(suite, ProgramTests):
        return run_python(program, tests=suite, limits=limits)
    # The sandbox has no site module, which makes these two.
    exits = "" if "__future__" in program else "from sys import exit, exit as quit\n"
    result = Result("passed")
    for number, (given, wanted) in enumerate(suite, 1):
        result = run_python(exits + program, stdin=given, limits=limits)
        if result.status == "failed" and result.error == "SystemExit":
            result = replace(result, status="passed", error="", message="")
        place = f"input {number} of {len(suite)}"
        if result.status != "passed":
            return replace(result, message=f"{place}: {result.message}")
        problem = compare_output(result.stdout, wanted)
        if problem:
            return replace(result, status="failed", message=f"{place}: {problem}")
    return result


def _describe(result: Result) -> str:
    why = ": ".join(part for part in (result.error, result.message) if part)
    if result.status == "refused":
        return why
    return f"{result.status}{f' ({why})' if why else ''}"


def compare_output(found: str, wanted: str) -> str:
    """Return the first difference between two outputs; empty if they count as the same."""
    lines, expected = ([x.strip() for x in text.strip().split("\n")] for text in (found, wanted))
    if len(lines) != len(expected):
        return f"{len(lines)} lines instead of {len(expected)}"
    for number, pair in enumerate(zip(lines, expected, strict=True), 1):
        if pair[0] == pair[1]:
            continue
        try:
            said, right = ([Decimal(word) for word in line.split()] for line in pair)
            is_same = said == right
        except InvalidOperation:  # also of comparing a signaling NaN
            is_same = False
        if not is_same:
            return f"line {number} differs"
    return ""


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
    running, calls, cases, takes_candidate = _plan_calls(tree, entry_point)
    _check_imports(tree)
    nodes = [n for node in running for n in ast.walk(node)]
    if not any(map(_asserts, nodes)):
        raise UnusableTestsError("the tests assert nothing")
    if entry_point is not None and not (
        takes_candidate
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
    if cases:
        before.append(_QUIET_MAIN)
        calls.append(_RUN_CASES.format(cases=", ".join(cases)))
    if before or calls:  # behind the imports of __future__, which have to stay the first
        froms = [n for n in tree.body if isinstance(n, ast.ImportFrom)]
        first = max((n.end_lineno or 0 for n in froms if n.module == "__future__"), default=0)
        lines = source.split("\n")
        source = "\n".join([*lines[:first], *before, *lines[first:], *calls])
    return ProgramTests(source, entry_point)


def _plan_calls(
    tree: ast.Module, entry_point: str | None
) -> tuple[list[ast.AST], list[str], list[str], bool]:
    """Return what runs, calls of functions, unittest cases, and whether ``check`` is called.

    Statements of the module run, what is called for them, and every definition whose name something
    that runs reads.
    """
    defined = {node.name: node for node in tree.body if isinstance(node, _Definition)}
    roots: list[ast.AST] = [node for node in tree.body if not isinstance(node, _Definition)]
    calls, cases = list[str](), list[str]()

    def list_running() -> list[ast.AST]:
        running = list(roots)
        for node in running:  # grows
            names = [name for name in _list_loaded(node) if name in defined]
            running += [defined[name] for name in names if defined[name] not in running]
        return running

    def is_case(node: ast.ClassDef) -> bool:
        for base in node.bases:
            name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            above = defined.get(name)
            if name in _CASES or (isinstance(above, ast.ClassDef) and is_case(above)):
                return True
        return False

    def call(function: _Function, given: str = "") -> None:
        roots.append(function)
        waits = "await " if isinstance(function, ast.AsyncFunctionDef) else ""
        calls.append(f"{waits}{function.name}({given})")

    check = defined.get("check")
    takes_candidate = isinstance(check, _Function) and "check" not in _list_loaded(tree)
    if isinstance(check, _Function) and takes_candidate:
        if entry_point is None:
            raise UnusableTestsError("the tests define check and there is no entry point for it")
        arguments = [*check.args.posonlyargs, *check.args.args]
        if len(arguments) != 1 or arguments[0].arg not in _list_loaded(check):
            raise UnusableTestsError("check does nothing with one candidate")
        call(check, entry_point)
    used = {name for node in list_running() for name in _list_loaded(node)}
    for name, node in defined.items():
        if isinstance(node, _Function) and name.startswith("test") and name not in used:
            arguments = [*node.args.posonlyargs, *node.args.args]
            if len(arguments) > len(node.args.defaults):
                wanted = arguments[0].arg
                raise UnusableTestsError(f"{name} wants {wanted}, a fixture or parameter of pytest")
            call(node)
    num_tests = 0
    for name, node in defined.items():
        if not isinstance(node, ast.ClassDef):
            continue
        methods = [  # which unittest runs as tests, and does not skip
            n
            for n in node.body
            if isinstance(n, _Function)
            and (n.name.startswith("test") or n.name == "runTest")
            and not any("skip" in ast.dump(decorator) for decorator in n.decorator_list)
        ]
        if is_case(node):
            cases.append(name)
            roots.append(node)
            num_tests += len(methods)
        elif methods and name.startswith("Test") and name not in used:
            raise UnusableTestsError(f"{name} is a class for pytest; make it a unittest case")
    if cases and not num_tests:
        raise UnusableTestsError("the unittest cases have no tests that run")
    return list_running(), calls, cases, takes_candidate


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
