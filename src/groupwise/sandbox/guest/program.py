"""The program's side: run its body, then answer what the checker asks of it.

Nothing here is trusted: the program can change all of it. It can so make its answers wrong, but
what is right is decided in the checker's process, which the program cannot reach.
"""

from __future__ import annotations

import _ast
import operator
import os
import sys

from groupwise.sandbox.guest.channel import Channel
from groupwise.sandbox.guest.codec import decode, encode, encode_base
from groupwise.sandbox.guest.host_calls import HostCalls
from groupwise.sandbox.guest.tasks import Tasks, hide_asyncio
from groupwise.sandbox.guest.values import MAX_MESSAGE_LENGTH, write_value

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

_VALUE = "__last_value__"
# Flags of `compile` and of code objects: their modules, ast and inspect, take long to import.
_ONLY_TREE = 0x0400
_TOP_LEVEL_AWAIT = 0x2000
_IS_COROUTINE = 0x80
_MODULE = type(sys)
_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")


class ProgramServer:
    """Objects of a program, by handle, for a checker that asks for them.

    Args:
        channel: to the checker.
        namespace: the program's globals.
    """

    def __init__(self, channel: Channel, namespace: dict[str, Any]) -> None:
        self.channel = channel
        self.namespace = namespace
        self.objects: list[Any] = []
        self.references: dict[int, dict[str, Any]] = {}

    def serve(self) -> None:
        """Answer until the checker says that it is over."""
        while (message := self.channel.receive())["do"] != "end":
            self.channel.send(self._answer(message))

    def encode(self, value: Any) -> Any:
        """Return ``value`` as JSON, with handles for what is no data."""
        return encode(value, self._refer)

    def _refer(self, value: Any) -> dict[str, Any]:
        if isinstance(value, _MODULE):
            return {"m": value.__name__}
        if id(value) not in self.references:
            self.objects.append(value)  # kept, so that the id stays its own
            self.references[id(value)] = self._describe(value, len(self.objects) - 1)
        reference = self.references[id(value)]
        base = encode_base(value, self._refer)
        return reference if base is None else {**reference, "as": base}

    def _describe(self, value: Any, handle: int) -> dict[str, Any]:
        if isinstance(value, type) and issubclass(value, BaseException):
            return {"e": [handle, value.__name__, _find_builtin_base(value)]}
        return {"o": handle, "async": type(value).__name__ == "coroutine"}

    def decode(self, value: Any) -> Any:
        """Return the object that the checker means."""
        return decode(value, self._find)

    def _find(self, held: dict[str, Any]) -> Any:
        if "l" in held:
            return self._make_callback(held["l"])
        if "m" in held:
            return __import__(held["m"])
        return self.objects[held["o"]]

    def _make_callback(self, number: int) -> Callable[..., Any]:
        def call_test(*args: Any, **kwargs: Any) -> Any:
            self.channel.send({"callback": number, **self._encode_call(args, kwargs)})
            while "callback_ok" not in (reply := self.channel.receive()):
                if "callback_error" in reply:
                    raise RuntimeError(reply["callback_error"])
                self.channel.send(self._answer(reply))
            return self.decode(reply["callback_ok"])

        self.objects.append(call_test)
        self.references[id(call_test)] = {"l": number}
        return call_test

    def _encode_call(self, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {"args": self.encode(list(args)), "kwargs": self.encode(kwargs)}

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            args, kwargs = self.decode(message["args"]), self.decode(message["kwargs"])
            reply = {"ok": self.encode(self._do(message["do"], args, kwargs))}
            after = self._encode_call(args, kwargs) if message["do"] == "call" else message
            if after["args"] != message["args"] or after["kwargs"] != message["kwargs"]:
                reply["after"] = after
            return reply
        except BaseException as error:  # noqa: BLE001 (whatever it raises is its answer)
            return {"error": describe_error(error, self.encode)}

    def _do(self, action: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if action == "name":
            return self.namespace.get(args[0], _MISSING)
        if action == "call":
            return args[0](*args[1:], **kwargs)
        return _ACTIONS[action](*args)


def _await_it(value: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


_MISSING = object()
_ACTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in operator.__all__},
    "await": _await_it,
    "missing": lambda value: value is _MISSING,
    **{
        kind.__name__: kind
        for kind in (abs, bool, dir, divmod, format, getattr, hash, isinstance, iter, len)
    },
    **{kind.__name__: kind for kind in (next, repr, reversed, round, setattr, str)},
}


def _find_builtin_base(kind: type) -> str:
    return next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")


def describe_error(error: BaseException, encode_value: Callable[[Any], Any]) -> dict[str, Any]:
    """Return class, arguments and text of an error as JSON."""
    kind = type(error)
    try:
        text = str(error)[:MAX_MESSAGE_LENGTH]
    except Exception:  # noqa: BLE001 (its class may do anything)
        text = ""
    try:
        args = encode_value(list(error.args))
    except Exception:  # noqa: BLE001 (its class may do anything)
        args = [text]
    own = None if kind.__module__ == "builtins" else encode_value(kind)
    return {
        "class": kind.__name__,
        "base": _find_builtin_base(kind),
        "args": args,
        "text": text,
        "own": own,
    }


def run_program(request: dict[str, Any], channel: Channel, calls: Channel | None) -> None:
    """Run the program's body, say how it ended, and serve what it defined."""
    main = _MODULE("__main__")
    sys.modules["__main__"] = main
    server = ProgramServer(channel, vars(main))
    wait = _await_it
    if calls is not None:
        host_calls = HostCalls(calls, is_in_order=request["in_order"])
        vars(main).update(host_calls.make_functions(request["functions"]))
        if request["in_order"]:
            hide_asyncio()
            wait = Tasks(host_calls.receive).run
    try:
        run_body(request["program"], vars(main), wait)
    except BaseException as error:  # noqa: BLE001 (an exit is no end either)
        body = {"error": describe_error(error, server.encode)}
    else:
        body = {"ok": write_value(vars(main).pop(_VALUE, None))}
    _flush()
    channel.send(body)
    server.serve()
    _flush()


def run_body(source: str, namespace: dict[str, Any], wait: Callable[[Any], Any]) -> None:
    """Run a program's lines; the value of a last expression is put aside."""
    tree: Any = compile(source, "<program>", "exec", _ONLY_TREE)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, _ast.Expr):
        place = {name: getattr(last, name) for name in _PLACE}
        target = _ast.Name(_VALUE, _ast.Store(), **place)
        tree.body[-1] = _ast.Assign([target], last.value, **place)
    run_code(compile(tree, "<program>", "exec", _TOP_LEVEL_AWAIT), namespace, wait)


def run_code(
    code: CodeType, namespace: dict[str, Any], wait: Callable[[Any], Any] | None = None
) -> None:
    """Run code that may wait for something at its top level, under asyncio unless told."""
    if code.co_flags & _IS_COROUTINE:
        (wait or _await_it)(eval(code, namespace))
    else:
        exec(code, namespace)


def _flush() -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        os.close(1)
