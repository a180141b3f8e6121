"""The program's side: run its body, then answer what the checker asks of it.

Nothing here is trusted: the program can change all of it. It can so make its answers wrong, but
what is right is decided in the checker's process, which the program cannot reach.
"""

from __future__ import annotations

import _ast
import builtins
import os
import sys

from groupwise.sandbox.guest.actions import (
    ACTIONS,
    CONTENTS,
    OF_NAMES,
    OPERATORS,
    make_stand_in,
    wait_for,
)
from groupwise.sandbox.guest.channel import Channel
from groupwise.sandbox.guest.codec import decode, encode, has_data, is_changeable
from groupwise.sandbox.guest.containers import Shared, refill
from groupwise.sandbox.guest.host_calls import HostCalls
from groupwise.sandbox.guest.surroundings import Around
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
_MORE_DEPTH = 10_000
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
        self.handles: dict[int, int] = {}
        self.references: dict[int, Any] = {}
        self.around = Around()

    def serve(self) -> None:
        """Answer until the checker says that it is over."""
        while (message := deeply(self.channel.receive))["do"] != "end":
            deeply(self.channel.send, self._answer(message))

    def encode(self, value: Any, shared: Shared | None = None) -> Any:
        """Return ``value`` as JSON, with handles for what is no data."""
        return encode(value, self._refer, shared)

    def hold(self, value: Any) -> int:
        """Return the number of an object, which is kept from now on."""
        if id(value) not in self.handles:  # and if it is kept, the id stays its own
            self.objects.append(value)
            self.handles[id(value)] = len(self.objects) - 1
        return self.handles[id(value)]

    def _refer(self, value: Any) -> dict[str, Any]:
        if id(value) in self.references:
            return self.references[id(value)]
        if isinstance(value, _MODULE):
            return {"m": value.__name__}
        if isinstance(value, BaseException):
            return {"E": self._describe_error(value)}
        if isinstance(value, type):
            return {"k": self.hold(value)}
        return {"o": self.hold(value), "k": self.hold(type(value))}

    def _describe_error(self, error: BaseException) -> list[Any]:
        handle, kind = self.hold(error), type(error)
        known = vars(builtins).get(kind.__name__) is kind
        try:
            text = str(error)[:MAX_MESSAGE_LENGTH]
        except Exception:  # noqa: BLE001 (its class may do anything)
            text = ""
        try:
            # That of an OSError has the file's name, too.
            args = error.__reduce__()[1] if kind.__init__ is not Exception.__init__ else error.args
            args = self.encode(list(args if known or kind.__module__ != "__main__" else error.args))
            state = self.encode(dict(vars(error)) if known else {})
            cause = self.encode(error.__cause__)
        except Exception:  # noqa: BLE001 (its class may do anything)
            args, state, cause = [text], {"d": []}, None
        return [handle, kind.__name__ if known else self.hold(kind), args, text, cause, state]

    def decode(self, value: Any, shared: Shared | None = None) -> Any:
        """Return the object that the checker means."""

        def find(held: dict[str, Any]) -> Any:
            if "&" in held and shared is not None:
                return shared.decode(held["&"], find)
            return self._find(held)

        return decode(value, find)

    def _find(self, held: dict[str, Any]) -> Any:
        if "l" in held:
            return self._make_callback(*held["l"])
        if "E" in held:
            number, name, args = held["E"]
            error = getattr(builtins, name)(*self.decode(args))
            return self._remember(error, {"E": number})
        if "K" in held:
            return getattr(sys.modules.get(held["K"][0]) or __import__(held["K"][0]), held["K"][1])
        if "m" in held:
            return __import__(held["m"])
        return self.objects[held["o"]]

    def _remember(self, value: Any, reference: dict[str, Any]) -> Any:
        self.objects.append(value)
        self.references[id(value)] = reference
        return value

    def _make_callback(self, number: int, form: str, name: str) -> Any:
        def call_test(*args: Any, **kwargs: Any) -> Any:
            return self._call_back({"callback": number}, args, kwargs)

        def get_from_test(*_: Any) -> Any:
            return self._call_back({"callback": number, "get": True}, (), {})

        made: Any = call_test
        call_test.__name__ = call_test.__qualname__ = name
        if form != "function":
            made = make_stand_in(form, call_test, get_from_test)
        return self._remember(made, {"l": number})

    def _call_back(self, message: dict[str, Any], args: Any, kwargs: dict[str, Any]) -> Any:
        message |= {"args": self.encode(list(args)), "kwargs": self.encode(kwargs)}
        self.channel.send(message | self.around.report())
        while "callback_ok" not in (reply := deeply(self.channel.receive)):
            if "callback_error" in reply:
                raise self.decode(reply["callback_error"])
            deeply(self.channel.send, self._answer(reply))
        return deeply(self.decode, reply["callback_ok"])

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        shared = Shared(is_answer=True)
        reply: dict[str, Any]
        try:
            if "around" in message:
                self.around.change(self.decode(message["around"]))
            for handle, content in message.get("held", ()):
                if content is not None:
                    refill(self.objects[handle], self.decode(content))
            args = [deeply(self.decode, arg, shared) for arg in message["args"]]
            given = message.get("kwargs", {})
            kwargs = {name: deeply(self.decode, arg, shared) for name, arg in given.items()}
            reply = self._reply(message["do"], args, kwargs, shared)
        except BaseException as error:  # noqa: BLE001 (whatever it raises is its answer)
            reply = {"error": self._refer(error)}
        try:
            reply |= self.around.report()
            if changes := shared.list_changes(self._refer):
                reply["after"] = changes
            held = [
                [handle, self.encode(self.objects[handle])] for handle, _ in message.get("held", ())
            ]
            return reply | {"held": held} if held else reply
        except (RecursionError, MemoryError) as error:
            return {"error": self._refer(error)}

    def _reply(
        self, action: str, args: list[Any], kwargs: dict[str, Any], shared: Shared
    ) -> dict[str, Any]:
        result = self._do(action, args, kwargs)
        reply: dict[str, Any] = {"ok": self.encode(result, shared if shared.containers else None)}
        if action in CONTENTS and is_changeable(type(result)):
            reply["handle"] = self.hold(result)
        return reply

    def _do(self, action: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if action == "call":
            return args[0](*args[1:], **kwargs)
        if action in OF_NAMES:
            return OF_NAMES[action](self.namespace, *args)
        if action == "describe":
            return self._describe_class(self.objects[args[0]])
        return ACTIONS[action](*args, **kwargs)

    def _describe_class(self, kind: type) -> list[Any]:
        """Return name, module, bases, operators of its own and of builtins, and if it has data."""
        own: dict[str, bool] = {}
        for name in OPERATORS:
            owner = next((above for above in kind.__mro__ if name in vars(above)), object)
            if owner is not object and vars(owner)[name] is not None:
                own[name] = owner.__module__ != "builtins" or not has_data(kind)
        bases = [
            base if vars(builtins).get(base.__name__) is base else self.hold(base)
            for base in kind.__bases__
        ]
        inherited = [name for name, is_own in own.items() if not is_own]
        own_names = [name for name, is_own in own.items() if is_own]
        return [kind.__name__, str(kind.__module__), bases, own_names, inherited, has_data(kind)]


def deeply(work: Callable[..., Any], *args: Any) -> Any:
    """Return what some work of ours gives: a program's own limit is not for what it is given."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _MORE_DEPTH)
    try:
        return work(*args)
    finally:
        sys.setrecursionlimit(limit)


def describe_error(error: BaseException) -> dict[str, str]:
    """Return class and text of an error."""
    try:
        text = str(error)[:MAX_MESSAGE_LENGTH]
    except Exception:  # noqa: BLE001 (its class may do anything)
        text = ""
    return {"class": type(error).__name__, "text": text}


def run_program(request: dict[str, Any], channel: Channel, calls: Channel | None) -> None:
    """Run the program's body, say how it ended, and serve what it defined."""
    main = _MODULE("__main__")
    sys.modules["__main__"] = main
    server = ProgramServer(channel, vars(main))
    wait = wait_for
    if calls is not None:
        host_calls = HostCalls(calls, is_in_order=request["in_order"])
        vars(main).update(host_calls.make_functions(request["functions"]))
        if request["in_order"]:
            hide_asyncio()
            wait = Tasks(host_calls.receive).run
    try:
        run_body(request["program"], vars(main), wait, is_module=request["has_tests"])
    except BaseException as error:  # noqa: BLE001 (an exit is no end either)
        body: dict[str, Any] = {"error": describe_error(error)}
    else:
        body = {"ok": write_value(vars(main).pop(_VALUE, None))}
    if not request["has_tests"]:
        _leave()
    _flush()
    channel.send(body)
    server.serve()
    _flush()


def run_body(
    source: str,
    namespace: dict[str, Any],
    wait: Callable[[Any], Any],
    *,
    is_module: bool = False,
) -> None:
    """Run a program's lines; the value of a last expression is put aside.

    What is for a program that is run alone (``if __name__ == "__main__":``) is not for a module.
    """
    tree: Any = compile(source, "<program>", "exec", _ONLY_TREE, dont_inherit=True)
    if is_module:
        tree.body = [node for node in tree.body if not _is_for_main(node)]
    last = tree.body[-1] if tree.body else None
    if isinstance(last, _ast.Expr):
        place = {name: getattr(last, name) for name in _PLACE}
        target = _ast.Name(_VALUE, _ast.Store(), **place)
        tree.body[-1] = _ast.Assign([target], last.value, **place)
    run_code(
        compile(tree, "<program>", "exec", _TOP_LEVEL_AWAIT, dont_inherit=True), namespace, wait
    )


def _is_for_main(node: Any) -> bool:
    if not isinstance(node, _ast.If) or node.orelse or not isinstance(node.test, _ast.Compare):
        return False
    sides = (node.test.left, *node.test.comparators)
    names = {getattr(side, "id", None) or getattr(side, "value", None) for side in sides}
    return names == {"__name__", "__main__"} and isinstance(node.test.ops[0], _ast.Eq)


def run_code(
    code: CodeType, namespace: dict[str, Any], wait: Callable[[Any], Any] | None = None
) -> None:
    """Run code that may wait for something at its top level, under asyncio unless told."""
    if code.co_flags & _IS_COROUTINE:
        (wait or wait_for)(eval(code, namespace))
    else:
        exec(code, namespace)


def _leave() -> None:
    """Wait for the program's threads and call what it registered, as Python does at an end."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()


def _flush() -> None:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        os.close(1)
