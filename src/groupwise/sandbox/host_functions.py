"""Functions of the host that a program may call, with JSON values."""

import inspect
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.core import SandboxError

HostFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host function gave: a value, or class and text of its error."""

    value: Any = None
    error: str = ""
    message: str = ""


class HostCallBudget:
    """Clock of the time in which at least one host function is at work."""

    def __init__(self) -> None:
        self.num_running = 0
        self.total_s = 0.0
        self._since = 0.0

    def start(self) -> None:
        """One more is at work."""
        if self.num_running == 0:
            self._since = time.monotonic()
        self.num_running += 1

    def stop(self) -> None:
        """One has answered."""
        self.num_running -= 1
        if self.num_running == 0:
            self.total_s += time.monotonic() - self._since

    def measure(self) -> float:
        """Return the seconds until now."""
        running = time.monotonic() - self._since if self.num_running else 0.0
        return self.total_s + running


class HostFunctions:
    """The functions that one program may call.

    Args:
        functions: by name; coroutine functions are awaited by the program, the others are not.
        max_calls: calls that are answered; more raise an error in the program.

    Raises:
        SandboxError: if a name is no identifier or hides a builtin.
    """

    def __init__(self, functions: Mapping[str, HostFunction], *, max_calls: int) -> None:
        import builtins

        for name in functions:
            if not name.isidentifier() or hasattr(builtins, name):
                raise SandboxError(
                    "a host function has a name that a program cannot call",
                    got=repr(name),
                    expected="an identifier that is no builtin's name",
                )
        self.functions = dict(functions)
        self.max_calls = max_calls
        self.budget = HostCallBudget()
        self._tasks: list[Any] = []

    def describe(self) -> dict[str, bool]:
        """Return for each function whether the program has to await it."""
        return {name: inspect.iscoroutinefunction(f) for name, f in self.functions.items()}

    async def call(self, name: str, args: Any, kwargs: Any) -> Answer:
        """Return what the function answers; its errors are answers too."""
        try:
            args, kwargs = json.loads(json.dumps([args, kwargs], allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            return Answer(error="TypeError", message=f"{name} takes JSON values ({error})")
        if len(self._tasks) >= self.max_calls:
            return Answer(error="RuntimeError", message=f"more than {self.max_calls} host calls")
        import asyncio  # not for whoever only reads a config

        task = asyncio.ensure_future(self._call(name, args, kwargs))
        self._tasks.append(task)
        return await asyncio.shield(task)

    async def _call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Answer:
        function = self.functions.get(name)
        if function is None:
            return Answer(error="NameError", message=f"there is no host function {name!r}")
        self.budget.start()
        try:
            if inspect.iscoroutinefunction(function):
                value = await function(*args, **kwargs)
            else:
                import asyncio

                value = await asyncio.to_thread(function, *args, **kwargs)
            return Answer(json.loads(json.dumps(value, allow_nan=False)))
        except Exception as error:  # noqa: BLE001 (the program hears of it)
            return Answer(error=type(error).__name__, message=str(error))
        finally:
            self.budget.stop()

    async def close(self) -> None:
        """Cancel what is still at work."""
        import asyncio

        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
