"""What is asked about a group of pictures and what is answered, whichever policy answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A group of pictures to be judged.

    Attributes:
        id: what the asker calls it.
        task: what is judged, one of the predictor's tasks.
        pictures: files in order; at least one.
    """

    id: str
    task: str
    pictures: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """What a policy says of a group.

    Attributes:
        id: the request's.
        verdict: one of the task's labels; None: there is no verdict, and ``failure`` says why.
        reason: the policy's own words.
        confidence: probability of the verdict in [0, 1], or None where not known.
        needs_person: whether a person should look: no verdict, or a confidence below the limit.
        details: what else the policy gave on the way (such as a line for each picture).
        failure: why there is no verdict; None where there is one.
    """

    id: str
    verdict: str | None
    reason: str = ""
    confidence: float | None = None
    needs_person: bool = False
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    failure: str | None = None


class GroupPredictor(Protocol):
    """Judges groups; called from one thread at a time."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks it knows."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return what its verdicts depend on (weights, prompts, decoding), as JSON values."""
        ...

    def predict(self, requests: Sequence[GroupRequest]) -> list[GroupVerdict]:
        """Return one verdict for each request, in order; a group that fails has no verdict."""
        ...
