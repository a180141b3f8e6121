"""Programs as answers: their parser, and the reward of passing the example's tests.

Range: 0 or 1. The program runs in ``groupwise.sandbox``, its tests where it cannot reach them.

Tests are Python (see ``python_tests``), or inputs with their outputs: for a program's stdin and
stdout, or for calls of a function. APPS has ``{"inputs": [...], "outputs": [...]}`` with an
optional ``fn_name``, LiveCodeBench the same or a list of ``{"input", "output", "testtype"}``; each
also as the text of that JSON.

Source: testing_util.py of github.com/hendrycks/apps and of github.com/LiveCodeBench/LiveCodeBench.
As there: lines are compared without the space around them and all of the output without the empty
lines around it; lines of numbers are compared as numbers; a tuple counts as a list; of an expected
list of APPS the first item will do; a class ``Solution`` is used; names that everybody imports need
no import; an exit is an end. Otherwise than there: tuples within a result are lists too, and
nothing is patched: the program runs as a program and reads its real input.
"""

import ast
import builtins
import importlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Literal, cast

from groupwise.core import Completion, Example, Score, parse_python
from groupwise.rewards.parser import OpenParser
from groupwise.rewards.python_tests import (
    UnusableTestsError,
    list_imports,
    list_names,
    prepare_tests,
)
from groupwise.rewards.reward import (
    BatchReward,
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


class CodeParser(OpenParser):
    """The last fenced block that defines the entry point, else the last one, else all of the text.

    Text without a program, or with one that does not parse, is no answer.

    Attributes:
        entry_point: field of examples with the name of the function that is to be defined.
    """

    kind: Literal["code"] = "code"
    entry_point: str = "entry_point"

    def make_reward(self) -> Reward:
        """Return the reward of a program that passes the tests of its example."""
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


class CodeTests(BatchReward):
    """1 if the program passes the example's tests, else 0.

    Tests are Python source (plain asserts, ``check(candidate)``, functions ``test_*``, classes for
    pytest, unittest cases), a list of sources, or inputs with outputs as in APPS and LiveCodeBench;
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
        """Return whether the example has tests."""
        return example.fields.get("tests") is not None

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score."""
        if not self.applies_to(example):
            return Score(None, "no tests")
        suite = self._look_up(example)
        if isinstance(suite, str):
            return Score(None, suite)
        fields = {**example.fields, self.parser.entry_point: suite.entry_point}
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
        """Return why the example's tests can decide about no program; None if they can."""
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

    def _look_up(self, example: Example) -> "_Suite | str":
        """Return the example's tests, or why they cannot be used; once per example."""
        if example.id not in self._suites:
            try:
                self._suites[example.id] = self._make_suite(example)
            except UnusableTestsError as error:
                self._suites[example.id] = str(error)
        return self._suites[example.id]

    def _make_suite(self, example: Example) -> "_Suite":
        given = example.fields["tests"]
        prompt = "\n".join(message.text for message in example.prompt)
        name = example.fields.get(self.parser.entry_point)
        if name is not None and not (isinstance(name, str) and name.isidentifier()):
            raise UnusableTestsError(f"the entry point {name!r} is no name")
        solution = example.fields.get("solution")
        reference = _find_program(solution if isinstance(solution, str) else example.label or "")[0]
        if not isinstance(solution, str):  # a label such as 42 parses, but is no program
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Call)
            is_program = not _explain_unparsable(reference) and any(
                isinstance(n, kinds) for n in ast.walk(parse_python(reference.encode()))
            )
            reference = reference if is_program else ""
        source = _join_sources(given)
        if source is None:
            suite = _read_cases(given, name)
        else:
            if name is None:  # the function that tests use first; ``check`` means the last one
                names = _DEFINITION.findall(reference or prompt)
                uses = [re.search(rf"\b{re.escape(known)}\b", source) for known in names]
                starts = [(use.start(), use.group()) for use in uses if use]
                if "check" in _DEFINITION.findall(source):
                    name = names[-1] if names else None
                else:
                    name = min(starts, default=(0, None))[1]
            known = list_names(reference) if reference else set(re.findall(r"\w+", prompt))
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


def _join_sources(given: object) -> str | None:
    """Return Python tests as one source; None if what is given are inputs with outputs."""
    parts = [given] if isinstance(given, str) else read_list(given)
    texts = [part for part in parts or () if isinstance(part, str)]
    if parts is None or len(texts) < len(parts):
        return None
    source = "\n".join(texts)
    if not source.strip():
        raise UnusableTestsError("the tests are empty")
    return None if source.lstrip()[0] in "{[" else source


@dataclass(frozen=True, slots=True)
class _InputCases:
    """What a program is given and what it has to print, at least one pair of texts."""

    cases: tuple[tuple[str, str], ...]
    entry_point: None = None


@dataclass(frozen=True, slots=True)
class _CallCases:
    """What a function, or a method of ``Solution``, is given; any of some results will do."""

    cases: tuple[tuple[tuple[object, ...], tuple[object, ...]], ...]
    entry_point: str


_Suite = ProgramTests | _InputCases | _CallCases

_NO_FORM = "the tests are neither Python nor inputs with outputs"
_NO_JSON = "an input or output of a call is no JSON"


