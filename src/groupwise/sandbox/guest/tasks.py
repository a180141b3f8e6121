"""Coroutines without asyncio: they wait for functions of the host and for each other only.

What happens in which order follows from the program alone, whichever function answers first; and
asyncio takes longer to import than all the rest.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from typing import Any


class Waiting:
    """What a coroutine waits for: the answer to one call, or a group of coroutines.

    Args:
        number: of the call.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def __await__(self) -> Generator[Waiting, Any, Any]:
        return (yield self)


class Group(Waiting):
    """Awaitables that run at the same time; the result is a list of theirs, in order.

    Args:
        awaitables: what is awaited.
        return_exceptions: whether errors are results; else the first one is raised at once.
    """

    def __init__(self, *awaitables: Awaitable[Any], return_exceptions: bool = False) -> None:
        super().__init__()
        self.awaitables = awaitables
        self.return_exceptions = return_exceptions
        self.results: list[Any] = [None] * len(awaitables)
        self.num_left = len(awaitables)
        self.waiter: _Task | None = None


class _Task:
    """A coroutine, its place in a group, and what it is to be resumed with."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], group: Group, place: int) -> None:
        self.coroutine = coroutine
        self.group = group
        self.place = place
        self.value: Any = None
        self.error: BaseException | None = None


class Tasks:
    """Runs coroutines, each until it waits; the oldest call that is waited for is answered first.

    Args:
        receive: returns the answer to a call by its number, or raises its error.
    """

    def __init__(self, receive: Callable[[int], Any]) -> None:
        self.receive = receive
        self.ready: list[_Task] = []
        self.waiting: dict[int, _Task] = {}

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Return the result of ``awaitable``; what is not done by then is given up.

        Raises:
            BaseException: what it raises.
        """
        whole = Group(awaitable, return_exceptions=True)
        self.ready, self.waiting = [], {}
        self._start(whole)
        while whole.num_left:
            if self.ready:
                self._step(self.ready.pop(0))
            else:
                self._answer_oldest()
        for task in (*self.ready, *self.waiting.values()):
            task.coroutine.close()
        result = whole.results[0]
        if type(result) is _Raised:
            raise result.error
        return result

    def _start(self, group: Group) -> None:
        for place, awaitable in enumerate(group.awaitables):
            is_coroutine = type(awaitable).__name__ == "coroutine"
            coroutine: Any = awaitable if is_coroutine else _wait(awaitable)
            self.ready.append(_Task(coroutine, group, place))

    def _answer_oldest(self) -> None:
        number = min(self.waiting)
        task = self.waiting.pop(number)
        try:
            task.value = self.receive(number)
        except Exception as error:  # noqa: BLE001 (it is raised where the call is awaited)
            task.error = error
        self.ready.append(task)

    def _step(self, task: _Task) -> None:
        value, error = task.value, task.error
        task.value = task.error = None
        try:
            send = task.coroutine.send
            wanted = send(value) if error is None else task.coroutine.throw(error)
        except StopIteration as end:
            self._finish(task, end.value)
        except BaseException as raised:  # noqa: BLE001 (it is raised where the group is awaited)
            self._finish(task, _Raised(raised))
        else:
            self._wait_for(task, wanted)

    def _wait_for(self, task: _Task, wanted: Any) -> None:
        if type(wanted) is Group:
            wanted.waiter = task
            self._start(wanted)
            if not wanted.awaitables:
                task.value = []
                self.ready.append(task)
        elif type(wanted) is Waiting:
            self.waiting[wanted.number] = task
        else:
            task.error = RuntimeError("only operators, functions and gather can be awaited")
            self.ready.append(task)

    def _finish(self, task: _Task, result: Any) -> None:
        group, waiter = task.group, task.group.waiter
        group.num_left -= 1
        is_error = type(result) is _Raised
        if is_error and waiter is not None and not group.return_exceptions:
            group.waiter, waiter.error = None, result.error
            self.ready.append(waiter)
            return
        group.results[task.place] = result.error if is_error and waiter is not None else result
        if waiter is not None and not group.num_left:
            waiter.value = group.results
            self.ready.append(waiter)


class _Raised:
    """An error as the end of a task."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


async def _wait(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def hide_asyncio() -> None:
    """Let programs that import asyncio find ``gather`` in it, and nothing else."""
    module = sys.modules["asyncio"] = type(sys)("asyncio")
    vars(module)["gather"] = Group
