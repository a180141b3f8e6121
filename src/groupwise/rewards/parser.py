"""What parsers that a config chooses have in common, and rewards of the parsed answer itself."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from pydantic import field_validator

from groupwise.core import Completion, Config, Example, RewardError, Score
from groupwise.rewards.reward import (
    AnswerReward,
    Parsed,
    Parser,
    Reward,
    RewardKind,
    applies_to,
    explain_unusable,
)

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


class LabelMatch(AnswerReward):
    """1 if the parsed label equals the example's label, else 0.

    It is for answers that have one spelling: labels, letters of options, JSON. An invalid
    completion earns 0 and is counted as invalid; an example without a label cannot be scored, and
    a label that no answer can give raises a RewardError.
    """

    name = "label_match"
    kind: RewardKind = "truth"
    _absent = "no label"

    def __init__(self, parser: Parser) -> None:
        self.parser = parser
        self._labels: dict[tuple[str, str], str] = {}

    def applies_to(self, example: Example) -> bool:
        """Return whether the example has a label."""
        return example.label is not None

    def _explain_unscored(self, example: Example) -> str | None:
        if example.label is not None:
            self._read_label(example, example.label)
        return super()._explain_unscored(example)

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        right = self._read_label(example, str(example.label))
        if label == right:
            return Score(1.0, f"{label} is right")
        return Score(0.0, f"{label} is wrong, the label is {right}")

    def _read_label(self, example: Example, label: str) -> str:
        """Return the label in the spelling of answers; it is read once."""
        known = self._labels.get((example.id, label))
        if known is not None:
            return known
        try:
            written = self.parser.write(label)
        except RewardError as error:
            problem = str(error)
        else:
            read = self.parser.parse(written, example)
            if read.label is not None:
                self._labels[example.id, label] = read.label
                return read.label
            problem = read.reason
        labels = ", ".join(self.parser.labels)
        raise RewardError(
            f"example {example.id} has a label that no answer can give",
            got=repr(label),
            expected=f"one of {labels}" if labels else f"an answer ({problem})",
        )


class AnswerFormat(AnswerReward):
    """1 if the completion is an answer for the parser, else 0 and invalid with the reason.

    It does not look at whether the answer is right; the label of the example plays no part in it.
    """

    name = "answer_format"
    kind: RewardKind = "format"

    def __init__(self, parser: Parser) -> None:
        self.parser = parser

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        return Score(1.0, f"an answer: {label}")


class HumanOverride:
    """The value of another reward, with a person's label in place of the example's.

    In a RewardSet it overrides: where it has a value, truths and judgements are dropped.

    Args:
        reward: compares an answer with a label, such as LabelMatch.
        field: field with the person's label; None or absent where nobody corrected the example.
    """

    name = "human_override"
    kind: RewardKind = "human"

    def __init__(self, reward: Reward, *, field: str = "human_label") -> None:
        self.reward = reward
        self.field = field

    def applies_to(self, example: Example) -> bool:
        """Return whether a person corrected the example and the reward applies to that.

        Raises:
            RewardError: if the person's label is no text.
        """
        corrected = self._correct(example)
        return corrected is not None and applies_to(self.reward, corrected)

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if the person's label is no text, or the reward cannot use it.
        """
        corrected = self._correct(example)
        if corrected is None:
            return Score(None, "nobody corrected this")
        return self.reward(corrected, completion)

    def explain_unusable(self, example: Example) -> str | None:
        """Return why the reward cannot use the person's label; None if it can or there is none.

        Raises:
            RewardError: if the person's label is no text.
        """
        corrected = self._correct(example)
        return None if corrected is None else explain_unusable(self.reward, corrected)

    def _correct(self, example: Example) -> Example | None:
        """Return the example with the person's label; None if nobody corrected it."""
        label: object = example.fields.get(self.field)
        if label is None:
            return None
        if not isinstance(label, str):
            raise RewardError(
                f"example {example.id} has a person's label that is no text", got=repr(label)
            )
        return replace(example, label=label)
