"""An object of the program, as the tests see it.

It lives in the program's process; what is done with it is done there. Two rules keep a program
from passing by way of its operators: its object never equals data (unless it is an instance of a
subclass of a data class, whose data is compared here), and what it gives in a sum or a difference
with data is its object again, not data.
"""

from __future__ import annotations

import operator

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class NoDataError(TypeError):
    """An object of the program was used as if it were data."""


class Proxy:
    """One object of the program.

    Args:
        ask: sends an action with its arguments and returns what came of it.
        handle: the object's number.
        base: its data, if its class is a subclass of a data class.
    """

    __slots__ = ("_ask", "_base", "_handle")

    def __init__(self, ask: Callable[..., Any], handle: int, base: Any = None) -> None:
        for name, value in (("_ask", ask), ("_base", base), ("_handle", handle)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return self._ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("setattr", self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the object."""
        return self._ask("call", self, *args, **kwargs)

    def __await__(self) -> Any:
        return _wait(self).__await__()

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Proxy) and self._ask("isinstance", instance, self) is True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Proxy):
            return self._ask("eq", self, other) is True
        return self._base is not None and self._base == other

    def __ne__(self, other: object) -> bool:
        if isinstance(other, Proxy):
            return self._ask("ne", self, other) is True
        return not self == other

    def __hash__(self) -> int:
        return hash(self._ask("hash", self))

    def __enter__(self) -> Any:
        return self._ask("getattr", self, "__enter__")()

    def __exit__(self, *error: Any) -> Any:
        return self._ask("getattr", self, "__exit__")(None, None, None)


async def _wait(proxy: Proxy) -> Any:
    return proxy._ask("await", proxy)


def take_coroutine(proxy: Proxy) -> Any:
    """Return a coroutine of this process that waits for one of the program."""
    return _wait(proxy)


def _pass_on(action: str) -> Callable[..., Any]:
    def method(self: Proxy, *args: Any) -> Any:
        if self._base is not None:
            return getattr(self._base, f"__{action}__")(*args)
        return self._ask(action, self, *args)

    return method


def _compare(action: str) -> Callable[..., Any]:
    def method(self: Proxy, other: Any) -> Any:
        if isinstance(other, Proxy):
            return self._ask(action, self, other)
        return getattr(operator, action)(_get_base(self), other)

    return method


def _calculate(action: str, is_reflected: bool = False) -> Callable[..., Any]:
    def method(self: Proxy, *others: Any) -> Any:
        has_peer = any(isinstance(other, Proxy) for other in others)
        me = self if self._base is None or has_peer else self._base
        operands = (*others, me) if is_reflected else (me, *others)
        if me is not self:
            return (_LOCAL.get(action) or getattr(operator, action))(*operands)
        result = self._ask(action, *operands)
        if not isinstance(result, Proxy) and not has_peer:
            raise NoDataError(_NO_DATA)
        return result

    return method


def _convert(name: str) -> Callable[..., Any]:
    def method(self: Proxy, *args: Any) -> Any:
        return getattr(_get_base(self), name)(*args)

    return method


def _contains(self: Proxy, item: Any) -> bool:
    if isinstance(item, Proxy):
        return self._ask("contains", self, item) is True
    return any(item == held for held in iter(self))  # pyright: ignore


def _get_base(proxy: Proxy) -> Any:
    if proxy._base is None:
        raise NoDataError(_NO_DATA)
    return proxy._base


_NO_DATA = "the tests take an object of the program for data"
_LOCAL: dict[str, Callable[..., Any]] = {"divmod": divmod, "round": round}

Proxy.__contains__ = _contains  # pyright: ignore[reportAttributeAccessIssue]
for _name in ("bool", "len", "iter", "next", "str", "repr", "format", "reversed", "dir"):
    setattr(Proxy, f"__{_name}__", _pass_on(_name))
for _name in ("getitem", "setitem", "delitem"):
    setattr(Proxy, f"__{_name}__", _pass_on(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Proxy, f"__{_name}__", _compare(_name))
for _name in ("neg", "pos", "abs", "invert", "round"):
    setattr(Proxy, f"__{_name}__", _calculate(_name))
_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod"
for _name in _BINARY.split(" "):
    _action = f"{_name}_" if _name in ("and", "or") else _name
    setattr(Proxy, f"__{_name}__", _calculate(_action))
    setattr(Proxy, f"__r{_name}__", _calculate(_action, is_reflected=True))
for _name in ("__int__", "__float__", "__complex__", "__index__", "__bytes__"):
    setattr(Proxy, _name, _convert(_name))
