"""What every reward and every parser is, and the rewards of a parsed answer itself.

A parser is the one place that says which texts are an answer, and which one: rewards, metrics,
held-out checks, reports and served answers all read a completion through the parser of their run,
so that training and evaluation cannot disagree about it. A reward is a named function from an
example and a completion, or what it says, to a Score.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeGuard, cast, get_args, runtime_checkable

from pydantic import field_validator

from groupwise.core import Completion, Config, Example, RewardError, Score

RewardKind = Literal["human", "truth", "judgement", "format", "shaping", "other"]
"""What a reward's value rests on.

``human``: a person's correction; it overrides truths and judgements. ``truth``: a reference
answer, tests, a symbolic check. ``judgement``: an opinion about rightness (a judge, a heuristic);
it may not outvote a known truth. ``format``: the form alone. ``shaping``: length and the like.
``other``: a reward that does not say.
"""


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
    """Reads and writes the answers of a task, and counts them as the evaluation does.

    ``labels`` has every label there is, and is empty if answers are open.
    """

    @property
    def labels(self) -> tuple[str, ...]: ...

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


@runtime_checkable
class Reward(Protocol):
    """Scores one completion; ``name`` is its name in metrics and breakdowns.

    A reward that cannot score returns ``Score(None, reason)``; it never guesses a number. A
    completion that is no answer for the parser earns ``Score(0.0, reason, invalid=True)``. A
    reward says what it rests on with an attribute ``kind`` (RewardKind); without it, it is
    ``other``, so every reward that judges must have it. It may have these methods, too:

    ``score_batch(examples, completions)`` returns one Score for each pair, in order (BatchReward).

    ``applies_to(example)`` says whether answers to an example can have a value: in a RewardSet the
    reward weighs nothing on those that can have none, whatever the answer. Without it, it is meant
    to have a value for every answer, and one without leaves its answer without a score.

    ``explain_unusable(example)`` returns why no completion can be scored on an example, or None. A
    reference that cannot be read, or tests that cannot decide, are an error of the data: every
    completion gets ``Score(None, reason)``, and the audit finds the example before training. An
    example that has no reference at all is none of this reward's, and not unusable. The same causes
    have the same words, so that they can be counted; answers are kept, so that asking for every
    completion costs nothing.
    """

    @property
    def name(self) -> str: ...

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of ``completion`` as an answer to ``example``."""
        ...


