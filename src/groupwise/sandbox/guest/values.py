"""The value of a program's last line, on its way to the host: plain and small, or described.

The host builds bounded scalars and plain containers only, so that nothing a program sends can
raise there, or take time or memory. What is something else is described where it is: by the name
of its type and the beginning of its ``repr``. The checker reads a value before it sends it on, so
that whatever takes long takes it inside, where time is limited.
"""

from __future__ import annotations

from groupwise.sandbox.guest.codec import decode, encode

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

MAX_ITEMS = 10_000
MAX_TEXT_LENGTH = 1 << 20
MAX_DEPTH = 32
MAX_INT_BITS = 4096  # fewer digits than Python refuses to write
MAX_MESSAGE_LENGTH = 2000  # of errors
MAX_NAME_LENGTH = 200  # of classes, also of descriptions
_MAX_SHARED_HASHES = 100
_PLAIN_TAGS = frozenset("tszdifbc?")
# A message has more parts than its value: at most [[key, item]] and {"i": "0x..."} for each.
_MESSAGE_FACTOR = 4


class Described:
    """A value that stayed in the sandbox; it equals nothing but the same description.

    Attributes:
        type_name: name of its type.
        text: the beginning of its ``repr``, or how large it is; empty if that raised.
    """

    __slots__ = ("text", "type_name")

    def __init__(self, type_name: str, text: str) -> None:
        self.type_name = clean_text(type_name, max_length=MAX_NAME_LENGTH)
        self.text = clean_text(text, max_length=MAX_NAME_LENGTH)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Described:
            return NotImplemented
        return (self.type_name, self.text) == (other.type_name, other.text)

    def __hash__(self) -> int:
        return hash((self.type_name, self.text))

    def __repr__(self) -> str:
        return f"<{self.type_name}: {self.text}>"


class OverLimitError(ValueError):
    """A value with too many parts, or too deep, or with too much text."""


def clean_text(text: str, *, max_length: int) -> str:
    """Return the beginning of a text, with halves of characters written as escapes."""
    return text[:max_length].encode("utf-8", "backslashreplace").decode("utf-8")


def write_value(value: object) -> Any:
    """Return ``value`` as JSON, as ``simplify`` leaves it."""
    return encode(simplify(value), lambda held: {"?": [held.type_name, held.text]})


def read_value(message: Any) -> Any:
    """Return the value in a message of ``write_value``.

    Raises:
        ValueError: if it is malformed or over a limit, and nothing else whatever it is.
    """
    try:
        _check_message(message, _Budget(_MESSAGE_FACTOR), 0)
        return simplify(decode(message, lambda held: Described(*held["?"])))
    except (TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("not a value") from error


def simplify(value: Any) -> Any:
    """Return ``value`` if it is plain and small; what is not in it is described.

    If it is too large as a whole, all of it is described.
    """
    try:
        return _simplify(value, _Budget(), 0)
    except (OverLimitError, RuntimeError):  # a thread may change a container while it is read
        return describe(value)


def describe(value: Any) -> Described:
    """Return type and beginning of the ``repr`` of a value, of what may be large its size."""
    kind = type(value)
    if kind in (list, tuple, dict, set, frozenset, str, bytes):
        return Described(kind.__name__, f"of {len(value)}")
    if kind is int:
        return Described("int", f"of {value.bit_length()} bits")
    try:
        return Described(kind.__name__, repr(value))
    except BaseException:  # noqa: BLE001 (its class may do anything)
        return Described("object", "")


class _Budget:
    """What is left of the limits."""

    def __init__(self, factor: int = 1) -> None:
        self.num_items = factor * MAX_ITEMS
        self.text_length = factor * MAX_TEXT_LENGTH
        self.max_depth = factor * MAX_DEPTH

    def take(self, depth: int) -> None:
        self.num_items -= 1
        if self.num_items < 0 or depth > self.max_depth:
            raise OverLimitError("a value has too many parts")

    def take_text(self, length: int) -> None:
        self.text_length -= length
        if self.text_length < 0:
            raise OverLimitError("a value has too much text")


def _simplify(value: Any, budget: _Budget, depth: int) -> Any:
    budget.take(depth)
    kind = type(value)
    if kind is list or kind is tuple:
        return kind([_simplify(item, budget, depth + 1) for item in value])
    if kind is set or kind is frozenset:
        items = [_simplify(item, budget, depth + 1) for item in value]
        return kind(items) if _are_keys(items) else describe(value)
    if kind is dict:
        keys = [_simplify(key, budget, depth + 1) for key in value]
        items = [_simplify(item, budget, depth + 1) for item in value.values()]
        return dict(zip(keys, items)) if _are_keys(keys) else describe(value)  # noqa: B905
    return value if kind is Described or _is_scalar(value, budget) else describe(value)


def _are_keys(keys: Collection[Any]) -> bool:
    """Say whether keys are found quickly by their hashes, and none became equal to another."""
    num_shared = len(keys) - len({hash(key) for key in keys})
    return num_shared <= _MAX_SHARED_HASHES and len(set(keys)) == len(keys)


def _is_scalar(value: Any, budget: _Budget) -> bool:
    kind = type(value)
    if kind is int:
        budget.take_text(value.bit_length() // 4)
        return value.bit_length() <= MAX_INT_BITS
    if kind is bytes:
        budget.take_text(len(value))
        return True
    if kind is str:
        budget.take_text(len(value))
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    return value is None or kind is bool or kind is float or kind is complex


def _check_message(message: Any, budget: _Budget, depth: int) -> None:
    """Refuse a message that is too large, or has something else than plain values."""
    budget.take(depth)
    if type(message) is str:
        budget.take_text(len(message))
    elif type(message) is list:
        for item in message:
            _check_message(item, budget, depth + 1)
    elif type(message) is dict:
        if len(message) != 1 or not message.keys() <= _PLAIN_TAGS:
            raise ValueError("not a plain value")
        for item in message.values():
            _check_message(item, budget, depth + 1)
