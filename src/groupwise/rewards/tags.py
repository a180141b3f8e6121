"""The contract of tagged answers: ``<think>…</think><answer>…</answer>`` and the like.

White space may stand before, between and after the tagged parts, and nothing else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from pydantic import Field, model_validator

from groupwise.core import Config

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class TaggedText:
    """What a text says under a contract.

    Attributes:
        parts: stripped contents by tag; empty if the text is invalid.
        reason: why the text is invalid, for a person to read; empty if it is valid.
    """

    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    reason: str = ""


class TagContract(Config):
    """The tags of an answer, each once and in this order, each with contents.

    Attributes:
        tags: their names; the last one holds the answer.
    """

    tags: tuple[str, ...] = Field(default=("think", "answer"), min_length=1)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        for tag in self.tags:
            if not _NAME.fullmatch(tag):
                raise ValueError(f"{tag!r} cannot be a tag; expected letters, digits, - and _")
        if len(set(self.tags)) < len(self.tags):
            raise ValueError(f"a tag stands twice in {list(self.tags)}")
        return self

    def parse(self, text: str) -> TaggedText:
        """Return the parts of ``text``, or the reason why it is not an answer."""
        reason = self._find_problem(text)
        if reason:
            return TaggedText(reason=reason)
        parts = {tag: _between(text, tag).strip() for tag in self.tags}
        empty = [tag for tag, part in parts.items() if not part]
        return TaggedText(reason=f"<{empty[0]}> is empty") if empty else TaggedText(parts)

    def write(self, *contents: str) -> str:
        """Return the text with these contents, one per tag."""
        pairs = zip(self.tags, contents, strict=True)
        return "".join(f"<{tag}>{content}</{tag}>" for tag, content in pairs)

    def _find_problem(self, text: str) -> str:
        if not text.strip():
            return "empty answer"
        marks = [mark for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>")]
        for mark in marks:
            num_found = text.count(mark)
            if num_found == 0:
                return f"{mark} is missing"
            if num_found > 1:
                return f"{mark} stands {num_found} times"
        places = [text.index(mark) for mark in marks]
        for (mark, place), (following, later) in zip(
            zip(marks, places, strict=True),
            list(zip(marks, places, strict=True))[1:],
            strict=False,
        ):
            if later < place:
                return f"{following} stands before {mark}"
        return self._find_stray_text(text)

    def _find_stray_text(self, text: str) -> str:
        rest = text
        for tag in self.tags:
            before, _, inside = rest.partition(f"<{tag}>")
            if before.strip():
                return f"text stands before <{tag}>"
            rest = inside.partition(f"</{tag}>")[2]
        return f"text stands after </{self.tags[-1]}>" if rest.strip() else ""


def read_answer(text: str, contract: TagContract | None) -> tuple[str | None, str]:
    """Return the answer in a text, or None and the reason why there is none.

    Args:
        text: of a completion.
        contract: the answer is what the last tag holds; None: it is the whole stripped text.
    """
    if contract is None:
        return text.strip() or None, "" if text.strip() else "empty answer"
    tagged = contract.parse(text)
    return tagged.parts.get(contract.tags[-1]), tagged.reason


def _between(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