class BatchReward(ABC):
    """A reward that scores many completions at once, because it calls out or uses a model."""

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one completion."""
        return self.score_batch([example], [completion])[0]

    @abstractmethod
    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> Sequence[Score]:
        """Return one score for each pair of an example and a completion, in order."""


class AnswerReward(BatchReward):
    """A reward of the parsed answer; a RewardSet parses a completion once for all of its parts.

    What is no answer for the parser earns 0 and is invalid.

    Attributes:
        parser: reads the answer.
        takes_answers: whether it is asked with parsed answers; False: with completions after all.
        needs: "label", or the field without which an example is none of the reward's; None: it has
            something to say about all.
    """

    parser: Parser
    takes_answers = True
    needs: str | None = None
    _absent = "nothing to compare with"

    def __init__(self, parser: Parser) -> None:
        self.parser = parser

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> Sequence[Score]:
        return self.score_answers(examples, parse_all(self, examples, completions, []))

    def score_answers(
        self, examples: Sequence[Example], answers: Sequence[Parsed]
    ) -> Sequence[Score]:
        """Return one score per pair of an example and what its completion says, in order."""
        return list(map(self._score_parsed, examples, answers))

    def applies_to(self, example: Example) -> bool:
        """Return whether answers to ``example`` can have a value."""
        needs = self.needs
        there: object = example.label if needs == "label" else example.fields.get(needs or "")
        return needs is None or there is not None

    def _score_parsed(self, example: Example, answer: Parsed) -> Score:
        if not self.applies_to(example):
            absent = {None: self._absent, "label": "no label"}
            return Score(None, absent.get(self.needs, f"no field {self.needs}"))
        problem = self._find_problem(example)
        if problem is not None:
            return Score(None, problem)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        return self._score(example, answer.label, answer)

    def _find_problem(self, example: Example) -> str | None:
        """Return why no answer to an example has a score; raise where its data are wrong."""
        del example
        return None

    @abstractmethod
    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        """Return the score of an answer that has a label."""


Answers = list[tuple[Parser, list[Parsed | None]]]
"""What completions say by parser, as far as it was asked for."""


def parse_all(
    reward: AnswerReward,
    examples: Sequence[Example],
    completions: Sequence[Completion],
    known: Answers,
) -> list[Parsed]:
    """Return what completions say to a reward; ``known`` of this batch grows.

    Of those that the reward has nothing to say about, anything is returned.
    """
    parser = reward.parser
    rows = next((rows for other, rows in known if other is parser or other == parser), None)
    if rows is None:
        rows = list[Parsed | None]([None] * len(examples))
        known.append((parser, rows))
    for place, (example, completion) in enumerate(zip(examples, completions, strict=True)):
        if rows[place] is None and reward.applies_to(example):
            rows[place] = parser.parse(completion.text, example)
    return [row or Parsed(None) for row in rows]


def applies_to(reward: object, example: Example) -> bool:
    """Return whether ``reward`` has something to say about answers to ``example``."""
    asked = getattr(reward, "applies_to", None)
    return asked is None or asked(example)


def explain_unusable(reward: object, example: Example) -> str | None:
    """Return why ``reward`` can score no answer to ``example``; None if it can or cannot say."""
    asked = getattr(reward, "explain_unusable", None)
    return None if asked is None else asked(example)


def takes_batches(reward: object) -> TypeGuard[BatchReward]:
    """Return whether ``reward`` scores many at once; ``isinstance`` is slow with protocols."""
    return getattr(reward, "score_batch", None) is not None


def read_kind(reward: object) -> RewardKind:
    """Return what a reward says it rests on; ``other`` if it does not say."""
    kind: object = getattr(reward, "kind", "other")
    for known in get_args(RewardKind):
        if kind == known:
            return known
    name: object = getattr(reward, "name", type(reward).__name__)
    raise RewardError(
        f"reward {name!r} has an unknown kind",
        got=repr(kind),
        expected=f"one of {', '.join(get_args(RewardKind))}",
    )


def read_list(value: object) -> Sequence[object] | None:
    """Return a list or tuple in a field of an example as it is; None for anything else."""
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else None


def read_mapping(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None


def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, whose keys stand there once: ``object_pairs_hook`` of a decoder."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key appears twice")
    return dict(pairs)


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_UNSAID = "…"


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
        number = text.count(mark)
        if number != 1:
            return {}, f"{mark} appears {number} times" if number else f"{mark} is missing"
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
        return self.tags[-1]

    def make_reward(self) -> Reward:
        """Return the reward that pays for an answer what the evaluation counts it for."""
        return LabelMatch(cast("Parser", self))

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
        """Return the text whose answer is ``target``; of tags before it, "…" is the contents."""
        answer = self._normalize(target)
        return self._finish(self._spell(answer), answer)

    def measure(self, example: Example, text: str) -> float | None:
        """Return what ``make_reward`` pays for a text; None if it is no answer or has no score."""
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


@lru_cache(maxsize=64)
def _open_reward(parser: AnswerParser) -> Reward:
    """Return the reward of a parser, the same every time: it may keep processes and tests."""
    return parser.make_reward()


class OpenParser(AnswerParser):
    """Parsers whose answers are not a few labels."""

    @property
    def labels(self) -> tuple[str, ...]:
        return ()


class LabelMatch(AnswerReward):
    """1 if the parsed label equals the example's label, else 0.

    It is for answers that have one spelling: labels, letters of options, JSON. An invalid
    completion earns 0 and is counted as invalid; an example without a label cannot be scored, and
    a label that no answer can give raises a RewardError.
    """

    name = "label_match"
    kind: RewardKind = "truth"
    needs = "label"

    def __init__(self, parser: Parser) -> None:
        super().__init__(parser)
        self._labels: dict[tuple[str, str], str] = {}

    def _find_problem(self, example: Example) -> str | None:
        self._read_label(example, str(example.label))

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
            read = Parsed(None, str(error))
        else:
            read = self.parser.parse(written, example)
        if read.label is not None:
            self._labels[example.id, label] = read.label
            return read.label
        labels = ", ".join(self.parser.labels)
        raise RewardError(
            f"example {example.id} has a label that no answer can give",
            got=repr(label),
            expected=f"one of {labels}" if labels else f"an answer ({read.reason})",
        )


class AnswerFormat(AnswerReward):
    """1 if the completion is an answer for the parser, else 0 and invalid with the reason.

    It does not look at whether the answer is right; the label of the example plays no part in it.
    """

    name = "answer_format"
    kind: RewardKind = "format"

    def _score(self, example: Example, label: str, answer: Parsed) -> Score:
        return Score(1.0, f"an answer: {label}")


class HumanOverride:
    """The value of another reward, with a person's label in place of the example's.

    In a RewardSet it overrides: where it has a value, truths and judgements are dropped. A person's
    label that is no text raises a RewardError.

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
        corrected = self._correct(example)
        return corrected is not None and applies_to(self.reward, corrected)

    def __call__(self, example: Example, completion: Completion) -> Score:
        corrected = self._correct(example)
        if corrected is None:
            return Score(None, "nobody corrected this")
        return self.reward(corrected, completion)

    def explain_unusable(self, example: Example) -> str | None:
        corrected = self._correct(example)
        return None if corrected is None else explain_unusable(self.reward, corrected)

    def _correct(self, example: Example) -> Example | None:
        label: object = example.fields.get(self.field)
        if label is None:
            return None
        if not isinstance(label, str):
            raise RewardError(
                f"example {example.id} has a person's label that is no text", got=repr(label)
            )
        return replace(example, label=label)
