"""The checker's side: runs the tests, which call the program in its own process.

The program never has a way to this process: it sees neither the tests nor what they expect, and
all that comes from it is read as data.
"""

from __future__ import annotations

import _thread
import builtins
import sys

from groupwise.sandbox.guest.channel import Channel
from groupwise.sandbox.guest.codec import decode, encode, encode_named_tuple
from groupwise.sandbox.guest.containers import Held, Shared
from groupwise.sandbox.guest.proxy import (
    DERIVED,
    GIVEN,
    MADE,
    Class,
    Mirror,
    get_class,
    get_field,
    make_proxy,
    mirror_class,
    wait_in_program,
)
from groupwise.sandbox.guest.surroundings import Surroundings

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any


# What the tests find under a name that the program has for one of these is the real one.
_MODULES = (
    *("bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools"),
    *("heapq", "itertools", "json", "math", "operator", "os", "random", "re", "statistics"),
    *("string", "sys", "time", "typing"),
)
# Errors of the standard library that are the tests' own; those of unittest would skip tests.
_NO_ERRORS_OF = frozenset(("unittest", "asyncio", "_pytest", "doctest", "__main__", "groupwise"))
_ENDS = {"next": "StopIteration", "anext": "StopAsyncIteration"}


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
        num_asked: how often it was asked for something.
        has_changed: it has changed a container that it was given.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.is_gone = False
        self.not_passable = ""
        self.num_asked = 0
        self.has_changed = False
        self.callbacks: list[Any] = []
        self.given_objects: set[int] = set()
        self.raised: list[BaseException] = []
        self.coroutines: list[tuple[Any, int]] = []
        self.objects: dict[int, Any] = {}
        self.classes: dict[int, type] = {}
        self.held = Held()
        self.surroundings: Surroundings | None = None
        self.origin = GIVEN
        self.depth = 0
        self.turn = _thread.RLock()

    def ask(self, action: str, *args: Any, **kwargs: Any) -> Any:
        """Let the program do something and return what came of it.

        Raises:
            BaseException: what the program raised, as an error of this process.
            ProgramGoneError: if it does not answer any more.
            NotPassableError: if an argument cannot be handed to it.
        """
        with self.turn:
            self.depth += 1
            try:
                return self._ask(action, args, kwargs)
            finally:
                self.depth -= 1

    def _ask(self, action: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        shared = Shared()
        reply = self._exchange(self._write_request(action, args, kwargs, shared))
        while "callback" in reply:
            self._hear(reply)
            reply = self._exchange(self._call_back(reply))
        self.num_asked += 1
        self.origin = _derive_origin(action, args)
        try:
            self._hear(reply)
            self.has_changed |= bool(reply.get("after"))
            shared.restore(reply.get("after", ()), lambda held: self._stand_in(held, shared))
            raised = self.decode(reply["error"]) if "error" in reply else None
            result = None if raised else self._read_result(reply, shared)
        except Exception as error:
            raise self.leave("its answer cannot be read") from error
        if raised is None:
            return result
        if not isinstance(raised, BaseException):
            raise self.leave("its answer cannot be read")
        for kind in (StopIteration, StopAsyncIteration):
            if isinstance(raised, kind) and _ENDS.get(action) != kind.__name__:
                # In tests it would end a loop early, as if there were nothing left to check.
                raise RuntimeError(f"the program raised {kind.__name__}")
        raise raised

    def _write_request(
        self, action: str, args: tuple[Any, ...], kwargs: dict[str, Any], shared: Shared
    ) -> dict[str, Any]:
        try:
            request: dict[str, Any] = {"do": action}
            if self.held.known and (held := self.held.list_changes(self._write)):
                request["held"] = held
            if self.surroundings is not None and (changes := self.surroundings.list_changes()):
                request["around"] = self._write(changes)
            request["args"] = [encode(arg, self._refer, shared) for arg in args]
            if kwargs:
                request["kwargs"] = {
                    name: encode(arg, self._refer, shared) for name, arg in kwargs.items()
                }
            return request
        except RecursionError:
            if self.depth > 1 or self.has_changed:
                # The program and the tests have called each other too deep, or it has put what it
                # was given into itself.
                raise
            raise self.refuse("something that contains itself, or is very deep") from None

    def _read_result(self, reply: dict[str, Any], shared: Shared) -> Any:
        result = decode(reply["ok"], lambda held: self._stand_in(held, shared))
        for handle, content in reply.get("held", ()):
            if handle in self.held.known:
                self.held.add(handle, self.decode(content), content)
        if "handle" in reply:
            return self.held.add(reply["handle"], result, self._write(result))
        return result

    def _hear(self, reply: dict[str, Any]) -> None:
        """Take what the program has printed to where the tests want it."""
        if self.surroundings is not None:
            self.surroundings.hear(reply.get("printed", ()), reply.get("environment"))

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

    def _write(self, value: Any) -> Any:
        return encode(value, self._refer)

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

    def refuse(self, what: str) -> NotPassableError:
        """Note what the tests need and cannot have, and return the error that says so."""
        self.not_passable = f"the tests need {what}, and that cannot be handed over"
        return NotPassableError(self.not_passable)

    def _refer(self, value: Any) -> dict[str, Any]:
        kind = type(value)
        if kind is Mirror or isinstance(kind, Mirror):
            return {"o": _get_handle(value)}
        if isinstance(value, BaseException):
            return self._refer_to_error(value)
        if kind is type(builtins):
            return {"m": value.__name__}
        for coroutine, handle in self.coroutines:
            if value is coroutine:
                return {"o": handle}
        if isinstance(value, tuple) and (named := encode_named_tuple(value, self._refer)):
            return named
        if isinstance(value, type) and _find_class(value.__module__, value.__qualname__) is value:
            return {"K": [value.__module__, value.__qualname__]}
        return self._refer_to_function(value)

    def _refer_to_function(self, function: Any) -> dict[str, Any]:
        kind, form = type(function), "function"
        if kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__"):
            function, form = function.__next__, "iterator"
        elif not callable(function):
            raise self.refuse(f"to give the program a {kind.__name__}")
        elif kind.__name__ not in ("function", "method", "builtin_function_or_method", "type"):
            form = "object"
            self.given_objects.add(len(self.callbacks))
        self.callbacks.append(function)
        name = getattr(function, "__name__", "")
        return {"l": [len(self.callbacks) - 1, form, name if type(name) is str else ""]}

    def _refer_to_error(self, error: BaseException) -> dict[str, Any]:
        self.raised.append(error)
        base = next(k for k in type(error).__mro__ if vars(builtins).get(k.__name__) is k)
        try:
            args = self._write(list(error.args))
        except (NotPassableError, RecursionError):
            self.not_passable = ""
            args = [str(error)]
        return {"E": [len(self.raised) - 1, base.__name__, args]}

    def _call_back(self, reply: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self.callbacks[reply["callback"]]
            args, kwargs = self.decode(reply["args"]), self.decode(reply["kwargs"])
        except Exception as error:
            raise self.leave("its call cannot be read") from error
        if "get" in reply and reply["callback"] in self.given_objects:
            raise self.refuse("to give the program an object of theirs")
        try:
            return {"callback_ok": self._write(function(*args, **kwargs))}
        except Exception as error:  # noqa: BLE001 (the program hears of it)
            return {"callback_error": self._refer(error)}

    def _stand_in(self, held: dict[str, Any], shared: Shared | None = None) -> Any:
        if "o" in held:
            return self._find_object(held["o"], held["k"])
        if "&" in held and shared is not None:
            return shared.containers[held["&"][0]]
        if "k" in held:
            kind = self.find_class(held["k"])
            return get_class(kind).real or kind if isinstance(kind, Mirror) else kind
        if "E" in held:
            return self._build_error(held["E"])
        if "m" in held:
            if held["m"] not in _MODULES:
                raise self.leave(f"the tests took a name for the program's module {held['m']}")
            return __import__(held["m"])
        return self.callbacks[held["l"]]

    def _find_object(self, handle: int, class_handle: int) -> Any:
        if handle not in self.objects:
            origin = self.origin
            kind = self.find_class(class_handle)
            made = make_proxy(kind, self, handle, origin)
            if get_class(kind).real is type(_nothing):
                made = wait_in_program(made)
                self.coroutines.append((made, handle))  # kept to be given back
            self.objects[handle] = made
        return self.objects[handle]

    def find_class(self, handle: int) -> type:
        """Return the class here for one of the program; one of the standard library is itself."""
        if handle not in self.classes:
            name, module, bases, own, inherited, has_data = self.ask("describe", handle)
            real = _find_class(module, name)
            above = tuple(self._find_base(base) for base in bases)
            is_error = any(issubclass(base, BaseException) for base in above)
            if real is not None and is_error:
                self.classes[handle] = real
                return real
            known = Class(self, handle, own=own, inherited=inherited, has_data=has_data, real=real)
            if not is_error:
                known.builtin = _find_builtin(above)
                above = tuple(base for base in above if isinstance(base, Mirror))
            self.classes[handle] = mirror_class(known, str(name), above)
        return self.classes[handle]

    def _find_base(self, base: Any) -> type:
        if type(base) is int:
            return self.find_class(base)
        return base if isinstance(base, type) else vars(builtins)[base]

    def _build_error(self, held: Any) -> BaseException:
        if type(held) is int:
            return self.raised[held]
        handle, class_handle, args, text, cause, state = held
        if handle in self.objects:
            return self.objects[handle]
        kind = self._find_base(class_handle)
        if not issubclass(kind, BaseException):
            raise TypeError("an error is none")
        decoded = self.decode(args)
        if isinstance(kind, Mirror):
            error: BaseException = kind.__new__(kind, *decoded)  # pyright: ignore
            vars(error).update(_handle=handle, _text=str(text))
        else:
            try:
                error = kind(*decoded)
            except TypeError:
                error = kind.__new__(kind, str(text))
            vars(error).update(self.decode(state))
        self.objects[handle] = error
        cause = self.decode(cause)
        if isinstance(cause, BaseException):
            error.__cause__ = cause
        return error


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
        # Without the site module they are no builtins, and a program's own would not leave.
        self |= {name: sys.exit for name in ("exit", "quit") if name != entry_point}

    def __contains__(self, name: object) -> bool:
        return self.get(name, self) is not self

    def get(self, name: Any, default: Any = None) -> Any:
        """Return what stands for a name, the program's included."""
        try:
            return self[name]
        except KeyError:
            return default

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) and name != self.entry_point:
            raise KeyError(name)
        value = self.program.ask("name", name)
        if value is NotImplemented and self.program.ask("missing", name) is True:
            raise KeyError(name)
        if isinstance(value, Mirror) and name[:1].isupper():
            get_class(value).is_named = True
        return value


class Main:
    """The module ``__main__``, as the tests find it: their names and the program's.

    Args:
        names: globals of the tests.
    """

    def __init__(self, names: TestNames) -> None:
        vars(self)["_names"] = names

    def __getattr__(self, name: str) -> Any:
        try:
            return vars(self)["_names"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        names = vars(self)["_names"]
        if dict.__contains__(names, name):
            names[name] = value
        else:
            names.program.ask("set_name", name, value)

    def __delattr__(self, name: str) -> None:
        vars(self)["_names"].program.ask("delete_name", name)


async def _wait_for_nothing() -> None:
    return None


_nothing = _wait_for_nothing()
_nothing.close()


def _find_builtin(bases: tuple[type, ...]) -> type | None:
    """Return the class of builtins that a class with these bases extends."""
    for base in bases:
        found = get_class(base).builtin if isinstance(base, Mirror) else base
        if found is not None and found is not object:
            return found
    return None


def _get_handle(value: Any) -> int:
    """Return the number of what is the program's: a class, an error or another object."""
    if type(value) is Mirror:
        return get_class(value).handle
    is_error = isinstance(value, BaseException)
    return vars(value)["_handle"] if is_error else get_field(value, "_handle")


def _derive_origin(action: str, args: tuple[Any, ...]) -> int:
    """Return whose objects an answer has: the program's own, or of what the tests made."""
    subject = args[0] if args else None
    if type(subject) is Mirror:
        if not get_class(subject).is_named:
            return GIVEN
        return MADE if action == "call" else DERIVED
    if isinstance(type(subject), Mirror) and not isinstance(subject, BaseException):
        return DERIVED if get_field(subject, "_origin") != GIVEN else GIVEN
    return GIVEN


def _find_class(module: object, name: object) -> type | None:
    """Return a class of the standard library, if its module is loaded here."""
    if type(module) is not str or type(name) is not str:
        return None
    top = module.partition(".")[0]
    if top not in sys.stdlib_module_names or top in _NO_ERRORS_OF:
        return None
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    if found is None and module == "builtins" and "types" in sys.modules:
        kinds = (k for k in vars(sys.modules["types"]).values() if isinstance(k, type))
        found = next((kind for kind in kinds if kind.__name__ == name), None)
    return found if isinstance(found, type) else None
