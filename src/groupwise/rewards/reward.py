"""What every reward is: a named function from an example and a completion to a Score."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeGuard, get_args, runtime_checkable

from groupwise.core import Completion, Example, RewardError, Score

RewardKind = Literal["human", "truth", "judgement", "format", "shaping", "other"]
"""What a reward's value rests on.

``human``: a person's correction; it overrides truths and judgements. ``truth``: a reference
answer, tests, a symbolic check. ``judgement``: an opinion about rightness (a judge, a heuristic);
it may not outvote a known truth. ``format``: the form alone. ``shaping``: length and the like.
``other``: a reward that does not say.
"""


@runtime_checkable
class Reward(Protocol):
    """Scores one completion.

    A reward that cannot score returns ``Score(None, reason)``; it never guesses a number. A
    completion that is no answer for the parser earns ``Score(0.0, reason, invalid=True)``. A
    reward says what it rests on with an attribute ``kind`` (RewardKind); without it, it is
    ``other``, so every reward that judges must have it.
    """

    @property
    def name(self) -> str:
        """The name in metrics and breakdowns."""
        ...

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of ``completion`` as an answer to ``example``."""
        ...


@runtime_checkable
class BatchReward(Protocol):
    """A reward that scores many completions at once, because it calls out or uses a model."""

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> Sequence[Score]:
        """Return one score for each pair of an example and a completion, in order."""
        ...


@runtime_checkable
class ReferenceCheck(Protocol):
    """A reward that says, from the example alone, whether answers can be compared with it.

    A reference that cannot be read, or tests that cannot decide, are an error of the data: every
    completion gets ``Score(None, reason)``, and the audit finds the example before training. An
    example that has no reference at all is none of this reward's, and not unusable.
    """

    def explain_unusable(self, example: Example) -> str | None:
        """Return why no completion can be scored on ``example``; None if they can.

        The same causes have the same words, so that they can be counted; answers are kept, so
        that asking for every completion costs nothing.
        """
        ...


@runtime_checkable
class PartialReward(Protocol):
    """A reward that has nothing to say about some examples, whatever the answer.

    In a RewardSet it weighs nothing on those. A reward without this method is meant to have a
    value for every answer, and one without leaves its answer without a score.
    """

    def applies_to(self, example: Example) -> bool:
        """Return whether answers to ``example`` can have a value."""
        ...


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
