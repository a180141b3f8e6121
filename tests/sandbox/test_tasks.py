"""Coroutines without asyncio: results as under asyncio, in an order of the program's own."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandbox_host import SHORT, needs_bubblewrap

from groupwise.sandbox import Result, run_python_async
from groupwise.sandbox.guest.tasks import Group, Tasks, Waiting

# A plan: a call, an error, steps after each other, or plans at the same time.
PLANS = st.recursive(
    st.sampled_from(["call", "raise"]),
    lambda plans: st.tuples(
        st.sampled_from(["steps", "gather", "gather, errors too"]), st.lists(plans, max_size=4)
    ),
    max_leaves=12,
)


async def carry_out(plan: Any, call: Callable[[], Awaitable[Any]], gather: Any) -> Any:
    if plan == "call":
        return type(await call()).__name__
    if plan == "raise":
        raise LookupError("planned")
    kind, plans = plan
    parts = [carry_out(part, call, gather) for part in plans]
    if kind == "steps":
        try:
            return [await part for part in parts]
        except LookupError:
            return "caught"
        finally:
            for part in parts:
                part.close()
    errors_too = kind == "gather, errors too"
    return [str(value) for value in await gather(*parts, return_exceptions=errors_too)]


def run(plan: Any, *, receive: Callable[[int], Any]) -> Any:
    numbers = iter(range(1000))

    async def call() -> Any:
        return await Waiting(next(numbers))

    return Tasks(receive).run(carry_out(plan, call, Group))


@given(plan=PLANS)
def test_results_are_those_of_asyncio(plan: Any):
    def attempt(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except LookupError as error:
            return repr(error)

    async def call() -> Any:
        return await asyncio.sleep(0, 1)

    async def whole() -> Any:
        return await carry_out(plan, call, asyncio.gather)

    expected = attempt(lambda: asyncio.run(whole()))
    assert attempt(lambda: run(plan, receive=lambda number: number)) == expected


@given(plan=PLANS)
def test_a_call_is_answered_after_all_before_it(plan: Any):
    answered: list[int] = []
    with suppress(LookupError):
        run(plan, receive=lambda number: answered.append(number) or number)
    assert answered == sorted(answered)


def test_what_is_no_call_cannot_be_awaited():
    class Other:
        def __await__(self) -> Any:
            yield 7

    async def wait() -> str:
        try:
            await Other()
        except RuntimeError as error:
            return str(error)
        return ""

    assert Tasks(lambda number: number).run(wait()).startswith("only operators")


CHAINS = """
import asyncio
async def chain(first):
    await call(first)
    return await call("second")
async def whole():
    return await asyncio.gather(chain("slow"), chain("quick"), chain("quick"))
await whole()
"""


def run_in_order(program: str, functions: Any) -> Result:
    work = run_python_async(program, functions=functions, limits=SHORT, is_in_order=True)
    return asyncio.run(work)


@needs_bubblewrap
@pytest.mark.parametrize("slow", ["slow", "quick"])
def test_calls_come_in_an_order_that_does_not_depend_on_who_is_slow(slow: str):
    seen: list[str] = []

    async def call(word: str) -> int:
        seen.append(word)
        number = seen.count(word)
        await asyncio.sleep(0.1 if word == slow else 0.0)
        return number

    result = run_in_order(CHAINS, {"call": call})
    assert (result.status, result.value) == ("passed", [1, 2, 3])
    assert seen == ["slow", "quick", "quick", "second", "second", "second"]


@needs_bubblewrap
def test_calls_at_the_same_time_are_answered_at_the_same_time():
    both = asyncio.Barrier(2)

    async def call(word: str) -> str:
        await both.wait()
        return word

    program = "import asyncio\nawait asyncio.gather(call('a'), call('b'))"
    assert run_in_order(program, {"call": call}).value == ["a", "b"]


@needs_bubblewrap
def test_nothing_else_of_asyncio_is_there():
    async def fail() -> None:
        raise ValueError("so")

    result = run_in_order("import asyncio\nawait asyncio.sleep(1)", {"fail": fail})
    assert (result.status, result.error) == ("failed", "AttributeError")
    result = run_in_order("await fail()", {"fail": fail})
    assert (result.status, result.error, result.message) == ("failed", "ValueError", "so")
