"""Programs as answers: their parser, and the reward of passing the example's tests.

Range: 0 or 1. The program runs in ``groupwise.sandbox``, its tests where it cannot reach them.
"""

import ast
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

from groupwise.core import Completion, Example, Score, parse_python
from groupwise.rewards.code_cases import (
    CallCases,
    InputCases,
    add_imports,
    compare_output,
    read_cases,
    read_json,
)
from groupwise.rewards.fields import read_list
from groupwise.rewards.parser import OpenParser, Parsed
from groupwise.rewards.python_tests import (
    UnusableTestsError,
    list_imports,
    list_names,
    prepare_tests,
)
from groupwise.rewards.reward import Reward, RewardKind
from groupwise.sandbox import Limits, ProgramTests, Result, run_python

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)


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
        program, start = find_program(text, name if isinstance(name, str) else None)
        problem = explain_unparsable(program)
        if problem:
            return Parsed(None, problem)
        return Parsed(program.strip("\n"), prefix=text[:start])

    def _normalize(self, target: str) -> str:
        """Return the program of a target; one that stands alone may have fences in its strings."""
        is_bare = not explain_unparsable(target)
        return (target if is_bare else find_program(target)[0]).strip("\n")

    def _spell(self, answer: str) -> str:
        longest = max(map(len, re.findall("`{3,}", answer)), default=2)
        fence = "`" * (longest + 1)
        return f"{fence}python\n{answer}\n{fence}"


def find_program(text: str, entry_point: str | None = None) -> tuple[str, int]:
    """Return the program in a text, and where it or its fence starts.

    Of fenced blocks it is the last that defines the entry point.
    """
    blocks = list(_FENCE.finditer(text))
    if not blocks:
        return text, 0
    pattern = re.compile(rf"^\s*(?:async\s+def|def|class)\s+{re.escape(entry_point or '')}\b", re.M)
    fitting = [block for block in blocks if entry_point and pattern.search(block.group(2))]
    chosen = (fitting or blocks)[-1]
    return chosen.group(2), chosen.start()


