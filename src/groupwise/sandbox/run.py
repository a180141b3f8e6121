"""Run one program in CPython under bubblewrap, when it is its turn."""

import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from groupwise.sandbox.bubblewrap import explain_missing
from groupwise.sandbox.host_functions import HostFunction, HostFunctions
from groupwise.sandbox.result import Job, Limits, ProgramTests, Result

_DEFAULT_LIMITS = Limits()
_POLL_S = 0.005
# More at once would only take time from each other, and each has a limit on its time. Those with
# host functions mostly wait.
_places = threading.BoundedSemaphore(2 * (os.cpu_count() or 1))
_waiting_places = threading.BoundedSemaphore(64)


async def run_python_async(
    program: str,
    *,
    tests: str | ProgramTests | None = None,
    stdin: str | None = None,
    functions: Mapping[str, HostFunction] | None = None,
    limits: Limits = _DEFAULT_LIMITS,
    is_in_order: bool = False,
) -> Result:
    """Run a program that nobody has read, then its tests; see ``run_python``.

    With ``is_in_order``, what the program awaits at the same time goes on in an order that follows
    from the program alone, whichever host function answers first. All of asyncio that it then has
    is ``gather``, and it starts in half the time.
    """
    start_s = time.monotonic()
    host = HostFunctions(functions or {}, max_calls=limits.num_host_calls)
    given = ProgramTests(tests) if isinstance(tests, str) else tests
    job = Job(program, given, stdin, host.describe(), limits, is_in_order)
    try:
        result = await _run(job, host)
    finally:
        await host.close()
    return replace(result, duration_s=time.monotonic() - start_s)


def run_python(
    program: str,
    *,
    tests: str | ProgramTests | None = None,
    stdin: str | None = None,
    functions: Mapping[str, HostFunction] | None = None,
    limits: Limits = _DEFAULT_LIMITS,
) -> Result:
    """Run a program that nobody has read, then its tests.

    Args:
        program: Python source. ``await`` is allowed at its top level.
        tests: Python source that uses the program's names; it runs in a process of its own, and
            the program never sees it.
        stdin: what the program reads from its input.
        functions: functions of this process that the program may call, with JSON values;
            coroutine functions are awaited by the program, others run in a thread, which is
            waited for: they have to come to an end by themselves.
        limits: when the run is ended. Their clocks start with the program: runs that are too many
            for this machine wait for each other first.

    Returns:
        How it ended. A program's mistakes are never raised here.

    Raises:
        SandboxError: if a host function's name cannot be used, or bubblewrap cannot be started.
    """
    import asyncio  # not for whoever only reads a config

    coroutine = run_python_async(
        program, tests=tests, stdin=stdin, functions=functions, limits=limits
    )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


async def _run(job: Job, host: HostFunctions) -> Result:
    import asyncio

    from groupwise.sandbox.cpython import run_cpython

    missing = await asyncio.to_thread(explain_missing)
    if missing is not None:
        return Result("refused", message=missing)
    places = _waiting_places if job.functions else _places
    while not places.acquire(blocking=False):
        await asyncio.sleep(_POLL_S)
    try:
        return await run_cpython(job, host)
    finally:
        places.release()
