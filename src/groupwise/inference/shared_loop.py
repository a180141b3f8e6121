"""The one event loop of this process on which all requests to models are awaited.

Connections, limits and the list of questions in flight belong to a loop. Rewards are called from
several threads, so all of them share this one, in a thread of its own.
"""

import asyncio
import functools
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import CoroutineType
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

_lock = threading.Lock()
_started: dict[int, asyncio.AbstractEventLoop] = {}


def run_on_shared_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared loop and wait for its result; raises what it raises.

    An interrupt (Ctrl-C) while waiting cancels the work.

    Raises:
        RuntimeError: if called on the shared loop itself, which would wait for ever.
    """
    if _get_running_loop() is _find_loop():
        work.close()
        raise RuntimeError("the shared loop cannot wait for itself: await the coroutine instead")
    future = start_on_shared_loop(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def start_on_shared_loop(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Start a coroutine on the shared loop; cancelling what is returned cancels it."""
    return asyncio.run_coroutine_threadsafe(work, _find_loop())


def on_shared_loop(
    function: Callable[P, Coroutine[Any, Any, T]],
) -> "Callable[P, CoroutineType[Any, Any, T]]":
    """Make a coroutine function run on the shared loop, whichever loop awaits it."""

    @functools.wraps(function)
    async def call(*given: P.args, **named: P.kwargs) -> T:
        loop = _find_loop()
        work = function(*given, **named)
        if _get_running_loop() is loop:
            return await work
        waiting: Awaitable[T] = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
        return await waiting

    return call


def _find_loop() -> asyncio.AbstractEventLoop:
    """Return this process's loop, started on first use; a forked process starts its own."""
    with _lock:
        loop = _started.get(os.getpid())
        if loop is None:
            loop = _started[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="requests", daemon=True).start()
        return loop


def _get_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
