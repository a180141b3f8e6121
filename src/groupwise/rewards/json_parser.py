"""The answer parser of JSON: one value, and nothing else, that a JSON Schema may describe."""

import json
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, cast

from pydantic import Field, field_validator

from groupwise.core import Example
from groupwise.rewards.label_match import LabelMatch
from groupwise.rewards.parser import OpenParser
from groupwise.rewards.reward import Parsed, Reward

_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL | re.IGNORECASE)


class JsonParser(OpenParser):
    """A JSON value, also in a code fence; two are equal whatever the order of their keys.

    Keys that appear twice, NaN and infinite numbers are no JSON here. 1 and 1.0 are one number.

    Attributes:
        json_schema: what values are answers, as JSON Schema (2020-12, or as ``$schema`` says).
    """

    kind: Literal["json"] = "json"
    json_schema: dict[str, Any] = Field(default_factory=dict[str, Any])

    @field_validator("json_schema")
    @classmethod
    def _check_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        _compile(_dump(schema))
        return schema

    def make_reward(self) -> Reward:
        """Return the reward of the same value."""
        return LabelMatch(self)

    def write_near_misses(self, target: str) -> list[str]:
        """Return the value with a part that is missing, other, or of another type, and in a list.

        Raises:
            RewardError: if ``target`` is no answer.
        """
        value = self.parse(self.write(target)).value
        return [self._frame(_dump(near)) for near in (*_list_changed(value), [value])]

    def _read(self, text: str, example: Example | None) -> Parsed:
        del example
        fence = _FENCED.fullmatch(text)
        start = fence.start(1) if fence else len(text) - len(text.lstrip())
        try:
            value = _load(fence.group(1) if fence else text)
            label = _dump(value)
            problem = next(_compile(_dump(self.json_schema)).iter_errors(value), None)
        except (ValueError, RecursionError) as error:
            return Parsed(None, f"no JSON ({error})")
        if problem is not None:
            place = "/".join(map(str, problem.instance_path))
            where = f" at {place}" if place else ""
            return Parsed(None, f"JSON of another form{where}: {problem.message}")
        return Parsed(label, prefix=text[:start], value=value)

    def _normalize(self, target: str) -> str:
        try:
            return _dump(_load(target))
        except (ValueError, RecursionError):
            return target


@lru_cache(maxsize=64)
def _compile(schema: str) -> Any:
    from jsonschema_rs import ValidationError, validator_for

    try:
        return validator_for(schema)
    except ValidationError as error:
        place = "/".join(map(str, error.instance_path))
        raise ValueError(f"this is no JSON Schema (at {place!r}: {error.message})") from error


def _load(text: str) -> Any:
    def read_float(text: str) -> float | int:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(f"{text} is too large")
        return int(number) if number.is_integer() else number

    def refuse_constant(text: str) -> float:
        raise ValueError(f"{text} is no number of JSON")

    def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key appears twice")
        return dict(pairs)

    return json.loads(
        text,
        object_pairs_hook=refuse_repeated,
        parse_float=read_float,
        parse_constant=refuse_constant,
    )


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False)


def _list_changed(value: Any) -> Iterator[Any]:
    """Yield a value with one part left out or changed, each in turn."""
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        for key, part in parts.items():
            yield {name: other for name, other in parts.items() if name != key}
            yield from ({**parts, key: changed} for changed in _list_changed(part))
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        yield items[::-1]
        for place, item in enumerate(items):
            yield [*items[:place], *items[place + 1 :]]
            for changed in _list_changed(item):
                yield [*items[:place], changed, *items[place + 1 :]]
    elif isinstance(value, bool) or value is None:
        yield not value
    elif isinstance(value, str):
        yield from (value[:-1], f"{value} ", None)
    else:
        yield from (value + 1, str(value))
