"""The checker's side: runs the tests, which call the program in its own process.

The program never has a way to this process: it sees neither the tests nor what they expect, and
all that comes from it is read as data.
"""

from __future__ import annotations

import builtins

from groupwise.sandbox.guest.channel import Channel
from groupwise.sandbox.guest.codec import decode, encode
from groupwise.sandbox.guest.proxy import Proxy, take_coroutine

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


# What the tests find under a name that the program has for one of these is the real one.
_MODULES = (
    *("bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools"),
    *(
        "heapq",
        "itertools",
        "json",
        "math",
        "operator",
        "random",
        "re",
        "statistics",
        "string",
        "sys",
    ),
    *("time", "typing"),
)


class ProgramGoneError(BaseException):
    """The program's process has ended, or talks nonsense."""


class NotPassableError(BaseException):
    """The tests need something that cannot be handed to the program."""


class Program:
    """The program in the other process.

    Args:
        channel: to the program.

    Attributes:
        is_gone: its process has ended; tests that swallowed this have not passed.
        not_passable: what could not be handed over; empty if everything could.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.is_gone = False
        self.not_passable = ""
        self.callbacks: list[Any] = []
        self.coroutines: list[tuple[Any, int]] = []
        self.errors: dict[int, type[BaseException]] = {}

    def ask(self, action: str, *args: Any, **kwargs: Any) -> Any:
        """Let the program do something and return what came of it.

        Raises:
            BaseException: what the program raised, as an error of this process.
            ProgramGoneError: if it does not answer any more.
            NotPassableError: if an argument cannot be handed to it.
        """
        given = [list(args), kwargs]
        reply = self._exchange({"do": action, **self._encode_call(*given)})
        while "callback" in reply:
            reply = self._exchange(self._call_back(reply))
        try:
            raised = self._build_error(reply["error"]) if "error" in reply else None
            after = reply.get("after", {"args": None, "kwargs": None})
            _restore(given, [self.decode(after["args"]), self.decode(after["kwargs"])])
            result = None if raised else self.decode(reply["ok"])
        except Exception as error:
            raise self.leave("its answer cannot be read") from error
        if isinstance(raised, StopIteration) and action != "next":
            # In tests it would end a loop early, as if there were nothing left to check.
            raise RuntimeError("the program raised StopIteration")
        if raised is not None:
            raise raised
        return result

    def receive(self) -> Any:
        """Return the program's next message.

        Raises:
            ProgramGoneError: if there is none.
        """
        try:
            reply = self.channel.receive()
        except (OSError, EOFError, ValueError, RecursionError) as error:
            raise self.leave(str(error)) from error
        if not isinstance(reply, dict):
            raise self.leave("its answer cannot be read")
        return reply

    def decode(self, value: Any) -> Any:
        """Return the value the program means: data, or a stand-in for its object."""
        return decode(value, self._stand_in)

    def _exchange(self, message: dict[str, Any]) -> Any:
        if self.is_gone:
            raise ProgramGoneError("the program has ended")
        try:
            self.channel.send(message)
        except OSError as error:
            raise self.leave(str(error)) from error
        return self.receive()

    def leave(self, why: str) -> ProgramGoneError:
        """Note that the program has ended or talks nonsense, and return the error that says so."""
        self.is_gone = True
        return ProgramGoneError(why)

    def _encode_call(self, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"args": encode(args, self._refer), "kwargs": encode(kwargs, self._refer)}
        except RecursionError:
            raise self._refuse("something that contains itself, or is very deep") from None

    def _refuse(self, what: str) -> NotPassableError:
        self.not_passable = f"the tests need {what}, and that cannot be handed over"
        return NotPassableError(self.not_passable)

    def _refer(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Proxy):
            return {"o": object.__getattribute__(value, "_handle")}
        if type(value) is type(builtins):
            return {"m": value.__name__}
        for coroutine, handle in self.coroutines:
            if value is coroutine:
                return {"o": handle}
        if not callable(value):
            raise self._refuse(f"to give the program a {type(value).__name__}")
        self.callbacks.append(value)
        return {"l": len(self.callbacks) - 1}

    def _call_back(self, reply: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self.callbacks[reply["callback"]]
            result = function(*self.decode(reply["args"]), **self.decode(reply["kwargs"]))
            return {"callback_ok": encode(result, self._refer)}
        except Exception as error:  # noqa: BLE001 (the program hears of it)
            return {"callback_error": f"{type(error).__name__}: {error}"}

    def _stand_in(self, held: dict[str, Any]) -> Any:
        if "m" in held:
            if held["m"] not in _MODULES:
                raise self.leave(f"the tests took a name for the program's module {held['m']}")
            return __import__(held["m"])
        if "e" in held:
            return self._find_error_class(*held["e"])
        if "l" in held:
            return self.callbacks[held["l"]]
        proxy = Proxy(self.ask, held["o"], self.decode(held.get("as")))
        if not held["async"]:
            return proxy
        self.coroutines.append((take_coroutine(proxy), held["o"]))  # kept to be given back
        return self.coroutines[-1][0]

    def _find_error_class(self, handle: int, name: str, base: str) -> type[BaseException]:
        if handle not in self.errors:
            self.errors[handle] = type(str(name), (_find_builtin_error(base),), {})
        return self.errors[handle]

    def _build_error(self, error: dict[str, Any]) -> BaseException:
        own = error["own"]
        kind = _find_builtin_error(error["class"]) if own is None else self.decode(own)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            kind = _find_builtin_error(error["base"])
        try:
            return kind(*self.decode(error["args"]))
        except TypeError:
            return kind(error["text"])


class TestNames(dict):
    """Globals of the tests: what they define, and the program's names when they are looked up.

    Args:
        program: the program.
        entry_point: the program's name that may hide a builtin.
    """

    def __init__(self, program: Program, entry_point: str | None) -> None:
        super().__init__(__name__="__main__", __builtins__=builtins)
        self.program = program
        self.entry_point = entry_point

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) and name != self.entry_point:
            raise KeyError(name)
        value = self.program.ask("name", name)
        if isinstance(value, Proxy) and self.program.ask("missing", value) is True:
            raise KeyError(name)
        return value


def _find_builtin_error(name: str) -> type[BaseException]:
    kind: Any = getattr(builtins, name, None)
    is_error = isinstance(kind, type) and issubclass(kind, BaseException)
    return kind if is_error else RuntimeError


def _restore(original: Any, changed: Any) -> None:
    """Give containers what the program changed in them, in place."""
    if type(original) is not type(changed) or type(original).__name__ not in _REFILL:
        return
    if isinstance(original, list | tuple) and len(original) == len(changed):
        merged = [_merge(old, new) for old, new in zip(original, changed, strict=True)]
    elif isinstance(original, dict):
        merged = {key: _merge(original.get(key), new) for key, new in changed.items()}
    else:
        merged = changed
    _REFILL[type(original).__name__](original, merged)


def _merge(old: Any, new: Any) -> Any:
    """Return ``old``, refilled, if it is a container of the same kind, else ``new``."""
    if type(old) is type(new) and type(old).__name__ in _REFILL:
        _restore(old, new)
        return old if type(old) is not tuple or old == new else new
    return old if isinstance(old, Proxy) or callable(old) else new


def _refill(old: Any, new: Any) -> None:
    old.clear()
    (old.extend if hasattr(old, "extend") else old.update)(new)


_REFILL: dict[str, Callable[[Any, Any], None]] = {
    "list": lambda old, new: old.__setitem__(slice(None), new),
    "tuple": lambda old, new: None,
    **dict.fromkeys(("dict", "set", "deque", "bytearray", "Counter", "OrderedDict"), _refill),
    "defaultdict": _refill,
}
