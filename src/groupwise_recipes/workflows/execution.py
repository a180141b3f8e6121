"""Runs programs over operators in the sandbox, many at once, and says what came of each."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from groupwise.core import (
    Message,
    ModelError,
    SandboxError,
    derive_seed,
    digest_json,
    dump_config,
    make_example,
)
from groupwise.inference.model import (
    Model,
    RequestError,
    Usage,
    ask_until_whole,
    on_shared_loop,
    run_on_shared_loop,
)
from groupwise.judges import Asker, ReplyCache
from groupwise.sandbox import Limits, ProgramTests, Result, explain_missing, run_python_async
from groupwise_recipes.workflows.calls import TOO_LONG, Ending, ProgramCalls
from groupwise_recipes.workflows.once import Once
from groupwise_recipes.workflows.operators import (
    OPERATORS,
    OperatorFunction,
    PublicProblem,
    make_operators,
    publish,
)
from groupwise_recipes.workflows.outcome import (
    MAX_ANSWER_CHARACTERS,
    PROGRAM_LIMITS,
    WRITTEN_LIMITS,
    ExecutionSettings,
    OperatorLimits,
    Outcome,
)
from groupwise_recipes.workflows.problem_sets import Problem

_HOST = "call_operator"
_LIMITS = OperatorLimits()
# Names that programs see; the host trusts nothing of it.
_PRELUDE = """
class OperatorError(Exception):
    pass
class Result(dict):
    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(f"the result has no {name}; it has {', '.join(self)}")
def make_operator(name, call):
    async def operator(*args, **kwargs):
        reply = await call(name, args, kwargs)
        if "error" in reply:
            raise OperatorError(reply["error"])
        value = reply["value"]
        return Result(value) if type(value) is dict else value
    operator.__name__ = operator.__qualname__ = name
    return operator
