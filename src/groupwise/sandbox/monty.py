"""Monty: an interpreter without any access to the system, for programs in its subset.

It runs in worker processes that are kept and used again. It answers ``passed``, or ``failed`` if
an assertion of the tests did not hold. Everything else is left to CPython.
"""

import asyncio
import atexit
import os
import threading
from functools import cache
from typing import Any

from pydantic_monty import (
    CollectString,
    FunctionSnapshot,
    FutureSnapshot,
    Monty,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
)

from groupwise.sandbox.guest.values import (
    MAX_DEPTH,
    MAX_INT_BITS,
    MAX_ITEMS,
    MAX_MESSAGE_LENGTH,
    MAX_TEXT_LENGTH,
    clean_text,
    simplify,
)
from groupwise.sandbox.host_functions import Answer, HostFunctions
from groupwise.sandbox.result import Job, Result
from groupwise.sandbox.subset import can_assert, find_obstacle, split_last_value

_MAX_SLICE_S = 1.0
_MAX_SESSIONS = 64
_MAX_DEPTH = 900
_VALUE = "last_value_"
# Before it crosses: what is large, or no plain value, is described by CPython.
_IS_PLAIN = f"""
room_ = [{MAX_ITEMS}, {MAX_TEXT_LENGTH}]
def is_plain_(value, depth):
    room_[0] -= 1
    if isinstance(value, (str, bytes)):
        room_[1] -= len(value)
        return room_[1] >= 0
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        if depth >= {MAX_DEPTH} or len(value) > room_[0]:
            return False
        if isinstance(value, dict) and not is_plain_(list(value.values()), depth):
            return False
        return all([is_plain_(item, depth + 1) for item in value])
    if isinstance(value, int):
        return -(2 ** {MAX_INT_BITS}) < value < 2 ** {MAX_INT_BITS}
    return value is None or isinstance(value, (float, complex))
is_plain_({_VALUE}, 0)
"""

_places = threading.BoundedSemaphore(_MAX_SESSIONS)


async def run_monty(job: Job, functions: HostFunctions) -> Result | str:
    """Run a job in Monty.

    Returns:
        A result if Monty can decide, else why it cannot.
    """
    tests = job.tests.source if job.tests else ""
    if job.stdin is not None:
        return "it is given an input"
    obstacle = find_obstacle(job.program, tests, job.functions)
    if obstacle is not None:
        return f"Monty may do this otherwise: {obstacle}"
    if not _places.acquire(blocking=False):
        return "all of Monty's places are taken"
    try:
        return await _run(job, functions)
    except (MontyCrashedError, OSError) as error:
        return f"Monty's worker failed ({error})"
    except (RecursionError, MemoryError):  # parsed again, further down the stack
        return "it is nested too deep"
    finally:
        _places.release()


async def _run(job: Job, functions: HostFunctions) -> Result | str:
    pool = await asyncio.to_thread(_open_pool, os.getpid())
    printed = CollectString(job.limits.output_kib << 10)
    session = pool.checkout(
        assert_message_annotations=False,
        limits={
            "max_feed_duration_secs": min(job.limits.timeout_s / 4, _MAX_SLICE_S),
            "max_memory": job.limits.memory_mib << 20,
            "max_recursion_depth": _MAX_DEPTH,
            "max_suspensions": 3 * job.limits.num_host_calls + 100,
        },
    )
    await asyncio.to_thread(session.__enter__)
    try:
        return await _Run(session, functions, printed).run(job)
    finally:
        await asyncio.to_thread(session.__exit__, None, None, None)


