"""Rows of other libraries as examples, and their numbers as scores."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core import Example, Message, RewardError, Score, make_example
from groupwise.rewards.fields import read_list, read_mapping

_ROLES = ("system", "user", "assistant")
EXAMPLE_ID = "example_id"
"""What rows call the id of the example that they were made of."""


def build_example(
    prompt: object, *, label: object, fields: Mapping[str, object], cluster: str = ""
) -> Example:
    """Return an Example for a row of another library."""
    kept = {
        name: plain for name, value in fields.items() if (plain := _read_json(value)) is not _NO
    }
    reference = _read_json(label)
    text = str(reference) if isinstance(reference, str | int | float) else None
    if text is None and reference is not None and reference is not _NO:
        kept["label"] = reference
    return make_example(_read_prompt(prompt), cluster=cluster, label=text, fields=kept)


def find_example(examples: Mapping[str, Example], name: object, *, label: object) -> Example:
    """Return the example that a row was made of."""
    found = examples.get(name) if isinstance(name, str) else None
    if found is None:
        raise RewardError(f"a row has no {EXAMPLE_ID} of an example that is known", got=repr(name))
    if label != found.label:
        raise RewardError(
            f"the row of example {found.id} has another reference answer",
            got=repr(label),
            expected=repr(found.label),
            fix="export the rows again, or correct the labels where the run takes them from",
        )
    return found


def select_columns(columns: dict[str, Any], *, num_rows: int) -> dict[str, Sequence[Any]]:
    """Return what is a column with one value per row."""
    return {
        name: values
        for name, values in columns.items()
        if isinstance(values, list) and len(values) == num_rows  # pyright: ignore[reportUnknownArgumentType]
    }


def read_text(message: object) -> str:
    """Return the text of a completion: a text, or the last of a list of messages."""
    if isinstance(message, str):
        return message
    messages = read_list(message)
    last = read_mapping(messages[-1]) if messages else None
    if last is None:
        raise RewardError("a completion without a text", got=repr(message)[:200])
    return _read_content(last.get("content"))


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """The range of another library's numbers, mapped to [0, 1].

    Raises:
        RewardError: if the range is empty or not finite.
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no range."""
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise RewardError("not a range", got=[self.low, self.high], expected="low < high")

    def read(self, name: str, value: object) -> Score:
        """Return a number as a Score; None and NaN are unscored.

        Raises:
            RewardError: if it is no number or outside the range.
        """
        number = _read_json(value)
        if number is None or (isinstance(number, float) and math.isnan(number)):
            return Score(None, f"{name} gave no value")
        if not isinstance(number, bool | int | float) or not self.low <= number <= self.high:
            raise RewardError(
                f"reward {name!r} returned a value outside its range",
                got=repr(value),
                expected=f"a number in [{self.low:g}, {self.high:g}] or None",
                fix="give it its range with values=ScoreRange(low, high)",
            )
        share = (number - self.low) / (self.high - self.low)
        return Score(min(1.0, max(0.0, share)), f"{name} gave {number:g}")


_NO = object()


def _read_prompt(prompt: object) -> list[Message]:
    if isinstance(prompt, str):
        return [Message("user", prompt)]
    messages: list[Message] = []
    to_list: object = getattr(prompt, "tolist", None)
    for given in read_list(to_list() if callable(to_list) else prompt) or ():
        entry = read_mapping(given) or {}
        role = entry.get("role")
        for known in _ROLES:
            if role == known:
                messages.append(Message(known, _read_content(entry.get("content"))))
    while messages and messages[-1].role != "user":
        messages.pop()
    return messages or [Message("user", "")]


def _read_content(content: object) -> str:
    """Return the text of a message's content; of a list of parts only those with text."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [read_mapping(part) or {} for part in read_list(content) or ()]
    return "".join(str(part["text"]) for part in parts if isinstance(part.get("text"), str))


def _read_json(value: object) -> object:
    """Return a JSON value with arrays as lists and their numbers plain; _NO if it is not JSON."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    to_list: object = getattr(value, "tolist", None)
    if callable(to_list):
        return _read_json(to_list())
    items = read_list(value)
    if items is not None:
        read = [_read_json(item) for item in items]
        return _NO if _NO in read else read
    mapping = read_mapping(value)
    if mapping is None:
        return _NO
    entries = {str(key): _read_json(item) for key, item in mapping.items()}
    return _NO if any(item is _NO for item in entries.values()) else entries
