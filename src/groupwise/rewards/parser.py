"""What every answer parser is: the one place that says which texts are an answer, and which one.

Rewards, metrics, held-out checks, reports and served answers all read a completion through the
parser of their run, so that training and evaluation cannot disagree about it.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

from pydantic import field_validator

from groupwise.core import Completion, Config, Example, RewardError
from groupwise.rewards.reward import Reward

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def check_tags(tags: Sequence[str]) -> None:
    """Refuse names that are no tags or cannot be told apart."""
    for tag in tags:
        if not _NAME.fullmatch(tag):
            raise ValueError(f"{tag!r} cannot be a tag; expected letters, digits, - and _")
    if len(set(tags)) < len(tags):
        raise ValueError(f"a tag appears twice in {list(tags)}")


def find_tags(text: str, tags: Sequence[str]) -> tuple[dict[str, tuple[int, int]], str]:
    """Return where the stripped contents of each tag start and end in ``text``.

    Each stands once, in the given order and with contents. White space may stand before, between
    and after the tagged parts, and nothing else.

    Returns:
        (places, "") or ({}, why the text does not have this form).
    """
    problem = _find_problem(text, tags)
    if problem:
        return {}, problem
    places: dict[str, tuple[int, int]] = {}
    for tag in tags:
        inside = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        if not inside.strip():
            return {}, f"<{tag}> is empty"
        start = text.index(f"<{tag}>") + len(f"<{tag}>") + len(inside) - len(inside.lstrip())
        places[tag] = (start, start + len(inside.strip()))
    return places, ""


def write_tags(contents: Mapping[str, str]) -> str:
    """Return the text with these contents by tag."""
    return "".join(f"<{tag}>{content}</{tag}>" for tag, content in contents.items())


def _find_problem(text: str, tags: Sequence[str]) -> str:
    if not text.strip():
        return "empty answer"
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    for mark in marks:
        num_found = text.count(mark)
        if num_found == 0:
            return f"{mark} is missing"
        if num_found > 1:
            return f"{mark} appears {num_found} times"
    for mark, following in pairwise(marks):
        if text.index(following) < text.index(mark):
            return f"{following} is before {mark}"
    return _find_stray_text(text, tags)


def _find_stray_text(text: str, tags: Sequence[str]) -> str:
    rest = text
    for tag in tags:
        before, _, inside = rest.partition(f"<{tag}>")
        if before.strip():
            return f"there is text before <{tag}>"
        rest = inside.partition(f"</{tag}>")[2]
    return f"there is text after </{tags[-1]}>" if rest.strip() else ""


_UNSAID = "…"


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text says.

    Attributes:
        label: the answer in its one spelling, as metrics count it; None if the text is no answer.
        reason: why the text is no answer, for a person to read; empty if it is one.
        confidence: stated confidence in [0, 1], or None if none was stated.
        prefix: the given text up to the answer and its marks, as written; empty if the text is no
            answer.
        value: what the answer means where that is more than a text (a JSON value, boxes).
    """

    label: str | None
    reason: str = ""
    confidence: float | None = None
    prefix: str = ""
    value: Any = None


class Parser(Protocol):
    """Reads and writes the answers of a task, and counts them as the evaluation does."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label there is; empty if answers are open."""
        ...

    def parse(self, text: str, example: Example | None = None) -> Parsed:
        """Return what ``text`` says; no text raises, and no label means that it is no answer.

        Args:
            text: of a completion.
            example: what is answered, where that decides how a text is read (the options of a
                choice); None: nothing is known of it.

        Raises:
            RewardError: if the example has options or references that cannot be used.
        """
        ...

    def write(self, target: str) -> str:
        """Return the text whose answer is ``target``.

        Raises:
            RewardError: if the parser would not read that text as ``target``.
        """
        ...

    def measure(self, example: Example, text: str) -> float | None:
        """Return how the evaluation counts a text: 1 right, 0 wrong, between them partly right.

        None if it is no answer (``parse`` says why), or could not be compared.

        Raises:
            RewardError: if no answer can be compared with the example.
        """
        ...


@runtime_checkable
class NearMisses(Protocol):
    """A parser that knows how answers of its form are nearly right, for the reward audit."""

    def write_near_misses(self, target: str) -> Sequence[str]:
        """Return texts that are nearly the answer ``target``; ``measure`` says what they are."""
        ...


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
        check_tags(tags)
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
