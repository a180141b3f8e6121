"""What the answer parsers that a config chooses have in common."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from pydantic import field_validator

from groupwise.core import Completion, Config, Example, RewardError
from groupwise.rewards.reward import Parsed, Reward

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def find_tags(text: str, tags: Sequence[str]) -> tuple[dict[str, tuple[int, int]], str]:
    """Return where the stripped contents of each tag start and end in ``text``.

    Each stands once, in the given order and with contents. White space may stand before, between
    and after the tagged parts, and nothing else.

    Returns:
        (places, "") or ({}, why the text does not have this form).
    """
    if not text.strip():
        return {}, "empty answer"
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    for mark in marks:
        num_found = text.count(mark)
        if num_found != 1:
            return (
                {},
                f"{mark} is missing" if not num_found else f"{mark} appears {num_found} times",
            )
    for mark, following in pairwise(marks):
        if text.index(following) < text.index(mark):
            return {}, f"{following} is before {mark}"
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for tag in tags:
        opening, closing = text.index(f"<{tag}>"), text.index(f"</{tag}>")
        if text[end:opening].strip():
            return {}, f"there is text before <{tag}>"
        start = opening + len(f"<{tag}>")
        inside = text[start:closing]
        start += len(inside) - len(inside.lstrip())
        places[tag] = (start, start + len(inside.strip()))
        end = closing + len(f"</{tag}>")
    if text[end:].strip():
        return {}, f"there is text after </{tags[-1]}>"
    empty = [tag for tag, (start, stop) in places.items() if start == stop]
    return ({}, f"<{empty[0]}> is empty") if empty else (places, "")


def write_tags(contents: Mapping[str, str]) -> str:
    """Return the text with these contents by tag."""
    return "".join(f"<{tag}>{content}</{tag}>" for tag, content in contents.items())


_UNSAID = "…"


class AnswerParser(Config, ABC):
    """What the parsers that a config chooses have in common.

    Attributes:
        tags: names of tags (``think``, ``answer``), each once, in this order and with contents; the
            last one holds the answer. Empty: the whole text is the answer.
    """

    tags: tuple[str, ...] = ()

    @field_validator("tags")
    @classmethod
    def _check_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        for tag in tags:
            if not _NAME.fullmatch(tag):
                raise ValueError(f"{tag!r} cannot be a tag; expected letters, digits, - and _")
        if len(set(tags)) < len(tags):
            raise ValueError(f"a tag appears twice in {list(tags)}")
        return tags

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def answer_tag(self) -> str:
        """The tag that holds the answer, if there are tags."""
        return self.tags[-1]

    @abstractmethod
    def make_reward(self) -> Reward:
        """Return the reward that pays for an answer what the evaluation counts it for."""

    def parse(self, text: str, example: Example | None = None) -> Parsed:
        """Return what ``text`` says; its label is None unless the whole text is an answer."""
        start, end = 0, len(text)
        if self.tags:
            places, problem = find_tags(text, self.tags)
            if problem:
                return Parsed(None, problem)
            start, end = places[self.answer_tag]
        elif not text.strip():
            return Parsed(None, "empty answer")
        found = self._read(text[start:end], example)
        return found if found.label is None else replace(found, prefix=text[:start] + found.prefix)

    def write(self, target: str) -> str:
        """Return the text whose answer is ``target``; of tags before it, "…" is the contents.

        Raises:
            RewardError: if the parser would not read that text as ``target``.
        """
        answer = self._normalize(target)
        return self._finish(self._spell(answer), answer)

    def measure(self, example: Example, text: str) -> float | None:
        """Return what ``make_reward`` pays for a text; None if it is no answer or has no score.

        Raises:
            RewardError: if no answer can be compared with the example.
        """
        score = _open_reward(self)(example, Completion(text))
        return None if score.invalid else score.value

    @abstractmethod
    def _read(self, text: str, example: Example | None) -> Parsed:
        """Return what a text without its tags says; it is not blank."""

    def _normalize(self, target: str) -> str:
        """Return the one spelling of a target."""
        return target

    def _spell(self, answer: str) -> str:
        """Return an answer as it is written inside the tags."""
        return answer

    def _frame(self, spelled: str) -> str:
        contents = {tag: spelled if tag == self.answer_tag else _UNSAID for tag in self.tags}
        return write_tags(contents) if contents else spelled

    def _finish(self, spelled: str, answer: str) -> str:
        text = self._frame(spelled)
        found = self.parse(text)
        if found.label != answer:
            problem = found.reason or f"it is read as {found.label!r}"
            raise RewardError(f"no answer can be {answer!r}: {problem}")
        return text


class OpenParser(AnswerParser):
    """Parsers whose answers are not a few labels."""

    @property
    def labels(self) -> tuple[str, ...]:
        """None: answers are open."""
        return ()


@lru_cache(maxsize=64)
def _open_reward(parser: AnswerParser) -> Reward:
    """Return the reward of a parser, the same every time: it may keep processes and tests."""
    return parser.make_reward()
