"""Reward: does the program in the answer pass the example's tests?

Range: 0 or 1. The program runs in ``groupwise.sandbox``, its tests where it cannot reach them.
"""

import ast
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.fields import read_list
from groupwise.rewards.reward import RewardKind
from groupwise.sandbox import Limits, ProgramTests, run_python

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)


class CodeTests:
    """1 if the program passes the example's tests, else 0.

    The program is the last fenced block that defines the entry point, else the last fenced block,
    else the whole text. Text without a program, or with one that does not parse, is invalid. An
    example without tests cannot be scored, and neither can a program that the sandbox refuses:
    it was not run, or its tests need what cannot be handed to a program.

    Args:
        tests: field with the tests: Python source, or a list of sources.
        entry_point: field with the name of the tested function, if there is one. Tests that define
            ``check`` and do not call it are called with that function, as HumanEval has them.
        limits: of the program with its tests.
        num_workers: programs at a time, for ``score_batch``.
    """

    name = "code_tests"
    kind: RewardKind = "truth"

    def __init__(
        self,
        *,
        tests: str = "tests",
        entry_point: str = "entry_point",
        limits: Limits | None = None,
        num_workers: int = 4,
    ) -> None:
        self.tests = tests
        self.entry_point = entry_point
        self.limits = limits or Limits()
        self.num_workers = num_workers

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if the tests or the entry point are no text, or the tests do not parse.
        """
        tests = self._read_tests(example)
        if tests is None:
            return Score(None, "no tests")
        program = find_program(completion.text, tests.entry_point)
        problem = _explain_unparsable(program)
        if problem:
            return Score(0.0, problem, invalid=True)
        result = run_python(program, tests=tests, limits=self.limits)
        why = ": ".join(part for part in (result.error, result.message) if part)
        if result.status == "refused":
            return Score(None, why)
        if result.status == "passed":
            return Score(1.0, "it passes its tests")
        return Score(0.0, f"{result.status}{f' ({why})' if why else ''}")

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return one score for each pair, in order; several programs run at a time."""
        with ThreadPoolExecutor(self.num_workers) as workers:
            return list(workers.map(self, examples, completions))

    def _read_tests(self, example: Example) -> ProgramTests | None:
        given = example.fields.get(self.tests)
        if given is None:
            return None
        parts = [given] if isinstance(given, str) else read_list(given)
        texts = [part for part in parts or () if isinstance(part, str)]
        if parts is None or len(texts) < len(parts):
            raise RewardError(
                f"example {example.id} has tests that are no Python source",
                got=type(given).__name__,
                expected=f"text or a list of texts in the field {self.tests}",
            )
        name = example.fields.get(self.entry_point)
        if name is not None and not (isinstance(name, str) and name.isidentifier()):
            raise RewardError(f"example {example.id} has an entry point that is no name", got=name)
        source = "\n".join(texts)
        return ProgramTests(_call_check(source, name, example), name) if source.strip() else None


def find_program(text: str, entry_point: str | None = None) -> str:
    """Return the program in a text: of fenced blocks the last that defines the entry point."""
    blocks = [match.group(2) for match in _FENCE.finditer(text)]
    if not blocks:
        return text
    pattern = re.compile(rf"^\s*(?:async\s+def|def|class)\s+{re.escape(entry_point or '')}\b", re.M)
    fitting = [block for block in blocks if entry_point and pattern.search(block)]
    return (fitting or blocks)[-1]


def _explain_unparsable(program: str) -> str:
    try:
        tree = ast.parse(program.encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the program does not parse ({error})"
    return "" if tree.body else "there is no program"


def _call_check(source: str, entry_point: str | None, example: Example) -> str:
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise RewardError(f"example {example.id} has tests that do not parse ({error})") from error
    defines = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in body)
    calls = [node.value for node in body if isinstance(node, ast.Expr)]
    is_called = any(
        isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check"
        for call in calls
    )
    if entry_point and defines and not is_called:
        return f"{source}\ncheck({entry_point})\n"
    return source