def _read_cases(given: object, entry_point: str | None) -> _Suite:
    """Return the cases in a mapping, or in a list of mappings, also as the text of its JSON."""
    if isinstance(given, str):
        given = _read_json(given, problem="the tests are neither Python nor JSON")
    table = read_mapping(given)
    if table is not None:
        inputs, outputs = read_list(table.get("inputs")), read_list(table.get("outputs"))
        name = table.get("fn_name")
    else:
        rows = [read_mapping(row) for row in read_list(given) or (None,)]
        if None in rows:
            raise UnusableTestsError(_NO_FORM)
        inputs, outputs = ([(row or {}).get(key) for row in rows] for key in ("input", "output"))
        kinds = {(row or {}).get("testtype", "stdin") for row in rows}
        if kinds == {"functional"} and entry_point is None:
            raise UnusableTestsError("the tests call a function and there is no entry point")
        name = entry_point if kinds == {"functional"} else None
        if kinds not in ({"functional"}, {"stdin"}):
            inputs = None
    if inputs is None or outputs is None or not isinstance(name, str | None):
        raise UnusableTestsError(_NO_FORM)
    if len(inputs) != len(outputs) or not inputs:
        raise UnusableTestsError(f"the tests have {len(inputs)} inputs and {len(outputs)} outputs")
    if name is None:
        cases = tuple(zip(map(_join_lines, inputs), map(_join_lines, outputs), strict=True))
        if not any(output.strip() for _, output in cases):
            raise UnusableTestsError("the tests expect no output")
        return _InputCases(cases)
    if not name.isidentifier():
        raise UnusableTestsError(f"{name!r} is no name of a function")
    calls = tuple(map(_read_call, inputs, outputs))
    if all(None in wanted for _, wanted in calls):
        raise UnusableTestsError("the tests expect no result")
    return _CallCases(calls, name)


def _join_lines(given: object) -> str:
    """Return a text as it is; APPS also has lists of lines."""
    lines = [given] if isinstance(given, str) else read_list(given)
    if lines is None or not all(isinstance(line, str) for line in lines):
        raise UnusableTestsError("an input or output is no text")
    return "\n".join(cast("Sequence[str]", lines))


def _read_call(given: object, wanted: object) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return arguments and accepted results: JSON lines (LiveCodeBench), or values (APPS)."""
    if isinstance(given, str):
        return tuple(map(_read_json, given.split("\n"))), (_read_json(wanted),)
    try:
        arguments, result = (
            _read_json(json.dumps(value, allow_nan=False)) for value in (given, wanted)
        )
    except (TypeError, ValueError, RecursionError):
        raise UnusableTestsError(_NO_JSON) from None
    items = read_list(arguments)
    if items is None:
        raise UnusableTestsError("the arguments of a call are no list")
    if len(items) == 1:
        items = [_restore_keys(items[0])]
    firsts = (read_list(result) or ())[:1]
    return tuple(items), tuple(map(_restore_keys, (result, *firsts)))


def _read_json(text: object, *, problem: str = _NO_JSON) -> object:
    """Return a JSON value that Python source can have: without NaN and infinite numbers."""

    def refuse(number: str) -> float:
        raise ValueError(f"{number} is no JSON")

    def read_float(number: str) -> float:
        return float(number) if math.isfinite(float(number)) else refuse(number)

    try:
        return json.loads(cast("str", text), parse_constant=refuse, parse_float=read_float)
    except (TypeError, ValueError, RecursionError):
        raise UnusableTestsError(problem) from None


def _restore_keys(value: object) -> object:
    """Return a dict with whole numbers as keys again, where JSON made text of all of them."""
    table = read_mapping(value)
    if not table or not all(key.lstrip("-").isdecimal() for key in table):
        return value
    return {int(key): item for key, item in table.items()}


_COMPARE = """
def as_lists_(value):
    if isinstance(value, (list, tuple)):
        return [as_lists_(item) for item in value]
    return value
"""


def _run_suite(program: str, suite: _Suite, limits: Limits) -> Result:
    """Run a program with its tests; where they are inputs, up to the first wrong output."""
    if isinstance(suite, ProgramTests):
        return run_python(program, tests=suite, limits=limits)
    program = _add_imports(program)
    if isinstance(suite, _CallCases):
        target = ("Solution()." if "class Solution" in program else "") + suite.entry_point
        lines = [
            f"assert as_lists_({target}({', '.join(map(repr, given))})) in {list(wanted)!r}"
            for given, wanted in suite.cases
        ]
        tests = ProgramTests("\n".join([_COMPARE, *lines]), suite.entry_point)
        return run_python(program, tests=tests, limits=limits)
    result = Result("passed")
    for number, (given, wanted) in enumerate(suite.cases, 1):
        result = run_python(program, stdin=given, limits=limits)
        if result.status == "failed" and result.error == "SystemExit":
            result = replace(result, status="passed", error="", message="")
        place = f"input {number} of {len(suite.cases)}"
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


def _add_imports(program: str) -> str:
    """Return a program with the imports that these data sets take for granted, where it needs them.

    Only names that it reads and never binds are imported.
    """
    try:
        tree = parse_python(program.encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return program  # it says so itself when it is run
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    missing = sorted((read - list_names(program)) & _list_assumed().keys())
    lines = [_list_assumed()[name] for name in missing]
    return program if "__future__" in program else "\n".join([*lines, program])


@cache
def _list_assumed() -> Mapping[str, str]:
    """Return the import of each name; what is a builtin stays one (``pow``)."""
    modules = ["typing", "bisect", "collections", "heapq", "itertools", "functools", "math"]
    lines: dict[str, str] = {}
    for module in modules:
        public: dict[str, Any] = vars(importlib.import_module(module))
        names = public.get("__all__") or [name for name in public if name[0] != "_"]
        lines |= {name: f"from {module} import {name}" for name in names}
    modules += ["copy", "datetime", "json", "operator", "random", "re", "string", "sys"]
    lines |= {name: f"import {name}" for name in modules}
    lines = {name: line for name, line in lines.items() if not hasattr(builtins, name)}
    # The sandbox has no site module, which makes these two.
    return lines | {"exit": "from sys import exit", "quit": "from sys import exit as quit"}
