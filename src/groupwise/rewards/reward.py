"""What every reward is: a named function from an example and a completion to a Score."""

from typing import Protocol, runtime_checkable

from groupwise.core import Completion, Example, Score


@runtime_checkable
class Reward(Protocol):
    """Scores one completion.

    A reward that cannot score returns ``Score(None, reason)``; it never guesses a number. A
    completion that breaks the answer contract earns ``Score(0.0, reason, invalid=True)``.
    """

    @property
    def name(self) -> str:
        """The name in metrics and breakdowns."""
        ...

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score of ``completion`` as an answer to ``example``."""
        ...
