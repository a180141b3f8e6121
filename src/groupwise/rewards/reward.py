"""What every reward and every parser is, and how a reward is asked.

A parser is the one place that says which texts are an answer, and which one: rewards, metrics,
held-out checks, reports and served answers all read a completion through the parser of their run,
so that training and evaluation cannot disagree about it. A reward is a named function from an
example and a completion, or what it says, to a Score.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeGuard, cast, get_args, runtime_checkable

from groupwise.core import Completion, Example, RewardError, Score

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


@runtime_checkable
class Reward(Protocol):
    """Scores one completion.

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
    def name(self) -> str:
        """The name in metrics and breakdowns."""
        ...

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


class AnswerReward(ABC):
    """A reward of the parsed answer; a RewardSet parses a completion once for all of its parts.

    What is no answer for the parser earns 0 and is invalid.

    Attributes:
        parser: reads the answer.
        takes_answers: whether it is asked with parsed answers; False: with completions after all.
    """

    parser: Parser
    takes_answers = True
    _absent = "nothing to compare with"

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of one completion."""
        return self.score_answers([example], parse_all(self, [example], [completion], []))[0]

    def score_answers(
        self, examples: Sequence[Example], answers: Sequence[Parsed]
    ) -> Sequence[Score]:
        """Return one score per pair of an example and what its completion says, in order."""
        return list(map(self._score_parsed, examples, answers))

    def applies_to(self, example: Example) -> bool:
        """Return whether answers to ``example`` can have a value."""
        del example
        return True

    def _score_parsed(self, example: Example, answer: Parsed) -> Score:
        reason = self._explain_unscored(example)
        if reason is not None:
            return Score(None, reason)
        if answer.label is None:
            return Score(0.0, answer.reason, invalid=True)
        return self._score(example, answer.label, answer)

    def _explain_unscored(self, example: Example) -> str | None:
        """Return why no answer to the example has a score; None if one can have."""
        return None if self.applies_to(example) else self._absent

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
    """Return a mapping in a field of an example as it is; None for anything else."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else None
