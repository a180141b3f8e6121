"""What is asked in a stream, group by group, how it is worked on, and what comes back."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import Field

from groupwise.core import Completion, Config, Example, Place
from groupwise.inference.engine import Sampling
from groupwise.inference.responder import RequestCause


class StreamSettings(Config):
    """Settings of batch inference; memory is bounded by all but ``order``.

    Attributes:
        batch_size: items that a model in this process answers at once, from any groups.
        order: ``given`` yields groups as they came; ``finished`` as soon as each is complete.
        look_ahead: so many batches are formed at once, out of items sorted by their length.
        num_prefetch: batches whose pictures are made ready while the model answers another.
        num_threads: that read, decode and scale pictures.
        max_pixels: larger pictures are scaled down to so many; None: as the processor does.
    """

    batch_size: int = Field(default=16, ge=1, le=65_536)
    order: Literal["given", "finished"] = "given"
    look_ahead: int = Field(default=4, ge=1, le=4096)
    num_prefetch: int = Field(default=1, ge=0, le=4096)
    num_threads: int = Field(default=4, ge=1, le=1024)
    max_pixels: int | None = Field(default=786_432, ge=28 * 28)

    @property
    def window(self) -> int:
        """Items that are looked at at once."""
        return self.batch_size * self.look_ahead


class RaySettings(Config):
    """Workers of a cluster, each with a policy of its own.

    Attributes:
        address: of a running cluster (``auto``: the one of this machine); None: one is started
            in this machine, unless this process is in one already.
        num_workers: processes with a policy each.
        num_cpus, num_gpus: of each worker.
        slice_size: items that are handed to Ray at once; the policy is loaded for every slice.
    """

    address: Annotated[str | None, Place("where a cluster is reached", "集群地址")] = None
    num_workers: int = Field(default=2, ge=1, le=4096)
    num_cpus: float = Field(default=1.0, gt=0)
    num_gpus: float = Field(default=0.0, ge=0)
    slice_size: int = Field(default=20_000, ge=1)


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
