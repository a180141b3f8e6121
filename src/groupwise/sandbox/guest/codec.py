"""Python values as JSON and back: data by value, everything else as a handle.

Reading builds only plain data, whatever the text says: nothing in it is executed. Numbers, text,
lists, tuples, sets, dicts, bytes and a few classes of the standard library are data; so are
named tuples, and the types of plain values themselves. What is neither is ``{"o": handle}`` and
stays where it is.
"""

from __future__ import annotations

import builtins
import sys
from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PLAIN_INT = 1 << 62
_TYPES = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}
_SINGLES = {"Ellipsis": ..., "NotImplemented": NotImplemented}
_LIBRARY = {
    "collections": ("Counter", "OrderedDict", "deque", "defaultdict", "ChainMap"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "pathlib": ("PosixPath", "PurePosixPath", "PureWindowsPath"),
    "array": ("array",),
    "uuid": ("UUID",),
    "re": ("Pattern",),
    "types": ("SimpleNamespace", "MappingProxyType"),
}
_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}


class UnknownValueError(TypeError):
    """A value that is no data."""


def refuse(value: object) -> Any:
    """Refuse a value that is no data.

    Raises:
        UnknownValueError: always.
    """
    raise UnknownValueError(f"{type(value).__name__} is no data")


class _ScannerSettings:
    """What ``json.JSONDecoder`` hands to the scanner; json itself takes long to import."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = refuse
    memo: dict[str, str] = {}  # noqa: RUF012 - the scanner's own


_settings: Any = _ScannerSettings
_read = make_scanner(_settings)
_write = make_encoder(None, refuse, encode_basestring_ascii, None, ":", ",", False, False, False)


def dump(message: Any) -> bytes:
    """Return a message as bytes.

    Raises:
        TypeError, ValueError: if it is no JSON value.
    """
    return "".join(_write(message, 0)).encode("ascii")


def load(data: bytes) -> Any:
    """Return the message in ``data``.

    Raises:
        ValueError: if it is none.
    """
    text = data.decode("ascii")
    try:
        value, end = _read(text, 0)
    except (StopIteration, UnknownValueError):
        end = -1
    if end != len(text):
        raise ValueError("not a message")
    return value


def encode(
    value: Any,
    other: Callable[[Any], Any] = refuse,
    shared: Any = None,
    *,
    is_inside: bool = False,
) -> Any:
    """Return ``value`` as JSON; what is no data goes through ``other``.

    Args:
        value: what is written.
        other: writes what is no data.
        shared: the ``Shared`` containers of a call, if they are to keep their identity.
        is_inside: this container itself is written, not its number.

    Raises:
        UnknownValueError: from ``refuse``.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_PLAIN_INT < value < _PLAIN_INT else {"i": hex(value)}
    if kind is float:
        return value if value - value == 0 else {"f": repr(value)}
    if shared is not None and not is_inside and is_changeable(kind):
        return shared.encode(value, other)
    if kind is list:
        return [encode(item, other, shared) for item in value]
    if kind in _TAGS:
        return {_TAGS[kind]: [encode(item, other, shared) for item in value]}
    if kind is dict:
        return {"d": _encode_items(value, other, shared)}
    return _encode_rarely(value, other, shared)


_TAGS: dict[type, str] = {tuple: "t", set: "s", frozenset: "z"}


def is_changeable(kind: type) -> bool:
    """Say whether values of a class are containers that can be changed, and data."""
    return kind in _CHANGEABLE or (
        kind.__name__ in _CHANGEABLE_NAMES and _find_library_name(kind) is not None
    )


_CHANGEABLE = (list, dict, set, bytearray)
_CHANGEABLE_NAMES = ("deque", "Counter", "OrderedDict", "defaultdict")


def _encode_items(value: Any, other: Callable[[Any], Any], shared: Any) -> list[Any]:
    return [
        [encode(key, other, shared), encode(item, other, shared)] for key, item in value.items()
    ]


def _encode_rarely(value: Any, other: Callable[[Any], Any], shared: Any) -> Any:
    kind = type(value)
    if kind is bytes or kind is bytearray:
        return {"b" if kind is bytes else "B": value.hex()}
    if kind is memoryview and value.format == "B":
        return {"M": value.tobytes().hex()}
    if kind is complex:
        return {"c": [encode(value.real), encode(value.imag)]}
    if kind is range or kind is slice:
        parts = (value.start, value.stop, value.step)
        return {"r" if kind is range else "S": [encode(part, other) for part in parts]}
    if kind is type and _TYPES.get(value.__name__) is value:
        return {"T": value.__name__}
    if value is ... or value is NotImplemented:
        return {"T": "Ellipsis" if value is ... else "NotImplemented"}
    if kind in _VIEWS:
        return {"v": [_VIEWS[kind], _encode_items(value.mapping, other, shared)]}
    name = _find_library_name(kind)
    if name is None:
        return other(value)
    take_apart = _WRITERS.get(name[1], lambda value, write: str(value))
    return {"x": [*name, take_apart(value, lambda held: encode(held, other, shared))]}


def encode_named_tuple(value: Any, other: Callable[[Any], Any]) -> Any:
    """Return a named tuple as JSON; None if ``value`` is none, or has methods of its own."""
    kind = type(value)
    fields = getattr(kind, "_fields", None)
    if kind.__bases__ != (tuple,) or not isinstance(fields, tuple):
        return None
    names = [str(name) for name in fields]
    return {"n": [str(kind.__name__), names, [encode(item, other) for item in value]]}


