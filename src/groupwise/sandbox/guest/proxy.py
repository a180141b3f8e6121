"""Objects and classes of the program, as the tests see them.

They live in the program's process; what is done with them is done there. A class of the program is
a class here, with the same name, bases and operators, and without anything else. Two rules keep a
program from passing by way of its operators: its object never equals data (unless it is an
instance of a subclass of a data class, whose data is compared here), and what it gives in a sum or
a difference with data is its object again, not data.

Tests of a class may need just that. Where the tests themselves made the object, from a class that
they name like one, they are refused: what they want cannot be proven. Where a function gave it
instead of data, they fail.
"""

from __future__ import annotations

import operator

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

GIVEN, MADE, DERIVED = 0, 1, 2  # by the program, by the tests, by an object that the tests made
_NO_DATA = "the tests take an object of the program for data"


# Methods of data that only say something of it; an object may have them and say what it likes.
_SAYS = frozenset(
    (
        *("startswith", "endswith", "issubset", "issuperset", "isdisjoint", "is_integer"),
        *("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower"),
        *("isnumeric", "isprintable", "isspace", "istitle", "isupper"),
    )
)
_READS = _SAYS | {
    *("count", "difference", "find", "index", "intersection", "rfind", "rindex"),
    *("symmetric_difference", "union"),
}


class NoDataError(TypeError):
    """An object of the program was used as if it were data."""


class Class:
    """What is known of a class of the program.

    Args:
        program: where it is.
        handle: its number there.
        own: operators that it, or a class that is no builtin, defines.
        inherited: operators that it has from builtin classes.
        has_data: whether its instances are compared by their data.
        real: the class of the standard library that it is, or None.

    Attributes:
        builtin: the class of builtins that it extends, or None.
    """

    def __init__(
        self,
        program: Any,
        handle: int,
        *,
        own: Collection[str],
        inherited: Collection[str],
        has_data: bool,
        real: type | None,
    ) -> None:
        self.program = program
        self.handle = handle
        self.own = frozenset(own)
        self.inherited = frozenset(inherited)
        self.has_data = has_data
        self.real = real
        self.builtin: type | None = None
        self.face: type | None = None  # for `isinstance` with the class of builtins
        self.is_named = False  # the tests name it as one names a class


_OF_THE_TYPE = frozenset(
    f"__{name}__"
    for name in (
        *(
            "name",
            "qualname",
            "bases",
            "base",
            "mro",
            "class",
            "flags",
            "call",
            "new",
            "subclasses",
        ),
        *("instancecheck", "subclasscheck", "basicsize", "itemsize", "dictoffset"),
        *("weakrefoffset", "text_signature"),
    )
) | {"mro", "_class"}


