"""Containers that both processes have: what one changes in its own is changed in the other's.

Those that a call is given are shared while it runs, each under a number: what is one list in the
tests is one list in the program. Those that the tests read from an object stay shared for as long
as the tests keep them.
"""

from __future__ import annotations

import operator
import sys

from groupwise.sandbox.guest.codec import decode, encode

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_NUM_REFERENCES_OF_OURS = 3


class Shared:
    """The containers of one call, by number.

    Args:
        is_answer: it numbers none of its own.
    """

    def __init__(self, *, is_answer: bool = False) -> None:
        self.is_answer = is_answer
        self.containers: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.open: set[int] = set()
        self.before: list[Any] = []

    def encode(self, value: Any, other: Callable[[Any], Any]) -> Any:
        """Return a container as JSON: whole the first time, then its number.

        Raises:
            RecursionError: if it contains itself, and is neither list nor dict.
        """
        number = self.numbers.get(id(value))
        can_be_inside = self.is_answer or type(value) in (list, dict)
        if number is None and self.is_answer:
            return encode(value, other, self, is_inside=True)
        if number is None:
            number = self._add(value)
            self.open.add(number)
            content = encode(value, other, self, is_inside=True)
            self.open.discard(number)
            return {"&": [number, content]}
        if number in self.open and not can_be_inside:
            raise RecursionError("it contains itself")
        return {"&": [number]}

    def _add(self, value: Any) -> int:
        self.containers.append(value)
        self.numbers[id(value)] = len(self.containers) - 1
        return len(self.containers) - 1

    def decode(self, held: list[Any], other: Callable[[Any], Any]) -> Any:
        """Return the container that is meant; remember what is in it.

        Raises:
            ValueError: if numbers are out of order.
        """
        number, *contents = held
        if not contents:
            return self.containers[number]
        is_dict = type(contents[0]) is dict and "d" in contents[0]
        empty: Any = [] if type(contents[0]) is list else {} if is_dict else None
        self._keep(number, empty)  # it may be in itself
        value = decode(contents[0], other)
        if empty is not None:
            refill(empty, value)
            value = empty
        self._keep(number, value)
        self.before[number] = _copy(value)
        return value

    def _keep(self, number: int, value: Any) -> None:
        missing = [None] * (number + 1 - len(self.containers))
        self.containers += missing
        self.before += missing
        self.containers[number] = value
        if value is not None:
            self.numbers[id(value)] = number

    def list_changes(self, other: Callable[[Any], Any]) -> list[Any]:
        """Return number and content of each container that was changed."""
        return [
            [number, encode(value, other, self, is_inside=True)]
            for number, value in enumerate(self.containers)
            if not _is_same(value, self.before[number])
        ]

    def restore(self, changes: list[Any], other: Callable[[Any], Any]) -> None:
        """Give containers what the other process changed in them.

        Raises:
            TypeError, ValueError, LookupError: if the changes are malformed.
        """
        decoded = [(self.containers[number], decode(new, other)) for number, new in changes]
        for old, new in decoded:
            refill(old, new)


class Held:
    """Containers of the program that the tests have read and keep."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[Any, Any]] = {}

    def add(self, handle: int, value: Any, content: Any) -> Any:
        """Return the container that the tests see for one of the program's."""
        if handle in self.known and type(self.known[handle][0]) is type(value):
            old = self.known[handle][0]
            refill(old, value)
            value = old
        self.known[handle] = (value, content)
        return value

    def list_changes(self, write: Callable[[Any], Any]) -> list[Any]:
        """Return handle and content of each: the content is None unless the tests changed it."""
        changes = []
        for handle in list(self.known):
            value, content = self.known[handle]
            now = write(value)
            is_kept = sys.getrefcount(value) > _NUM_REFERENCES_OF_OURS
            if is_kept:
                self.known[handle] = (value, now)
            else:
                del self.known[handle]
            if is_kept or now != content:
                changes.append([handle, now if now != content else None])
        return changes


def refill(old: Any, new: Any) -> None:
    """Replace what is in a container.

    Raises:
        TypeError: if what is new is of another kind.
    """
    if type(old) is not type(new):
        raise TypeError("a container became another")
    if isinstance(old, list | bytearray):
        old[:] = new
    else:
        old.clear()
        (old.extend if hasattr(old, "extend") else old.update)(new)


def _copy(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else type(value)(value)


def _is_same(value: Any, before: Any) -> bool:
    """Say whether a container has the very items that it had."""
    if len(value) != len(before):
        return False
    if isinstance(value, dict):
        pairs = zip(value.items(), before, strict=True)
        return all(a is c and b is d for (a, b), (c, d) in pairs)
    if isinstance(value, set | bytearray):
        return value == before
    return all(map(operator.is_, value, before))
