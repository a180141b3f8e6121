"""The rows of a reward audit: one per probe, with the answer that shows what is wrong."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from groupwise.core import (
    MAX_PLACES,
    Completion,
    Example,
    Finding,
    FindingLevel,
    GroupwiseError,
    Score,
    ScoreRangeError,
)
from groupwise.rewards.audit.case import Scorer
from groupwise.rewards.reward import takes_batches
from groupwise.rewards.reward_set import RewardSet

Problem = Literal["range", "raised"]

TOLERANCE = 1e-9
MAX_SHOWN_LENGTH, MAX_REASON_LENGTH = 100, 300
BYTES_PER_TOKEN = 4
"""Roughly, of English and of Chinese; rewards of length are audited with it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a text earned.

    Attributes:
        value: in [0, 1], or None where there is none.
        reason: what the reward said.
        breakdown: values of the parts by name.
        problem: ``range`` (outside [0, 1]) or ``raised``; empty if the reward worked.
    """

    value: float | None
    reason: str = ""
    breakdown: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    problem: Problem | Literal[""] = ""


class ScoreTable:
    """Outcomes by example and text; each pair is scored once."""

    def __init__(self, rewards: Scorer) -> None:
        self.rewards = rewards
        self._examples: dict[str, Example] = {}
        self._known: dict[tuple[str, str], Outcome] = {}

    def fill(self, pairs: Iterable[tuple[Example, str]]) -> None:
        """Score the pairs that are not known yet, in one batch where the rewards take batches."""
        new = {
            (example.id, text): (example, text)
            for example, text in pairs
            if (example.id, text) not in self._known
        }
        if not new:
            return
        self._examples |= {example.id: example for example, _ in new.values()}
        outcomes = score_all(self.rewards, list(new.values()))
        self._known |= dict(zip(new, outcomes, strict=True))

    def look_up(self, example: Example, text: str) -> Outcome:
        """Return what ``text`` earned as an answer to ``example``."""
        key = (example.id, text)
        if key not in self._known:
            self.fill([(example, text)])
        return self._known[key]

    def list_rows(self) -> list[tuple[Example, str, Outcome]]:
        """Return all that was scored, in order."""
        return [(self._examples[name], text, o) for (name, text), o in self._known.items()]


def complete(text: str, *, is_truncated: bool = False) -> Completion:
    """Return a text as a policy would have written it, with about as many tokens as it has."""
    tokens = tuple(range(-(-len(text.encode()) // BYTES_PER_TOKEN)))
    return Completion(text, tokens, finish_reason="length" if is_truncated else "stop")


def score_all(
    rewards: Scorer, pairs: list[tuple[Example, str]], *, is_truncated: bool = False
) -> list[Outcome]:
    """Return what each text earns, in one batch where the rewards take batches."""
    batch: object = rewards
    if takes_batches(batch) and pairs:
        examples = [example for example, _ in pairs]
        completions = [complete(text, is_truncated=is_truncated) for _, text in pairs]
        try:
            return [_read_score(score) for score in batch.score_batch(examples, completions)]
        except (GroupwiseError, SystemExit):
            pass  # one of them raised: score one by one to find which
    return [score_alone(rewards, *pair, is_truncated=is_truncated) for pair in pairs]


def score_alone(
    rewards: Scorer, example: Example, text: str, *, is_truncated: bool = False
) -> Outcome:
    """Return what one text earns; what a reward does wrong becomes a problem."""
    call = rewards.score if isinstance(rewards, RewardSet) else rewards
    try:
        return _read_score(call(example, complete(text, is_truncated=is_truncated)))
    except ScoreRangeError as error:
        return Outcome(None, str(error), problem="range")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a stranger's reward
        return Outcome(None, f"{type(error).__name__}: {error}", problem="raised")


def _read_score(score: Score | float | None) -> Outcome:
    found = score if isinstance(score, Score) else Score(score)
    return Outcome(found.value, found.reason, found.breakdown)


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

    def show_answer(self) -> str:
        """Return the answer and what it earned."""
        earned = "no score" if self.earned is None else f"{self.earned:.3g}"
        return f"{shorten(self.text)} earns {earned}"

    def describe(self) -> str:
        """Return one line for people."""
        return f"{self.show_answer()} on {self.example_id[:12]}: {self.why}"


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
    said = f" (it says: {shorten(outcome.reason, MAX_REASON_LENGTH)})" if outcome.reason else ""
    return Evidence(example.id, example.label, text, outcome.value, why + said)


def shorten(text: str, most: int = MAX_SHOWN_LENGTH) -> str:
    """Return a text as a quoted line of bounded length."""
    shown = repr(text)
    if len(shown) <= most:
        return shown
    return f"{shown[: most - 20]}…{shown[-15:]} ({len(text)} characters)"