class Mirror(type):
    """The class of the program's classes."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> Any:
        """Refuse tests that derive a class from one of the program."""
        known = next(base for base in bases if isinstance(base, Mirror))
        raise get_class(known).program.refuse("a class of their own that extends the program's")

    def __getattribute__(cls, name: str) -> Any:
        if name in _OF_THE_TYPE:
            return type.__getattribute__(cls, name)
        return get_class(cls).program.ask("getattr", cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        get_class(cls).program.ask("setattr", cls, name, value)

    def __delattr__(cls, name: str) -> None:
        get_class(cls).program.ask("delattr", cls, name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an instance."""
        return get_class(cls).program.ask("call", cls, *args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        is_foreign = Mirror in (type(instance), type(type(instance)))
        return is_foreign and get_class(cls).program.ask("isinstance", instance, cls) is True

    def __subclasscheck__(cls, other: Any) -> bool:
        if type.__subclasscheck__(cls, other):
            return True
        is_foreign = isinstance(other, Mirror)
        return is_foreign and get_class(cls).program.ask("issubclass", other, cls) is True

    def __contains__(cls, item: Any) -> bool:
        return any(item is held or item == held for held in iter(cls))  # pyright: ignore


def get_class(kind: type) -> Class:
    """Return what is known of a class of the program."""
    return type.__getattribute__(kind, "_class")


def mirror_class(known: Class, name: str, bases: tuple[type, ...]) -> type:
    """Return the class here that stands for one of the program.

    Raises:
        TypeError: if there cannot be one of that form.
    """
    is_error = any(issubclass(base, BaseException) for base in bases)
    if is_error:
        space: dict[str, Any] = {"__getattr__": _get_from_error, "__str__": _write_error}
    else:
        bases = bases or (Proxy,)
        has = known.own | known.inherited
        space = {name: METHODS[name] for name in METHODS if name in has}
        if {"__getitem__", "__len__"} <= has:
            space.setdefault("__iter__", _iterate)  # an IndexError would end a loop of the tests
        if known.has_data and "__add__" in known.inherited:
            space.setdefault("__radd__", METHODS["__radd__"])  # text + text has none of its own
        space["__slots__"] = ()
        space["__doc__"], space["__module__"] = _DOC, _MODULE
    return type.__new__(Mirror, name, bases, {**space, "_class": known})


class Proxy:
    """One object of the program."""

    __slots__ = ("__weakref__", "_base", "_handle", "_origin", "_program")

    @property
    def __class__(self) -> type:
        """The class, as ``isinstance`` asks for it."""
        known, kind = get_class(type(self)), type(self)
        if known.builtin is not None and known.face is None:
            known.face = type(type.__getattribute__(kind, "__name__"), (known.builtin,), {})
        return known.real or known.face or kind

    def __getattr__(self, name: str) -> Any:
        if name in ("__wrapped__",) and not callable(self):
            raise AttributeError(name)
        if name in _READS and get_field(self, "_origin") == GIVEN:
            return _read(self, name)
        return ask(self, "getattr", name)

    def __reduce_ex__(self, version: Any) -> Any:
        raise get_field(self, "_program").refuse("to pickle an object of the program")

    def __setattr__(self, name: str, value: Any) -> None:
        ask(self, "setattr", name, value)

    def __delattr__(self, name: str) -> None:
        ask(self, "delattr", name)

    def __eq__(self, other: Any) -> bool:
        if is_stand_in(other):
            return ask(self, "eq", other) is True
        if has_data(self):
            return get_data(self) == other
        if "__eq__" not in get_class(type(self)).own or get_field(self, "_origin") == GIVEN:
            return False
        if ask(self, "eq", other) is True:
            raise get_field(self, "_program").refuse("an object of the program to equal data")
        return False

    def __ne__(self, other: Any) -> bool:
        if is_stand_in(other):
            return ask(self, "ne", other) is True
        return not self == other

    def __hash__(self) -> int:
        return ask(self, "hash")  # that of a number is another than the number

    def __str__(self) -> str:
        return ask(self, "str")

    def __repr__(self) -> str:
        return ask(self, "repr")

    def __format__(self, spec: str) -> str:
        return ask(self, "format", spec)

    def __dir__(self) -> Any:
        return ask(self, "dir")


def _read(proxy: Any, name: str) -> Any:
    """Return a method of data that changes nothing: of the object's own data, if it has any."""
    if has_data(proxy) and hasattr(data := get_data(proxy), name):
        return getattr(data, name)
    if name in _SAYS:
        raise get_field(proxy, "_program").refuse(f"an object of the program to say {name}")
    return ask(proxy, "getattr", name)


def make_proxy(kind: type, program: Any, handle: int, origin: int) -> Any:
    """Return the stand-in for an object of the program."""
    proxy = object.__new__(kind)
    for name, value in (("_program", program), ("_handle", handle), ("_origin", origin)):
        object.__setattr__(proxy, name, value)
    object.__setattr__(proxy, "_base", (-1, None))
    return proxy


def is_stand_in(value: object) -> bool:
    """Say whether a value is an object of the program."""
    return isinstance(type(value), Mirror)


def get_field(proxy: Any, name: str) -> Any:
    """Return a field of the stand-in itself."""
    return object.__getattribute__(proxy, name)


def ask(proxy: Any, action: str, *args: Any) -> Any:
    """Let the program do something with an object."""
    return get_field(proxy, "_program").ask(action, proxy, *args)


def has_data(proxy: Any) -> bool:
    """Say whether an object is compared by its data."""
    return get_class(type(proxy)).has_data


def get_data(proxy: Any) -> Any:
    """Return the data of an object, as it is now."""
    program = get_field(proxy, "_program")
    number, data = get_field(proxy, "_base")
    if number != program.num_asked:
        data = program.ask("data", proxy)
        object.__setattr__(proxy, "_base", (program.num_asked, data))
    return data


def _iterate(self: Any) -> Any:
    """Return the items of an object; one that was given for data holds what it gives."""
    known = get_class(type(self))
    found = ask(self, "iter")
    if get_field(self, "_origin") != GIVEN or known.builtin is dict:
        return found
    if has_data(self) and "__iter__" in known.own:
        items = list(found)
        return iter(items) if items == list(get_data(self)) else _find_two_faced(self)
    if not has_data(self) and "__len__" in known.own:
        items = list(found)
        return iter(items) if len(items) == ask(self, "len") else _find_two_faced(self)
    return found


def _measure(self: Any) -> Any:
    """Return the length of an object; of one that was given for data, that of its data."""
    length = ask(self, "len")
    is_given = get_field(self, "_origin") == GIVEN and has_data(self)
    if is_given and "__len__" in get_class(type(self)).own and length != len(get_data(self)):
        return _find_two_faced(self)
    return length


def _find_two_faced(proxy: Any) -> Any:
    raise get_field(proxy, "_program").refuse("an object of the program that is not what it says")


def _get_from_error(error: Any, name: str) -> Any:
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    return get_class(type(error)).program.ask("getattr", error, name)


def _write_error(error: Any) -> str:
    return vars(error).get("_text", "")


def _pass_on(action: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: ask(self, action, *args, **kwargs)


def _compare(action: str) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if is_stand_in(other):
            return ask(self, action, other)
        if f"__{action}__" not in get_class(type(self)).own and has_data(self):
            return getattr(operator, action)(get_data(self), other)
        raise _explain(self, "an object of the program in an order with data")

    return method


def _calculate(action: str, name: str, is_reflected: bool = False) -> Callable[..., Any]:
    """Return an operator of two: with data it gives an object, or the object's data is taken."""

    def method(self: Any, *others: Any) -> Any:
        has_peer = any(is_stand_in(other) for other in others)
        is_local = not has_peer and name not in get_class(type(self)).own and has_data(self)
        me = get_data(self) if is_local else self
        operands = (*others, me) if is_reflected else (me, *others)
        if is_local:
            return (_LOCAL.get(action) or getattr(operator, action))(*operands)
        result = get_field(self, "_program").ask(action, *operands)
        if not is_stand_in(result) and not has_peer and result is not NotImplemented:
            raise _explain(self, "what an object of the program gives with data")
        return result

    return method


def _convert(action: str, name: str) -> Callable[..., Any]:
    """Return an operator of one: what it gives is the program's answer, and may be data."""

    def method(self: Any, *args: Any) -> Any:
        if name not in get_class(type(self)).own and has_data(self):
            return getattr(get_data(self), name)(*args)
        result = ask(self, action, *args)
        if get_field(self, "_origin") != MADE and not is_stand_in(result):
            raise _explain(self, "data of an object that the program gave")
        return result

    return method


def _explain(proxy: Any, what: str) -> BaseException:
    """Return the error of tests that take an object for data."""
    if get_field(proxy, "_origin") == GIVEN:
        return NoDataError(_NO_DATA)
    return get_field(proxy, "_program").refuse(what)


def _contains(self: Any, item: Any) -> bool:
    if is_stand_in(item):
        return ask(self, "contains", item) is True
    own = get_class(type(self)).own
    if "__contains__" not in own and has_data(self):
        return item in get_data(self)
    can_iterate = {"__iter__", "__getitem__"} & (own | get_class(type(self)).inherited)
    if can_iterate and any(item is held or item == held for held in iter(self)):
        return True
    if "__contains__" not in own or get_field(self, "_origin") == GIVEN:
        return False
    if ask(self, "contains", item) is True:
        raise _explain(self, "an object of the program to say what it contains")
    return False


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return get_field(self, "_program").ask("call", self, *args, **kwargs)


def _leave_context(self: Any, *error: Any) -> Any:
    return ask(self, "leave", error[1])


def wait_in_program(proxy: Any) -> Any:
    """Return a coroutine of this process that waits for an object of the program."""
    return _wait(proxy, "await")


async def _wait(proxy: Any, action: str, *args: Any) -> Any:
    return ask(proxy, action, *args)


_DOC = property(lambda self: ask(self, "getattr", "__doc__"))
_MODULE = property(lambda self: ask(self, "getattr", "__module__"))
_LOCAL: dict[str, Callable[..., Any]] = {"divmod": divmod, "round": round}
_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod"

METHODS: dict[str, Callable[..., Any]] = {
    "__call__": _call,
    "__contains__": _contains,
    "__exit__": _leave_context,
    "__enter__": _pass_on("enter"),
    "__await__": lambda self: _wait(self, "await").__await__(),
    "__aiter__": _pass_on("aiter"),
    "__anext__": lambda self: _wait(self, "anext"),
    "__aenter__": lambda self: _wait(self, "aenter"),
    "__aexit__": lambda self, *error: _wait(self, "aleave", error[1]),
    "__iter__": _iterate,
    "__len__": _measure,
    **{f"__{name}__": _pass_on(name) for name in ("bool", "next", "reversed")},
    **{f"__{name}__": _pass_on(name) for name in ("getitem", "setitem", "delitem")},
    **{f"__{name}__": _compare(name) for name in ("lt", "le", "gt", "ge")},
    **{
        f"__{name}__": _convert(name, f"__{name}__")
        for name in ("neg", "pos", "abs", "invert", "round")
    },
    **{
        f"__{name}__": _convert(name, f"__{name}__")
        for name in ("int", "float", "complex", "index", "bytes")
    },
}
for _name in _BINARY.split(" "):
    _action = f"{_name}_" if _name in ("and", "or") else _name
    METHODS[f"__{_name}__"] = _calculate(_action, f"__{_name}__")
    METHODS[f"__r{_name}__"] = _calculate(_action, f"__r{_name}__", is_reflected=True)
    if _name != "divmod":
        METHODS[f"__i{_name}__"] = _calculate(f"i{_name}", f"__i{_name}__")


def _ask_class(action: str) -> Callable[..., Any]:
    return lambda cls, *args: get_class(cls).program.ask(action, cls, *args)


for _name in ("iter", "len", "getitem", "repr", "dir", "or_"):
    setattr(Mirror, f"__{_name.rstrip('_')}__", _ask_class(_name))
