"""The answer parsers that a config can choose from, by ``kind``; the settings are the parser."""

from typing import Annotated

from pydantic import Field

from groupwise.rewards.boxes import BoxParser
from groupwise.rewards.choices import ChoiceParser
from groupwise.rewards.code import CodeParser
from groupwise.rewards.json_parser import JsonParser
from groupwise.rewards.labels import LabelParser
from groupwise.rewards.math import MathParser, NumberParser
from groupwise.rewards.text import TextParser

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