class _Run:
    """One session: the program, then its tests, with calls of host functions in between."""

    def __init__(self, session: MontySession, host: HostFunctions, printed: CollectString) -> None:
        self.session = session
        self.host = host
        self.printed = printed
        self.tasks: dict[int, asyncio.Task[Answer]] = {}

    async def run(self, job: Job) -> Result | str:
        in_tests = False
        try:
            value = await self._feed_program(job)
            in_tests = job.tests is not None
            await self._feed(job, job.tests.source if job.tests else "")
        except MontyError as error:
            return self._blame(job, error, in_tests)
        except _UndecidedError as undecided:
            return str(undecided)
        return Result(
            "passed", value, stdout=self.printed.output, in_tests=in_tests, backend="monty"
        )

    async def _feed_program(self, job: Job) -> Any:
        """Run the program; its value crosses only if it is data: Monty makes text of the rest."""
        body, expression = split_last_value(job.program)
        await self._feed(job, body)
        if not expression:
            return None
        await self._feed(job, f"{_VALUE} = ({expression}\n)")
        if await self._feed(job, _IS_PLAIN) is not True:
            raise _UndecidedError("its value is large, or no plain data")
        return simplify(await self._feed(job, _VALUE))

    def _blame(self, job: Job, error: MontyError, in_tests: bool) -> Result | str:
        what = error.exception()
        is_test = isinstance(error, MontyRuntimeError) and type(what) is AssertionError
        if not (is_test and in_tests) or can_assert(job.program):
            return f"in Monty it ended with {type(what).__name__}: {error}"
        return Result(
            "failed",
            stdout=self.printed.output,
            error="AssertionError",
            message=clean_text(str(what), max_length=MAX_MESSAGE_LENGTH),
            in_tests=True,
            backend="monty",
        )

    async def _feed(self, job: Job, source: str) -> Any:
        """Run one source to its end and return the value of its last expression."""
        state: Any = await asyncio.to_thread(
            self.session.feed_start, source, print_callback=self.printed
        )
        while not isinstance(state, MontyComplete):
            if self.host.budget.measure() > job.limits.host_timeout_s:
                raise _UndecidedError("its host functions took too long")
            reply: Any
            if isinstance(state, FunctionSnapshot) and not state.is_os_function:
                reply = await self._call(job, state)
            elif isinstance(state, FutureSnapshot):
                reply = await self._wait(job, state.pending_call_ids)
            else:
                raise _UndecidedError("it asks for something that Monty does not have")
            resume: Any = state.resume
            state = await asyncio.to_thread(resume, reply)
        return state.output

    async def _call(self, job: Job, state: FunctionSnapshot) -> Any:
        name = str(state.function_name)
        if name not in job.functions:
            raise _UndecidedError(f"it calls {name}, which is not defined in Monty")
        task = asyncio.ensure_future(self.host.call(name, list(state.args), state.kwargs))
        if job.functions[name]:
            self.tasks[state.call_id] = task
            return {"future": ...}
        return _make_reply(await asyncio.wait_for(task, job.limits.host_timeout_s))

    async def _wait(self, job: Job, numbers: list[int]) -> dict[int, Any]:
        tasks = {number: self.tasks[number] for number in numbers}
        await asyncio.wait(
            tasks.values(),
            timeout=job.limits.host_timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        done = {n: _make_reply(task.result()) for n, task in tasks.items() if task.done()}
        if not done:
            raise _UndecidedError("its host functions took too long")
        return done


class _UndecidedError(Exception):
    pass


def _make_reply(answer: Answer) -> Any:
    if answer.error:
        return {"exc_type": answer.error, "message": answer.message}
    return {"return_value": answer.value}


@cache  # a forked process keeps its parent's: to drop it would end its workers
def _open_pool(process: int) -> Monty:
    """Return this process's workers; they end with it."""
    pool = Monty(
        min_processes=1,
        max_processes=_MAX_SESSIONS,
        request_timeout=4 * _MAX_SLICE_S,
        feed_duration_limit_grace=_MAX_SLICE_S / 4,
    )
    pool.__enter__()

    def close() -> None:
        if os.getpid() == process:
            pool.__exit__(None, None, None)

    atexit.register(close)
    return pool
