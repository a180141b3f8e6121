"""What the page of rounds shows: candidates, the evidence for them, and what was served when."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 320.0, 60.0
"""Of a curve, in its own units."""


@dataclass(frozen=True, slots=True)
class ShownLook:
    """One look at a candidate.

    Attributes:
        name: of its certificate.
        num_items, num_sessions: of sessions that test.
        served, candidate: accuracy there of the two versions, in [0, 1]; None: there are none.
        gain_low: lower end of the gain there, however often one looked, in [-1, 1].
        evidence: for a gain, as a share of what is needed.
        held_out_served, held_out_candidate: accuracy on the held-out set.
        loss_p: p-value of a loss there.
        level: that it needs.
        verdict: after it.
        unbeaten: names of rivals that need no training and that the candidate does not beat.
    """

    name: str
    num_items: int
    num_sessions: int
    served: float | None
    candidate: float | None
    gain_low: float
    evidence: float
    held_out_served: float | None
    held_out_candidate: float | None
    loss_p: float
    level: float
    verdict: str
    unbeaten: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownCandidate:
    """One round.

    Attributes:
        number: from 1.
        step: of its run that goes on or comes next; empty: it has ended.
        rewards: mean reward of each step of GRPO so far.
        looks: at the candidate, the last one first.
    """

    number: int
    step: str
    rewards: tuple[float, ...]
    looks: tuple[ShownLook, ...]

    @property
    def curve(self) -> str:
        """The rewards as the points of an SVG line in a box of ``WIDTH`` and ``HEIGHT``."""
        return draw_curve(self.rewards)


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A change of what is served.

    Attributes:
        at: when, in UTC.
        event: what happened.
        version: that was served from then on.
    """

    at: str
    event: str
    version: str


@dataclass(frozen=True, slots=True)
class ShownRounds:
    """A loop.

    Attributes:
        candidates: the last one first.
        changes: the last one first.
    """

    candidates: tuple[ShownCandidate, ...]
    changes: tuple[ShownChange, ...]


def draw_curve(values: Sequence[float]) -> str:
    """Return values in [0, 1] as the points of an SVG line."""
    last = max(len(values) - 1, 1)
    return " ".join(
        f"{WIDTH * place / last:.1f},{HEIGHT * (1 - min(max(value, 0.0), 1.0)):.1f}"
        for place, value in enumerate(values)
    )