def explain_unparsable(program: str) -> str:
    """Return why a text is no program; empty if it is one."""
    try:
        tree = parse_python(program.encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the program does not parse ({error})"
    return "" if tree.body else "there is no program"


_DEFINITION = re.compile(r"^(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*\(", re.M)

Suite = ProgramTests | InputCases | CallCases


class CodeTests:
    """1 if the program passes the example's tests, else 0.

    Tests are Python source (plain asserts, ``check(candidate)``, functions ``test_*``, classes for
    pytest, unittest cases), a list of sources, or inputs with outputs as in APPS and LiveCodeBench;
    whatever they only define is called. Whether they can decide is said from the example alone,
    once: by reading them, by a program that defines nothing, which must not pass, and by the
    reference solution where there is one, which must. An example whose tests cannot decide has no
    score for any program, and neither has a program that the sandbox refuses. Where the reference
    solution passed, tests need nothing that the sandbox cannot do: what is refused then was the
    program's doing, and is 0.

    Args:
        parser: finds the program, and has the field with the name of the tested function; without
            that field, it is the function of the reference solution or of the prompt that the
            tests use. None: a CodeParser.
        tests: field with the tests.
        reference: field with a reference solution; without it the label, if that is a program.
        limits: of the program with its tests; of each input, where tests are inputs and outputs.
        num_workers: programs at a time, for ``score_batch``.
    """

    name = "code_tests"
    kind: RewardKind = "truth"

    def __init__(
        self,
        parser: CodeParser | None = None,
        *,
        tests: str = "tests",
        reference: str = "solution",
        limits: Limits | None = None,
        num_workers: int = 4,
    ) -> None:
        self.parser = parser or CodeParser()
        self.tests = tests
        self.reference = reference
        self.limits = limits or Limits()
        self.num_workers = num_workers
        self._suites: dict[str, Suite | str] = {}
        self._proven: set[str] = set()

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has tests."""
        return example.fields.get(self.tests) is not None

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score."""
        if example.fields.get(self.tests) is None:
            return Score(None, "no tests")
        suite = self._look_up(example)
        if isinstance(suite, str):
            return Score(None, suite)
        fields = {**example.fields, self.parser.entry_point: _get_name(suite)}
        answer = self.parser.parse(completion.text, replace(example, fields=fields))
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        result = run_suite(answer.label, suite, self.limits)
        is_own_doing = result.in_tests and example.id in self._proven
        if result.status == "refused" and not is_own_doing:
            return Score(None, _describe(result))
        if result.status == "passed":
            return Score(1.0, "it passes its tests")
        return Score(0.0, _describe(result))

    def explain_unusable(self, example: Example) -> str | None:
        """Return why the example's tests can decide about no program; None if they can."""
        if example.fields.get(self.tests) is None:
            return None
        suite = self._look_up(example)
        return suite if isinstance(suite, str) else None

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score for each pair, in order; several programs run at a time."""
        with ThreadPoolExecutor(self.num_workers) as workers:
            # Each example's tests first, so that no two workers find out about the same ones.
            list(workers.map(self.explain_unusable, {e.id: e for e in examples}.values()))
            return list(workers.map(self, examples, completions))

    def _look_up(self, example: Example) -> Suite | str:
        """Return the example's tests, or why they cannot be used; once per example."""
        if example.id not in self._suites:
            try:
                self._suites[example.id] = self._make_suite(example)
            except UnusableTestsError as error:
                self._suites[example.id] = str(error)
        return self._suites[example.id]

    def _make_suite(self, example: Example) -> Suite:
        given = example.fields[self.tests]
        reference = self._find_reference(example)
        prompt = "\n".join(message.text for message in example.prompt)
        name = example.fields.get(self.parser.entry_point)
        if name is not None and not (isinstance(name, str) and name.isidentifier()):
            raise UnusableTestsError(f"the entry point {name!r} is no name")
        source = _join_sources(given)
        if source is None:
            suite: Suite = read_cases(_parse_json(given), name)
        else:
            name = name or _derive_name(source, reference or prompt)
            known = list_names(reference) if reference else set(re.findall(r"\w+", prompt))
            imports = list_imports(reference or prompt)
            suite = prepare_tests(source, name, known=known, imports=imports)
        if self._try_out(suite, reference):
            self._proven.add(example.id)
        return suite

    def _try_out(self, suite: Suite, reference: str) -> bool:
        """Say whether the reference passes."""
        can_be_idle = isinstance(suite, ProgramTests)
        if can_be_idle and run_suite("", suite, self.limits).status == "passed":
            raise UnusableTestsError("a program that defines nothing passes the tests")
        if not reference:
            return False
        result = run_suite(reference, suite, self.limits)
        is_unknown = result.status == "refused" and not result.in_tests
        if result.status != "passed" and not is_unknown:
            raise UnusableTestsError(f"the reference solution does not pass: {_describe(result)}")
        return not is_unknown

    def _find_reference(self, example: Example) -> str:
        """Return the reference solution; empty if there is none."""
        given = example.fields.get(self.reference)
        if isinstance(given, str):
            return find_program(given)[0]
        program = find_program(example.label or "")[0]
        return program if _does_something(program) else ""


def run_suite(program: str, suite: Suite, limits: Limits) -> Result:
    """Run a program with its tests; where they are inputs, up to the first wrong output."""
    if isinstance(suite, ProgramTests):
        return run_python(program, tests=suite, limits=limits)
    program = add_imports(program)
    if isinstance(suite, CallCases):
        return run_python(program, tests=suite.write_tests(program), limits=limits)
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


def _get_name(suite: Suite) -> str | None:
    if isinstance(suite, ProgramTests):
        return suite.entry_point
    return suite.name if isinstance(suite, CallCases) else None


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


def _parse_json(given: object) -> object:
    """Return tests that are given as the text of their JSON; others as they are."""
    if not isinstance(given, str):
        return given
    try:
        return read_json(given)
    except UnusableTestsError:
        raise UnusableTestsError("the tests are neither Python nor JSON") from None


def _derive_name(source: str, program: str) -> str | None:
    """Return the function of a program that tests use first; None if there is none.

    Tests that define ``check`` name none: they mean the last one.
    """
    names = _DEFINITION.findall(program)
    if "check" in _DEFINITION.findall(source):
        return names[-1] if names else None
    uses = [re.search(rf"\b{re.escape(name)}\b", source) for name in names]
    return min(((use.start(), use.group()) for use in uses if use), default=(0, None))[1]


def _does_something(program: str) -> bool:
    """Return whether a text is a program: a label such as ``42`` parses, but does nothing."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Call)
    return not explain_unparsable(program) and any(
        isinstance(node, kinds) for node in ast.walk(parse_python(program.encode()))
    )
