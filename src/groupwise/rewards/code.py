"""Programs as answers: their parser, and the reward of passing the example's tests.

Range: 0 or 1. The program runs in ``groupwise.sandbox``, its tests where it cannot reach them.

Tests are Python (see ``python_tests``), or inputs for a program's stdin with the outputs that it
has to print: ``{"inputs": [...], "outputs": [...]}`` as APPS has them, or a list of ``{"input",
"output"}`` as LiveCodeBench has, each also as the text of that JSON.

Source: testing_util.py of github.com/hendrycks/apps. As there, lines are compared without the space
around them and all of the output without the empty lines around it; lines of numbers are compared
as numbers, and an exit is an end.
"""

import ast
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Literal

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


_Suite = ProgramTests | _InputCases


def _read_cases(given: object) -> _InputCases:
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
    texts: list[list[str]] = []
    for one in (*inputs, *outputs):  # APPS also has lists of lines
        lines = [one] if isinstance(one, str) else read_list(one) or [None]
        texts.append([line for line in lines if isinstance(line, str)])
        if len(texts[-1]) < len(lines):
            raise UnusableTestsError("an input or output is no text")
    joined = ["\n".join(lines) for lines in texts]
    cases = tuple(zip(joined[: len(inputs)], joined[len(inputs) :], strict=True))
    if not any(output.strip() for _, output in cases):
        raise UnusableTestsError("the tests expect no output")
    return _InputCases(cases)


def _run_suite(program: str, suite: _Suite, limits: Limits) -> Result:
    """Run a program with its tests; where they are inputs, up to the first wrong output."""
    if isinstance(suite, ProgramTests):
        return run_python(program, tests=suite, limits=limits)
    # The sandbox has no site module, which makes these two.
    exits = "" if "__future__" in program else "from sys import exit, exit as quit\n"
    result = Result("passed")
    for number, (given, wanted) in enumerate(suite.cases, 1):
        result = run_python(exits + program, stdin=given, limits=limits)
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