def _find_library_name(kind: type) -> tuple[str, str] | None:
    """Return module and name of a known class: by identity, for a name proves nothing."""
    for module, names in _LIBRARY.items():
        loaded = vars(sys.modules[module]) if module in sys.modules else {}
        for name in names:
            if loaded.get(name) is kind:
                return module, name
    return None


def decode(value: Any, other: Callable[[dict[str, Any]], Any] = refuse) -> Any:
    """Return the Python value of JSON; what is no data goes through ``other``.

    Raises:
        ValueError, TypeError: if it is malformed.
        UnknownValueError: from ``refuse``.
    """
    if type(value) is list:
        return [decode(item, other) for item in value]
    if type(value) is not dict:
        return value
    tag = next(iter(value), "")
    held = value[tag]
    if tag in ("t", "s", "z"):
        items = [decode(item, other) for item in held]
        return tuple(items) if tag == "t" else set(items) if tag == "s" else frozenset(items)
    if tag == "d":
        return {decode(key, other): decode(item, other) for key, item in held}
    if tag in _SCALARS:
        return _SCALARS[tag](held)
    if tag == "S":
        return slice(*(decode(part, other) for part in held))
    if tag == "v":
        table = {decode(key, other): decode(item, other) for key, item in held[1]}
        return {"keys": table.keys, "values": table.values, "items": table.items}[held[0]]()
    if tag == "n":
        return _build_named_tuple(held, other)
    return _build_library_value(held, other) if tag == "x" else other(value)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "i": lambda text: int(text, 16),
    "f": float,
    "b": bytes.fromhex,
    "B": bytearray.fromhex,
    "M": lambda text: memoryview(bytes.fromhex(text)),
    "c": lambda parts: complex(*(decode(part) for part in parts)),
    "T": lambda name: _find_type(name),
    "r": lambda parts: range(*(decode(part) for part in parts)),
}


def _find_type(name: str) -> Any:
    if name in _SINGLES:
        return _SINGLES[name]
    if name not in _TYPES:
        raise ValueError(f"the type {name} is not known")
    return _TYPES[name]


def _build_named_tuple(held: Any, other: Callable[[dict[str, Any]], Any]) -> Any:
    from collections import namedtuple

    name, fields, items = held
    # Names that only `rename` gives are the same again, for a field's place is in its name.
    is_renamed = any(field.startswith("_") for field in fields)
    return namedtuple(name, fields, rename=is_renamed)(*(decode(item, other) for item in items))


def _build_library_value(held: Any, other: Callable[[dict[str, Any]], Any]) -> Any:
    module, name, parts = held
    if name not in _LIBRARY.get(module, ()):
        raise ValueError(f"{module}.{name} is not known")
    __import__(module)
    build = _BUILDERS.get(name, lambda kind, parts, read: kind(read(parts)))
    return build(getattr(sys.modules[module], name), parts, lambda part: decode(part, other))


def _write_items(value: Any, write: Callable[[Any], Any]) -> dict[str, Any]:
    return {"d": [[write(key), write(item)] for key, item in value.items()]}


def _write_iso(value: Any, write: Callable[[Any], Any]) -> str:
    return value.isoformat()


def _read_iso(kind: Any, text: str, read: Callable[[Any], Any]) -> Any:
    return kind.fromisoformat(text)


# How values of the library are taken apart and built again; those that are not here: by their text.
_WRITERS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    **dict.fromkeys(("Counter", "OrderedDict", "MappingProxyType"), _write_items),
    **dict.fromkeys(("date", "datetime", "time"), _write_iso),
    "defaultdict": lambda value, write: [write(value.default_factory), _write_items(value, write)],
    "deque": lambda value, write: [[write(item) for item in value], value.maxlen],
    "ChainMap": lambda value, write: [write(table) for table in value.maps],
    "SimpleNamespace": lambda value, write: _write_items(vars(value), write),
    "array": lambda value, write: [value.typecode, [write(item) for item in value]],
    "Pattern": lambda value, write: [write(value.pattern), value.flags],
    "timezone": lambda value, write: [write(value.utcoffset(None)), str(value)],
    "timedelta": lambda value, write: [value.days, value.seconds, value.microseconds],
}
_BUILDERS: dict[str, Callable[[Any, Any, Callable[[Any], Any]], Any]] = {
    **dict.fromkeys(("date", "datetime", "time"), _read_iso),
    "defaultdict": lambda kind, parts, read: kind(*map(read, parts)),
    "deque": lambda kind, parts, read: kind(read(parts[0]), parts[1]),
    "ChainMap": lambda kind, parts, read: kind(*map(read, parts)),
    "SimpleNamespace": lambda kind, parts, read: kind(**read(parts)),
    "array": lambda kind, parts, read: kind(parts[0], read(parts[1])),
    "Pattern": lambda kind, parts, read: sys.modules["re"].compile(read(parts[0]), parts[1]),
    "timezone": lambda kind, parts, read: kind(read(parts[0]), parts[1]),
    "timedelta": lambda kind, parts, read: kind(*parts),
}


def get_data(value: Any) -> Any:
    """Return the data in an instance of a subclass of a data class, whatever its class says.

    Raises:
        TypeError: if it has none.
    """
    for base, read in _READERS.items():
        if isinstance(value, base):
            return read(value)
    raise TypeError("it has no data")


_READERS: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes.join(b"", [value]),
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    dict: dict.copy,
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}


def has_data(kind: type) -> bool:
    """Say whether a class extends a data class; one that says what equals it has no data."""
    return any(issubclass(kind, base) and kind.__eq__ is base.__eq__ for base in _READERS)
