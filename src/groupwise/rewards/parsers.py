"""The answer parsers that a config can choose from, by ``kind``; those of choices and of JSON.

Grammar of a multiple choice (in Unicode's NFKC form; case does not count)::

    answer  = [("answer" | "the answer is" | "答案" | "答案是" | "选" ...) [":"]] choices ["."]
    choices = letter {("," | ";" | "/" | "、" | "and" | "和" | " ") letter}
            | letter ("." | ")" | ":") text of that option
    letter  = A, B, ... also in brackets, quotation marks or stars; none stands there twice

An answer in JSON is one value, and nothing else, that a JSON Schema may describe.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from string import ascii_uppercase
from typing import Annotated, Any, Literal, cast

from pydantic import Field, field_validator

from groupwise.core import Example, RewardError
from groupwise.rewards.boxes import BoxParser
from groupwise.rewards.code import CodeParser
from groupwise.rewards.labels import LabelParser
from groupwise.rewards.math import MathParser, NumberParser
from groupwise.rewards.reward import AnswerParser, OpenParser, Parsed, read_list, refuse_repeated
from groupwise.rewards.text import TextParser, normalize_text

# Large patterns are texts: they are compiled when something is read with them.
_LEAD = (
    r"(?i)\s*(?:(?:(?:the )?(?:correct )?(?:answer|option|choice)(?: is)?"
    r"|(?:正确)?答案(?:是|为|选)?|选项?|我选)\s*:?\s*(?=[(*\[\"“「【A-Za-z]))?"
)
_LETTER = r"(?:\*\*)?[(\[\"“「【]?([A-Za-z])[)\]\"”」】]?(?:\*\*)?"
_BETWEEN = r"(?:\s*[,;/、]\s*|\s+and\s+|\s*和\s*|\s+)"
_CHOICES = rf"(?i){_LETTER}(?:{_BETWEEN}{_LETTER})*[.。]?"
_WITH_TEXT = rf"(?s){_LETTER}(?:\s*[.):、]\s*|\s+)(\S.*)"
_BREAK = re.compile(r"[\s,;/、\[\]\"]+")


class ChoiceParser(AnswerParser):
    """Letters of options: ``B``, or ``A, C`` in the order of the alphabet.

    Attributes:
        num_options: how many there are, where an example does not list their texts; the most there
            are, where examples do.
        options: field of examples with the list of the options' texts, which may stand behind the
            letter.
        several: whether an answer may name several.
    """

    kind: Literal["choice"] = "choice"
    num_options: int = Field(default=4, ge=2, le=len(ascii_uppercase))
    options: str = "options"
    several: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        return () if self.several else tuple(ascii_uppercase[: self.num_options])

    def _read(self, text: str, example: Example | None) -> Parsed:
        # Letter by letter: each letter of a lead has one in the given text.
        plain = "".join(unicodedata.normalize("NFKC", letter) for letter in text)
        lead = re.match(_LEAD, plain)
        start = lead.end() if lead else 0
        options: Sequence[str | None] = [None] * self.num_options  # their texts are not known
        given: object = example.fields.get(self.options) if example else None
        if example is not None and given is not None:
            items = read_list(given) or ()
            options = [text for text in items if isinstance(text, str)]
            if not 2 <= len(options) == len(items) <= len(ascii_uppercase):
                raise RewardError(
                    f"example {example.id} has options that are not 2 to 26 texts", got=repr(given)
                )
        letters, problem = _read_letters(plain[start:].strip(), options)
        if not problem and len(letters) > 1 and not self.several:
            problem = f"several options: {', '.join(letters)}"
        return Parsed(None, problem) if problem else Parsed(", ".join(letters), prefix=text[:start])

    def _normalize(self, target: str) -> str:
        """Return letters in order; a list of them as JSON (``["C", "A"]``) is read, too."""
        return ", ".join(sorted(set(_BREAK.split(target.upper())) - {""}))


def _read_letters(text: str, options: Sequence[str | None]) -> tuple[list[str], str]:
    """Return the letters that an answer names, in order, or none and the reason."""
    if re.fullmatch(_CHOICES, text):
        named = re.findall("[A-Z]", re.sub(r"\sAND\s", " ", text.upper()))
        letters = sorted(set(named))
        repeated = [letter for letter in letters if named.count(letter) > 1]
        if repeated:
            return [], f"{', '.join(repeated)} stands there more than once"
        strange = [letter for letter in letters if letter not in ascii_uppercase[: len(options)]]
        return (letters, "") if not strange else ([], f"{', '.join(strange)} is no option")
    match = re.fullmatch(_WITH_TEXT, text)
    if not match:
        return [], "no letter of an option alone"
    letter = match.group(1).upper()
    place = ascii_uppercase.index(letter)
    if place >= len(options):
        return [], f"{letter} is no option"
    expected = options[place]
    if expected is None or normalize_text(match.group(2)) != normalize_text(expected):
        return [], f"other text than that of the option is beside {letter}"
    return [letter], ""


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


AnswerSettings = Annotated[
    LabelParser
    | ChoiceParser
    | NumberParser
    | MathParser
    | TextParser
    | JsonParser
    | CodeParser
    | BoxParser,
    Field(discriminator="kind"),
]
"""``{kind: labels, labels: [合格, 不合格]}`` and the like: for the type of a config's field."""
