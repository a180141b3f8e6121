"""What is asked in a stream, group by group, and what comes back."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from groupwise.core import Completion, Example
from groupwise.inference.engine import Sampling
from groupwise.inference.failures import RequestCause
from groupwise.inference.streaming.settings import StreamSettings

FailureCause = Literal["picture", "too_long", "memory"] | RequestCause
"""``picture``: it cannot be read, decoded or scaled. ``too_long``: the prompt and the longest
answer are more than the model takes. ``memory``: out of memory with this item alone. The others
are those of requests to a server."""


@dataclass(frozen=True, slots=True)
class WorkGroup:
    """Examples whose completions belong together, such as the photos of a work order.

    Attributes:
        id: given back with the completions; need not be unique.
        examples: asked one by one, in this order; none is fine.
    """

    id: str
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an item has no completion; it never stands for a text."""

    cause: FailureCause
    message: str


Outcome = Completion | Failure


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What came of a group: one completion or failure for each example, in order."""

    id: str
    completions: tuple[Outcome, ...]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures alone; none if the group succeeded."""
        return tuple(found for found in self.completions if isinstance(found, Failure))


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One example of a stream and its number in it, counted from 0."""

    number: int
    example: Example


class StreamBackend(Protocol):
    """Answers a stream of examples."""

    def stream(
        self, items: Iterator[WorkItem], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each item's number and outcome once, in any order.

        Items are taken only a bounded number ahead of the oldest one without an outcome, unless
        ``settings.order`` is ``finished``. Closing the iterator ends all work in the background.
        """
        ...
