"""What the checker may ask of the program's objects, one function for each."""

from __future__ import annotations

import operator
import sys

from groupwise.sandbox.guest.codec import get_data

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CONTENTS = frozenset(("name", "getattr", "getitem"))
_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
_UNARY = "neg pos abs invert round int float complex index bytes bool len iter next reversed"
_OTHERS = "call contains enter exit await aiter anext aenter aexit getitem setitem delitem eq"
OPERATORS = [
    f"__{name}__"
    for name in (
        *f"{_UNARY} {_OTHERS} lt le gt ge divmod rdivmod".split(),
        *(prefix + name for name in _BINARY.split() for prefix in ("", "r", "i")),
    )
]
_loop: Any = None


def wait_for(value: Any) -> Any:
    """Return what an awaitable gives; all of a program wait in one loop."""
    global _loop
    import asyncio

    async def wait() -> Any:
        return await value

    if _loop is None:
        _loop = asyncio.new_event_loop()
    return _loop.run_until_complete(wait())


def _get_name(namespace: dict[str, Any], name: str) -> Any:
    return namespace.get(name, NotImplemented)


def _leave(value: Any, error: BaseException | None) -> Any:
    return value.__exit__(*_describe(error))


def _describe(error: BaseException | None) -> tuple[Any, ...]:
    if error is None:
        return None, None, None
    try:
        raise error
    except BaseException as raised:  # noqa: BLE001 (it is handed on)
        return type(raised), raised, raised.__traceback__


def _call_library(place: list[str], *args: Any, **kwargs: Any) -> Any:
    __import__(place[0])
    return getattr(sys.modules[place[0]], place[1])(*args, **kwargs)


OF_NAMES: dict[str, Callable[..., Any]] = {
    "name": _get_name,
    "missing": lambda namespace, name: name not in namespace,
    "set_name": lambda namespace, name, value: namespace.update({name: value}),
    "delete_name": lambda namespace, name: namespace.pop(name, None) and None,
}
ACTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in operator.__all__},
    **{
        kind.__name__: kind
        for kind in (abs, bool, dir, divmod, format, getattr, hash, isinstance, issubclass, iter)
    },
    **{kind.__name__: kind for kind in (delattr, len, next, repr, reversed, round, setattr, str)},
    **{kind.__name__: kind for kind in (int, float, complex, bytes)},
    "or_": operator.or_,
    "data": get_data,
    "enter": lambda value: value.__enter__(),
    "leave": _leave,
    "library": _call_library,
    "await": wait_for,
    "aiter": lambda value: value.__aiter__(),
    "anext": lambda value: wait_for(value.__anext__()),
    "aenter": lambda value: wait_for(value.__aenter__()),
    "aleave": lambda value, error: wait_for(value.__aexit__(*_describe(error))),
}


class _Iterator:
    """An iterator of the tests."""

    def __init__(self, call: Callable[..., Any], get: Callable[..., Any]) -> None:
        self._call = call

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Any:
        return self._call()


class _Object:
    """An object of the tests that can be called, and nothing else."""

    def __init__(self, call: Callable[..., Any], get: Callable[..., Any]) -> None:
        vars(self).update(_call=call, _get=get)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return vars(self)["_call"](*args, **kwargs)


for _name in (
    "getattr",
    "setattr",
    "delattr",
    "enter",
    "exit",
    "iter",
    "getitem",
    "setitem",
    "contains",
):
    setattr(_Object, f"__{_name}__", lambda self, *args: vars(self)["_get"](*args))


def make_stand_in(form: str, call: Callable[..., Any], get: Callable[..., Any]) -> Any:
    """Return what the program has for something of the tests that is more than a function."""
    return _Iterator(call, get) if form == "iterator" else _Object(call, get)
