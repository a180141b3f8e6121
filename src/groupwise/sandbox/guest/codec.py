"""Python values as JSON and back: data by value, everything else as a handle.

Reading builds only plain data, whatever the text says: nothing in it is executed. Numbers, text,
lists, tuples, sets, dicts, bytes and a few classes of the standard library are data; so are
named tuples, and the types of plain values themselves. What is neither is ``{"o": handle}`` and
stays where it is.
"""

from __future__ import annotations

import sys
from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PLAIN_INT = 1 << 62
_BASES = (bool, int, float, str, list, tuple, dict, set, frozenset)
_TYPES = {kind.__name__: kind for kind in (*_BASES, bytes, bytearray, complex, range)}
_LIBRARY = {
    "collections": ("Counter", "OrderedDict", "deque", "defaultdict"),
    "datetime": ("date", "datetime", "time", "timedelta"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
}


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


def encode(value: Any, other: Callable[[Any], Any] = refuse) -> Any:
    """Return ``value`` as JSON; what is no data goes through ``other``.

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
    if kind is list:
        return [encode(item, other) for item in value]
    if kind in _TAGS:
        return {_TAGS[kind]: [encode(item, other) for item in value]}
    if kind is dict:
        return {"d": [[encode(key, other), encode(held, other)] for key, held in value.items()]}
    return _encode_rarely(value, other)


_TAGS: dict[type, str] = {tuple: "t", set: "s", frozenset: "z"}


def _encode_rarely(value: Any, other: Callable[[Any], Any]) -> Any:
    kind = type(value)
    if kind is bytes or kind is bytearray:
        return {"b" if kind is bytes else "B": value.hex()}
    if kind is complex:
        return {"c": [encode(value.real), encode(value.imag)]}
    if kind is range:
        return {"r": [encode(part) for part in (value.start, value.stop, value.step)]}
    if kind is type and _TYPES.get(value.__name__) is value:
        return {"T": value.__name__}
    fields = getattr(kind, "_fields", None)
    if kind.__bases__ == (tuple,) and kind.__eq__ is tuple.__eq__ and isinstance(fields, tuple):
        items = [encode(item, other) for item in tuple.__iter__(value)]
        return {"n": [str(kind.__name__), [str(name) for name in fields], items]}
    name = _find_library_name(kind)
    return {"x": [*name, _take_apart(value, name[1], other)]} if name else other(value)


def _find_library_name(kind: type) -> tuple[str, str] | None:
    """Return module and name of a known class: by identity, for a name proves nothing."""
    for module, names in _LIBRARY.items():
        loaded = vars(sys.modules[module]) if module in sys.modules else {}
        for name in names:
            if loaded.get(name) is kind:
                return module, name
    return None


def _take_apart(value: Any, name: str, other: Callable[[Any], Any]) -> Any:
    """Return the encoded arguments that build ``value`` again."""
    if name in ("Counter", "OrderedDict", "defaultdict"):
        return encode(dict(value), other)
    if name == "deque":
        return [encode(list(value), other), value.maxlen]
    if name == "timedelta":
        return [value.days, value.seconds, value.microseconds]
    if name in ("date", "datetime", "time"):
        return value.isoformat()
    return str(value)


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
    if tag == "n":
        return _build_named_tuple(held, other)
    return _build_library_value(held, other) if tag == "x" else other(value)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "i": lambda text: int(text, 16),
    "f": float,
    "b": bytes.fromhex,
    "B": bytearray.fromhex,
    "c": lambda parts: complex(*(decode(part) for part in parts)),
    "T": lambda name: _find_type(name),
    "r": lambda parts: range(*(decode(part) for part in parts)),
}


def _find_type(name: str) -> type:
    if name not in _TYPES:
        raise ValueError(f"the type {name} is not known")
    return _TYPES[name]


def _build_named_tuple(held: Any, other: Callable[[dict[str, Any]], Any]) -> Any:
    from collections import namedtuple

    name, fields, items = held
    return namedtuple(name, fields)(*(decode(item, other) for item in items))


def _build_library_value(held: Any, other: Callable[[dict[str, Any]], Any]) -> Any:
    module, name, parts = held
    if name not in _LIBRARY.get(module, ()):
        raise ValueError(f"{module}.{name} is not known")
    __import__(module)
    kind = getattr(sys.modules[module], name)
    if name == "deque":
        return kind(decode(parts[0], other), parts[1])
    if name == "defaultdict":
        return kind(None, decode(parts, other))
    if name == "timedelta":
        return kind(*parts)
    if name in ("date", "datetime", "time"):
        return kind.fromisoformat(parts)
    return kind(decode(parts, other))


def encode_base(value: Any, other: Callable[[Any], Any]) -> Any:
    """Return the data in an instance of a subclass of a data class, or None.

    A class that says itself what equals it has no data to compare.
    """
    kind = type(value)
    for base in _BASES:
        if issubclass(kind, base) and kind.__eq__ is base.__eq__:
            return encode(base(value), other)
    return None
