"""The rows of a reward audit: one per probe, with the answer that shows what is wrong."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from groupwise.core import MAX_PLACES, Example, Finding, FindingLevel
from groupwise.rewards.audit.outcomes import Outcome

TOLERANCE = 1e-9
MAX_SHOWN_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Evidence:
    """One answer that shows what is wrong.

    Attributes:
        example_id: the example it answers.
        label: the example's label.
        text: the answer.
        earned: what it earned, None if nothing.
        why: what is wrong about that.
    """

    example_id: str
    label: str | None
    text: str
    earned: float | None
    why: str

    def describe(self) -> str:
        """Return one line for people."""
        earned = "no score" if self.earned is None else f"{self.earned:.3g}"
        return f"{shorten(self.text)} earns {earned} on {self.example_id[:12]}: {self.why}"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """What one probe found.

    Attributes:
        name: fixed name, for programs and ``--accept``.
        level: how bad a failure is.
        title: what was tried, for people.
        must: what has to hold.
        num_tried: how many answers were looked at.
        highest: the most that one of them earned; None if none has a score.
        num_failed: how many of them break the rule.
        evidence: the first of those, at most 20.
    """

    name: str
    level: FindingLevel
    title: str
    must: str
    num_tried: int
    highest: float | None
    num_failed: int = 0
    evidence: tuple[Evidence, ...] = ()

    @property
    def is_passed(self) -> bool:
        """Whether nothing breaks the rule."""
        return self.num_failed == 0

    def make_finding(self) -> Finding:
        """Return the row's failure as a finding."""
        message = f"{self.title}: {self.must}; {self.num_failed} of {self.num_tried} break this."
        places = tuple(evidence.describe() for evidence in self.evidence)
        return Finding(self.level, self.name, message, self.num_failed, places)

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return asdict(self) | {"is_passed": self.is_passed}


@dataclass(frozen=True, slots=True)
class Rule:
    """A row before anything was tried: its name, level, title and what must hold."""

    name: str
    level: FindingLevel
    title: str
    must: str

    def make_row(
        self, outcomes: Sequence[Outcome], failures: Sequence[Evidence], *, num_tried: int = -1
    ) -> AuditRow:
        """Return the row of these outcomes, of which ``failures`` break the rule."""
        values = [outcome.value for outcome in outcomes if outcome.value is not None]
        return AuditRow(
            name=self.name,
            level=self.level,
            title=self.title,
            must=self.must,
            num_tried=len(outcomes) if num_tried < 0 else num_tried,
            highest=max(values, default=None),
            num_failed=len(failures),
            evidence=tuple(failures[:MAX_PLACES]),
        )


def point_at(example: Example, text: str, outcome: Outcome, why: str) -> Evidence:
    """Return the evidence that ``text`` is; the reward's own words stand behind ``why``."""
    said = f" (it says: {shorten(outcome.reason)})" if outcome.reason else ""
    return Evidence(example.id, example.label, text, outcome.value, why + said)


def shorten(text: str) -> str:
    """Return a text as a quoted line of bounded length."""
    shown = repr(text)
    if len(shown) <= MAX_SHOWN_LENGTH:
        return shown
    return f"{shown[: MAX_SHOWN_LENGTH - 20]}…{shown[-15:]} ({len(text)} characters)"
