"""Functions of the host, as the program calls them: arguments and results are JSON values."""

from __future__ import annotations

from groupwise.sandbox.guest.channel import Channel

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class HostCallError(RuntimeError):
    """A function of the host raised an error that has no class here."""


class HostCalls:
    """Calls that are on their way to the host.

    Args:
        channel: to the host.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.num_calls = 0
        self.waiting: dict[int, Any] = {}

    def make_functions(self, functions: dict[str, bool]) -> dict[str, Callable[..., Any]]:
        """Return a function for each name; those marked true are to be awaited."""
        return {
            name: self._make_awaited(name) if is_async else self._make_plain(name)
            for name, is_async in functions.items()
        }

    def _make_plain(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            number = self._send(name, args, kwargs)
            while (reply := self.channel.receive())["number"] != number:
                self._settle(reply)
            if "error" in reply:
                raise _make_error(reply["error"])
            return reply["value"]

        call.__name__ = call.__qualname__ = name
        return call

    def _make_awaited(self, name: str) -> Callable[..., Any]:
        import asyncio

        async def call(*args: Any, **kwargs: Any) -> Any:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self.waiting[self._send(name, args, kwargs)] = future
            loop.add_reader(self.channel.reading, self._read)
            try:
                return await future
            finally:
                if not self.waiting:
                    loop.remove_reader(self.channel.reading)

        call.__name__ = call.__qualname__ = name
        return call

    def _send(self, name: str, args: Any, kwargs: dict[str, Any]) -> int:
        self.num_calls += 1
        try:
            self.channel.send(
                {"number": self.num_calls, "name": name, "args": list(args), "kwargs": kwargs}
            )
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} takes JSON values ({error})") from None
        return self.num_calls

    def _read(self) -> None:
        self._settle(self.channel.receive())

    def _settle(self, reply: dict[str, Any]) -> None:
        future = self.waiting.pop(reply["number"], None)
        if future is None or future.done():
            return
        if "error" in reply:
            future.set_exception(_make_error(reply["error"]))
        else:
            future.set_result(reply["value"])


def _make_error(error: dict[str, str]) -> Exception:
    import builtins

    kind = getattr(builtins, error["class"], None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind(error["text"])
    return HostCallError(f"{error['class']}: {error['text']}")
