"""The operators as one program calls them: numbered, limited, counted, kept for its trace."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never

from groupwise.core import GroupwiseError, derive_seed, digest_json
from groupwise.inference.model import RequestError, Usage
from groupwise_recipes.workflows.operators import (
    Operator,
    OperatorError,
    PublicProblem,
    RunProgram,
    Session,
)
from groupwise_recipes.workflows.outcome import (
    Call,
    ExecutionSettings,
    OperatorLimits,
    Outcome,
    Reason,
)

AskWithSeed = Callable[[str, int], Awaitable[tuple[str, Usage]]]
"""Puts a text to the model with a seed; returns its reply and what that cost."""
_MAX_SHOWN = 2000
TOO_LONG = (400, 413, 422)
"""What servers answer to a text that is too long, but also to a parameter they do not know."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a program is ended before its end."""

    fault: str
    reason: Reason
    message: str


class ProgramCalls:
    """Answers the calls of one program.

    Which draw of a reply a request gets follows from the call that makes it: its operator and
    arguments, how many equal calls came before it in the program, and how often the call itself
    has made the same request. So it does not matter which of several calls is answered first.

    Args:
        operators: by name.
        problem: what operators may know.
        settings: limits of the whole program, and of one call.
        limits: of one operator.
        ask: the model.
        run: the sandbox for programs that operators write.

    Attributes:
        end: the first thing that ends the program from outside: an ``Ending`` or an exception.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        problem: PublicProblem,
        settings: ExecutionSettings,
        limits: OperatorLimits,
        *,
        ask: AskWithSeed,
        run: RunProgram,
    ) -> None:
        self.operators = operators
        self.problem = problem
        self.settings, self.limits = settings, limits
        self.end: asyncio.Future[Ending | Exception] = asyncio.get_running_loop().create_future()
        self.trace: list[Call] = []
        self.usage: defaultdict[str, Usage] = defaultdict(lambda: Usage(num_calls=0))
        self.num_calls: Counter[str] = Counter()
        self._equal_calls: Counter[str] = Counter()
        self._ask = ask
        self._run_program = run

    async def call(self, name: Any, args: Any, kwargs: Any) -> dict[str, Any]:
        """Return ``{"value": ...}`` or ``{"error": ...}`` for a program's call."""
        operator = self.operators.get(name) if isinstance(name, str) else None
        await self._count("" if operator is None else operator.name)
        if operator is None:
            return self._note(Call(str(name)[:100], {}, None, "there is no such operator", 0, 0.0))
        digest = digest_json([operator.name, args, kwargs])
        number = self._equal_calls[digest]
        self._equal_calls[digest] += 1
        try:
            self._check_size(operator.name, [args, kwargs])
            arguments = operator.bind(args, kwargs)
        except OperatorError as error:
            given = {str(place): value for place, value in enumerate(args)} | kwargs
            return self._note(Call(operator.name, _shorten(given), None, str(error), 0, 0.0))
        return self._note(await self._run(operator, arguments, derive_seed(digest, number)))

    async def _run(self, operator: Operator, arguments: Mapping[str, Any], seed: int) -> Call:
        asking = _Asking(self, operator.name, seed)
        session = Session(self.problem, asking.ask, self._run_program)
        limit_s = self.settings.timeout_s
        start_s = time.monotonic()
        value, error = None, ""
        try:
            async with asyncio.timeout(limit_s) as limit:
                value = await operator.call(session, arguments)
        except RequestError as failure:
            await self._stop(Ending("executor", failure.cause, str(failure)))
        except GroupwiseError as stop:
            await self._stop(stop)
        except Exception as failure:  # noqa: BLE001 (an operator's error is the program's to see)
            if limit.expired():
                what = f"{operator.name} took longer than {limit_s:g} s"
                await self._stop(Ending("executor", "timeout", what))
            is_own = isinstance(failure, OperatorError)
            error = str(failure) if is_own else f"{type(failure).__name__}: {failure}"
        seconds = time.monotonic() - start_s
        shown = _shorten(dict(arguments))
        used = asking.usage
        tokens = used.prompt_tokens + used.completion_tokens
        return Call(operator.name, shown, value, error, tokens, seconds, used.cost)

    async def ask(self, operator: str, text: str, seed: int) -> tuple[str, Usage]:
        """Return the model's reply and its usage; a failure of the executor ends the program."""
        used = self.usage[operator]
        max_tokens = self.limits.max_tokens
        if used.prompt_tokens + used.completion_tokens >= max_tokens:
            await self._stop(Ending("policy", "tokens", f"{operator} used its {max_tokens} tokens"))
        try:
            reply, usage = await self._ask(text, seed)
        except RequestError as error:
            is_too_long = error.cause == "refused" and error.status in TOO_LONG
            if error.cause == "truncated" or is_too_long:
                raise OperatorError(str(error)) from error
            await self._stop(Ending("executor", error.cause, str(error)))
        except Exception as error:  # noqa: BLE001 (a bug or a wrong setting: nobody's reward)
            await self._stop(error)
        self.usage[operator] += usage
        return reply, usage

    def make_outcome(self, value: str | None, ending: Ending | None) -> Outcome:
        """Return what came of the program, with what its calls cost."""
        fault: Any = ending.fault if ending is not None else None
        reason, message = (ending.reason, ending.message) if ending is not None else ("", "")
        usage = {name: used for name, used in sorted(self.usage.items()) if used.num_calls}
        num_calls = self.num_calls.total()
        return Outcome(value, fault, reason, message, num_calls, usage, tuple(self.trace))

    async def _count(self, name: str) -> None:
        self.num_calls[name] += 1
        most, most_of_all = self.limits.max_calls, self.settings.max_calls
        if self.num_calls[name] > most:
            await self._stop(Ending("policy", "calls", f"more than {most} calls of {name}"))
        if self.num_calls.total() > most_of_all:
            await self._stop(Ending("policy", "calls", f"more than {most_of_all} calls"))

    async def _stop(self, why: Ending | Exception) -> Never:
        """End the program: who waits here is cancelled with it."""
        if not self.end.done():
            self.end.set_result(why)
        await asyncio.Event().wait()
        raise AssertionError("nobody comes back from here")

    def _check_size(self, name: str, values: Sequence[Any]) -> None:
        most = self.limits.max_characters
        if _measure(values) > most:
            raise OperatorError(f"the arguments of {name} have more than {most} characters")

    def _note(self, call: Call) -> dict[str, Any]:
        shown = Call(
            call.operator,
            call.arguments,
            _shorten(call.result),
            _shorten(call.error),
            call.tokens,
            call.seconds,
            call.cost,
        )
        self.trace.append(shown)
        return {"error": call.error} if call.error else {"value": call.result}


class _Asking:
    """The requests of one call."""

    def __init__(self, calls: ProgramCalls, operator: str, seed: int) -> None:
        self.calls = calls
        self.operator = operator
        self.seed = seed
        self.usage = Usage()
        self._equal_requests: Counter[str] = Counter()

    async def ask(self, text: str) -> str:
        number = self._equal_requests[text]
        self._equal_requests[text] += 1
        seed = derive_seed(self.seed, text, number)
        reply, usage = await self.calls.ask(self.operator, text, seed)
        self.usage += usage
        return reply


def _shorten(value: Any) -> Any:
    """Return a JSON value with the beginnings of its texts and lists."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]} [...]"
    if isinstance(value, list):
        return [_shorten(item) for item in value[:26]]
    if isinstance(value, dict):
        return {str(key)[:100]: _shorten(value[key]) for key in list(value)[:26]}
    return value


def _measure(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return 1 + sum(_measure(item) for item in value)
    if isinstance(value, dict):
        return 1 + sum(len(key) + _measure(item) for key, item in value.items())
    return 20
