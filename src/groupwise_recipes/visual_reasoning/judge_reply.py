"""The reply of a model that judges entailment: one JSON object, read strictly or not at all."""

import json
from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from groupwise_recipes.visual_reasoning.entailment import Fault

_MAX_WHY = 500
_MAX_LENGTH = 20_000
_FENCES = ("```json", "```JSON", "```")


class JudgeReply(BaseModel):
    """What a model says of a reasoning.

    Attributes:
        aligns: whether the answer follows from it.
        type: how it fails to; None if it does not.
        why: for a person to read.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    aligns: bool
    type: Fault | None
    why: str

    @model_validator(mode="after")
    def _check_type(self) -> Self:
        if self.aligns != (self.type is None):
            raise ValueError("type contradicts aligns")
        return self

    @property
    def shown_why(self) -> str:
        """At most 500 characters of ``why``."""
        return self.why[:_MAX_WHY]


def read_reply(text: str) -> JudgeReply | None:
    """Return what a reply says; None unless it is exactly one object of the form asked for.

    White space and one fence of code may stand around the object, and nothing else: words before
    it may quote the reasoning, which may hold a verdict of its own.
    """
    if len(text) > _MAX_LENGTH:
        return None
    try:
        found = json.loads(_strip_fence(text.strip()), object_pairs_hook=_refuse_repeats)
        return JudgeReply.model_validate(found)
    except (ValueError, ValidationError, RecursionError):
        return None


def _strip_fence(text: str) -> str:
    if not text.startswith("```") or not text.endswith("```"):
        return text
    opening = next(fence for fence in _FENCES if text.startswith(fence))
    return text[len(opening) : -len("```")]


def _refuse_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice")
    return found
