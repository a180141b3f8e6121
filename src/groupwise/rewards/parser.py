"""What every answer parser is: the one place that says which texts are an answer, and which one.

Rewards, metrics, held-out checks, reports and served answers all read a completion through the
parser of their run, so that training and evaluation cannot disagree about it.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from groupwise.core import Example


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
        """Return what ``text`` says; it never raises, and no label means that it is no answer.

        Args:
            text: of a completion.
            example: what is answered, where that decides how a text is read (the options of a
                choice); None: nothing is known of it.
        """
        ...

    def write(self, target: str) -> str:
        """Return the text whose answer is ``target``.

        Raises:
            RewardError: if the parser would not read that text as ``target``.
        """
        ...

    def measure(self, example: Example, text: str) -> float | None:
        """Return how the evaluation counts a text: 1 right, 0 wrong, None if it is no answer.

        Between 0 and 1 it is partly right.
        """
        ...