"""


class Executor:
    """Runs programs whose operators a model answers.

    Args:
        responder: the model.
        operators: functions by name; see ``groupwise_recipes.workflows.operators``.
        settings: limits, sampling and retries.
        limits: of one operator within one program.
        program: of the program itself.
        cache: where replies are kept; None: only those being asked for are shared.

    Raises:
        ConfigError: if an operator cannot be used.
        SandboxError: if there is no sandbox on this machine.
    """

    def __init__(
        self,
        responder: Model,
        operators: Mapping[str, OperatorFunction] = OPERATORS,
        *,
        settings: ExecutionSettings | None = None,
        limits: OperatorLimits = _LIMITS,
        program: Limits = PROGRAM_LIMITS,
        cache: ReplyCache | None = None,
    ) -> None:
        missing = explain_missing()
        if missing is not None:
            raise SandboxError(f"programs cannot be run here: {missing}")
        self.responder = responder
        self.operators = make_operators(operators)
        self.settings = settings or ExecutionSettings()
        self._limits, self._program = limits, program
        self.spent = Usage()
        self.num_outcomes: Counter[str] = Counter()
        self.failed_requests: Counter[str] = Counter()
        self._answers = False
        self.cache = cache
        self._asker = Asker(cache=cache, settings=self.settings.retry)
        self._places = asyncio.Semaphore(self.settings.max_at_once)
        self._outcomes = Once[Outcome](_depends_on_the_program_alone)
        self._runs = Once[Result](lambda result: result.status in ("passed", "failed"))

    @on_shared_loop
    async def check(self) -> None:
        """Ask the model something, so that a wrong setting is found before programs are blamed."""
        example = make_example([Message("user", "Reply with the word ready.")], cluster="operator")
        try:
            reply = await self.responder.reply(example, sampling=self.settings.sampling)
            reply.require_text()
            self._answers = True
        except RequestError as error:
            raise ModelError(
                f"the executor does not answer ({str(error).rstrip('.')})",
                fix="start its server, and compare address and served model name with the config",
            ) from error

    @on_shared_loop
    async def run(self, source: str, problem: Problem) -> Outcome:
        """Run a program that has passed the checks on a problem.

        The same program on the same problem is not run again: it has the same outcome.
        """
        public = publish(problem)
        outcome = await self._outcomes.get((source, public), lambda: self._execute(source, public))
        self.num_outcomes[outcome.fault or "value"] += 1
        return outcome

    async def _execute(self, source: str, public: PublicProblem) -> Outcome:
        async with self._places:
            calls = ProgramCalls(
                self.operators,
                public,
                self.settings,
                self._limits,
                ask=self._ask,
                run=self._run_written,
            )
            work = asyncio.ensure_future(self._run(source, public, calls))
            try:
                await asyncio.wait({work, calls.end}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
            if calls.end.done():
                why = calls.end.result()
                if isinstance(why, Exception):
                    raise why
                return calls.make_outcome(None, why)
            return calls.make_outcome(*self._read(work.result()))

    def run_all(self, pairs: Sequence[tuple[str, Problem]]) -> list[Outcome]:
        """Run programs on problems, at most ``max_at_once`` at a time; outcomes in order."""
        return run_on_shared_loop(self._run_all(pairs))

    def report(self) -> dict[str, Any]:
        """Return counts since the start: outcomes by fault, failed requests, what was spent.

        ``num_runs`` is less than all outcomes where a program was not run again.
        """
        return {
            "outcomes": dict(self.num_outcomes),
            "num_runs": self._outcomes.num_done,
            "failed_requests": dict(self.failed_requests),
            "num_requests": self.spent.num_calls,
            "prompt_tokens": self.spent.prompt_tokens,
            "completion_tokens": self.spent.completion_tokens,
            "reasoning_tokens": self.spent.reasoning_tokens,
            "cost": self.spent.cost,
        }

    async def _run_all(self, pairs: Sequence[tuple[str, Problem]]) -> list[Outcome]:
        tasks = [asyncio.ensure_future(self.run(*pair)) for pair in pairs]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, source: str, public: PublicProblem, calls: ProgramCalls) -> Result:
        limits = self._program.model_copy(
            update={"num_host_calls": self.settings.max_calls + 1, "host_timeout_s": 1e9}
        )
        program = _wrap(source, public, self.operators)
        return await run_python_async(
            program, functions={_HOST: calls.call}, limits=limits, is_in_order=True
        )

    async def _run_written(self, program: str, tests: ProgramTests | None) -> Result:
        """Run a program that an operator wrote; the same one is not run again."""
        return await self._runs.get(
            (program, tests), lambda: run_python_async(program, tests=tests, limits=WRITTEN_LIMITS)
        )

    def _read(self, result: Result) -> tuple[str | None, Ending | None]:
        """Return the value of a finished program, or why it has none."""
        if result.status == "refused":
            return None, Ending("executor", "sandbox", result.message)
        if result.status != "passed":
            is_operators = result.status == "failed" and result.error == "OperatorError"
            failed = "operator_error" if is_operators else "error"
            reason: Any = failed if result.status == "failed" else result.status
            return None, Ending("policy", reason, f"{result.error} {result.message}".strip())
        value = result.value
        if value is None or (isinstance(value, str) and not value.strip()):
            return None, Ending("policy", "no_value", "the program returned nothing")
        if not isinstance(value, str | int | float):
            what = f"the program returned a {getattr(value, 'type_name', type(value).__name__)}"
            return None, Ending("policy", "wrong_type", what)
        answer = str(value)
        if len(answer) > MAX_ANSWER_CHARACTERS:
            return None, Ending("policy", "too_long", f"its answer has {len(answer)} characters")
        return answer, None

    async def _ask(self, text: str, seed: int) -> tuple[str, Usage]:
        """Return the model's reply under this seed: kept, being fetched, or fetched now."""
        example = make_example([Message("user", text)], cluster="operator")
        base = self.settings.sampling
        sampling = base.model_copy(update={"seed": derive_seed(base.seed or 0, seed)})
        ask = ask_until_whole(self.responder, example, sampling)

        async def attempt() -> tuple[Mapping[str, Any], Usage]:
            said, used = await ask()
            return {"text": said, "usage": list(astuple(used)[1:])}, used

        key = digest_json([dict(self.responder.identity), example.id, dump_config(sampling)])
        outcome = await self._asker.ask(key, attempt)
        self.spent += outcome.usage
        self.failed_requests.update(outcome.failures)
        if isinstance(outcome.result, RequestError):
            if outcome.result.status in TOO_LONG and not self._answers:
                await self.check()
            raise outcome.result
        return str(outcome.result["text"]), Usage(1, *outcome.result["usage"])


def _depends_on_the_program_alone(outcome: Outcome) -> bool:
    """Say whether an outcome would be the same on a machine that is less busy."""
    return outcome.fault != "executor" and outcome.reason not in ("timeout", "crashed")


def _wrap(source: str, public: PublicProblem, operators: Mapping[str, Any]) -> str:
    """Return the program with what it may use before it and its call after it."""
    made = "".join(f"{name} = make_operator({name!r}, {_HOST})\n" for name in operators)
    given = (public.problem, public.entry_point, list(public.public_tests))
    call = f"await workflow(*{given!r}[: workflow.__code__.co_argcount])"
    return f"{_PRELUDE}{made}\n{source}\n{call}\n"
