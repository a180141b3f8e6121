"""What an operator works with during one call: the model, the sandbox, the public tests."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from groupwise.sandbox import ProgramTests, Result
from groupwise_recipes.workflows.operators.results import UnreadableError, read_reply
from groupwise_recipes.workflows.problem_sets import Problem

T = TypeVar("T")
AskModel = Callable[[str], Awaitable[str]]
"""Puts a text to the model and returns its whole reply."""
RunProgram = Callable[[str, ProgramTests | None], Awaitable[Result]]
"""Runs a program, then tests, in the sandbox."""


@dataclass(frozen=True, slots=True)
class PublicProblem:
    """What programs and operators may know of a problem: nothing that decides."""

    problem: str
    entry_point: str | None
    setup: str
    public_tests: tuple[str, ...]


def publish(problem: Problem) -> PublicProblem:
    """Return what a solver may see of a problem."""
    return PublicProblem(problem.problem, problem.entry_point, problem.setup, problem.public_tests)


@dataclass(frozen=True, slots=True)
class Session:
    """One call of an operator. An operator whose first parameter is a ``Session`` is given it.

    Attributes:
        problem: what may be known of the problem that is being solved.
        ask_model: puts a text to the model; what is asked again in the same call is drawn again.
        run_program: runs a program in the sandbox.
    """

    problem: PublicProblem
    ask_model: AskModel
    run_program: RunProgram

    async def ask(self, text: str, kind: type[T]) -> T:
        """Return the model's reply to ``text`` read as a ``kind``; see ``read_reply``.

        A reply that cannot be read is asked for once more.
        """
        try:
            return read_reply(await self.ask_model(text), kind)
        except UnreadableError:
            return read_reply(await self.ask_model(text), kind)

    async def run(self, program: str, *, tests: str | None = None) -> Result:
        """Run a program in the sandbox, then tests of the problem's function."""
        given = ProgramTests(tests, self.problem.entry_point) if tests is not None else None
        return await self.run_program(program, given)
