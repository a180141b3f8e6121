"""The nine operators: coroutine functions; the policy reads the first line of each docstring."""

import string
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.sandbox import Described, Result
from groupwise_recipes.workflows.operators.prompts import render
from groupwise_recipes.workflows.operators.results import (
    Answer,
    Code,
    Formatted,
    OperatorError,
    Program,
    Response,
    Review,
    Solution,
    Tested,
    Vote,
)
from groupwise_recipes.workflows.operators.session import Session

OperatorFunction = Callable[..., Coroutine[Any, Any, Any]]
_MAX_PROGRAMS = 3
_MAX_REPAIRS = 3
_MAX_SHOWN = 2000


async def custom(session: Session, input: str, instruction: str) -> Response:
    """Follow an instruction on an input."""
    text = await session.ask_model(render("custom", {"input": input, "instruction": instruction}))
    return Response(text.strip())


async def answer_generate(session: Session, input: str) -> Answer:
    """Think step by step, then answer."""
    return await session.ask(render("answer_generate", {"input": input}), Answer)


async def code_generate(
    session: Session, problem: str, entry_point: str, instruction: str = ""
) -> Code:
    """Write the code of the function that a problem asks for."""
    fields = {"problem": problem, "entry_point": entry_point, "instruction": instruction}
    return await session.ask(render("code_generate", fields), Code)


async def programmer(session: Session, problem: str, analysis: str = "") -> Program:
    """Compute the answer with a program that is written and run, in up to 3 tries."""
    feedback = ""
    for _ in range(_MAX_PROGRAMS):
        fields = {"problem": problem, "analysis": analysis, "feedback": feedback}
        code = (await session.ask(render("programmer", fields), Code)).code
        result = await session.run(f"{code}\nsolve()")
        if result.status == "passed" and result.value is not None:
            return Program(code, _write_value(result.value))
        feedback = f"{code}\n\n{_describe_failure(result)}"
    raise OperatorError(f"none of {_MAX_PROGRAMS} programs gave an answer")


async def sc_ensemble(session: Session, solutions: list[str], problem: str) -> Vote:
    """Return the solution that most of several agree on."""
    try:
        text = render("sc_ensemble", {"solutions": solutions, "problem": problem})
    except ValueError as error:
        raise OperatorError(str(error)) from error
    letter = (await session.ask(text, _Letter)).letter
    place = string.ascii_uppercase.find(letter) if len(letter) == 1 else -1
    if 0 <= place < len(solutions):
        return Vote(solutions[place], True)
    return Vote(max(solutions, key=solutions.count), False)


async def test(session: Session, problem: str, solution: str, entry_point: str) -> Tested:
    """Run a solution on the public tests and mend it, in up to 3 rounds."""
    public = session.problem
    if entry_point is None or entry_point != public.entry_point:
        raise OperatorError(f"the problem has no entry point {entry_point!r}")
    if not public.public_tests:
        raise OperatorError("the problem has no public tests")
    tests = "\n".join([public.setup, *public.public_tests])
    result = await session.run(solution, tests=tests)
    for _ in range(_MAX_REPAIRS):
        if result.status == "passed":
            break
        fields = {"problem": problem, "solution": solution, "entry_point": entry_point}
        feedback = f"{tests}\n\n{_describe_failure(result)}"
        text = render("test", {**fields, "feedback": feedback})
        solution = (await session.ask(text, Solution)).solution
        result = await session.run(solution, tests=tests)
    return Tested(result.status == "passed", solution)


async def review(session: Session, problem: str, solution: str) -> Review:
    """Say whether a solution is right, and why."""
    return await session.ask(render("review", {"problem": problem, "solution": solution}), Review)


async def revise(session: Session, problem: str, solution: str, feedback: str) -> Solution:
    """Improve a solution by what a review says."""
    fields = {"problem": problem, "solution": solution, "feedback": feedback}
    return await session.ask(render("revise", fields), Solution)


async def format(session: Session, problem: str, solution: str) -> Formatted:
    """Take the answer alone out of a solution."""
    return await session.ask(
        render("format", {"problem": problem, "solution": solution}), Formatted
    )


_FUNCTIONS = (custom, answer_generate, code_generate, programmer)
_FUNCTIONS += (sc_ensemble, test, review, revise, format)
OPERATORS: Mapping[str, OperatorFunction] = {f.__name__: f for f in _FUNCTIONS}
"""The nine operators by name."""


@dataclass(frozen=True, slots=True)
class _Letter:
    letter: str


def _write_value(value: Any) -> str:
    if isinstance(value, Described):
        return value.text
    return value if isinstance(value, str) else repr(value)


def _describe_failure(result: Result) -> str:
    """Return how a program failed, for the model to read."""
    if result.status == "passed":
        return "solve() returned nothing."
    return f"It ended with {result.status}: {result.error} {result.message}".strip()[:_MAX_SHOWN]
