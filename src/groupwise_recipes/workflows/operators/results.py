"""What the operators return, and how a model's reply is read into it."""

import re
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, TypeVar, get_type_hints


class OperatorError(Exception):
    """An operator has no result; the program sees it as an exception of this name."""


class UnreadableError(OperatorError):
    """A reply does not have the form that was asked for."""


@dataclass(frozen=True, slots=True)
class Response:
    """What ``custom`` returns."""

    response: str


@dataclass(frozen=True, slots=True)
class Vote:
    """What ``sc_ensemble`` returns.

    Attributes:
        response: the solution that was voted for; after a failed vote the commonest one, of
            several the first.
        voted: False if the model named a letter that no solution has.
    """

    response: str
    voted: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What ``answer_generate`` returns."""

    answer: str
    thought: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """What ``code_generate`` returns."""

    code: str


@dataclass(frozen=True, slots=True)
class Program:
    """What ``programmer`` returns: a program that ran, and what it computed."""

    code: str
    output: str


@dataclass(frozen=True, slots=True)
class Tested:
    """What ``test`` returns: whether the public tests pass, and the solution as it is now."""

    result: bool
    solution: str


@dataclass(frozen=True, slots=True)
class Review:
    """What ``review`` returns."""

    ok: bool
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class Solution:
    """What ``revise`` returns."""

    solution: str


@dataclass(frozen=True, slots=True)
class Formatted:
    """What ``format`` returns."""

    answer: str


T = TypeVar("T")
_CODE_FENCE = re.compile(r"```[a-zA-Z]*\n(.*?)\n?```", re.DOTALL)
_TRUTHS = {"true": True, "false": False}


def read_reply(text: str, kind: type[T]) -> T:
    """Return a model's reply as a ``kind``: a dataclass with fields of text or truth values.

    Each field stands in tags of its name; a field with a default may be missing or empty, another
    may not. A program may stand in a Markdown fence between its tags.
    """
    types = get_type_hints(kind)
    listed: Any = fields(kind)  # pyright: ignore[reportArgumentType]
    return kind(**{field.name: _read_field(text, field, types[field.name]) for field in listed})


def _read_field(text: str, field: "Field[Any]", kind: Any) -> str | bool:
    found = re.search(rf"<{field.name}>(.*)</{field.name}>", text, re.DOTALL)
    said = found.group(1).strip() if found is not None else ""
    if kind is bool and said.lower() not in _TRUTHS:
        raise UnreadableError(f"the reply has neither True nor False in <{field.name}>")
    if kind is bool:
        return _TRUTHS[said.lower()]
    code = _CODE_FENCE.fullmatch(said)
    said = code.group(1) if code is not None else said
    if not said and field.default is MISSING:
        raise UnreadableError(f"the reply has nothing in <{field.name}>")
    return said
