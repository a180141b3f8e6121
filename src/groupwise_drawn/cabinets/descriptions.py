"""One line of text about one photo: ``对象/属性/属性×N`` for each thing, joined by ``，``.

A photo without anything of interest is ``无关图片``. What the words mean is not known here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from groupwise.core import DataError

__all__ = ["IRRELEVANT", "SeenObject", "read_objects", "write_objects"]

IRRELEVANT = "无关图片"

_WORD = r"[^/×，\s](?:[^/×，\n]*[^/×，\s])?"
_OBJECT = re.compile(rf"(?P<words>{_WORD}(?:/{_WORD})*)×(?P<count>[1-9][0-9]{{0,5}})")


@dataclass(frozen=True, slots=True)
class SeenObject:
    """A kind of thing on a photo, its attributes in order, and how many there are."""

    name: str
    attributes: tuple[str, ...] = ()
    count: int = 1


def write_objects(objects: Iterable[SeenObject]) -> str:
    """Return the line for what is seen; ``无关图片`` for nothing."""
    seen = tuple(objects)
    parts = ["/".join((one.name, *one.attributes)) + f"×{one.count}" for one in seen]
    text = "，".join(parts) or IRRELEVANT
    if read_objects(text) != seen:
        raise DataError("these objects cannot be written as a description", got=repr(seen))
    return text


def read_objects(text: str) -> tuple[SeenObject, ...]:
    """Return what a line says is seen; nothing for ``无关图片``."""
    if text == IRRELEVANT:
        return ()
    return tuple(_read_object(part) for part in text.split("，"))


def _read_object(part: str) -> SeenObject:
    match = _OBJECT.fullmatch(part)
    if match is None:
        raise DataError(
            "a description is not in the style", got=repr(part), expected="对象/属性×N or 无关图片"
        )
    name, *attributes = match["words"].split("/")
    return SeenObject(name, tuple(attributes), int(match["count"]))
