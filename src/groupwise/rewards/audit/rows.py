"""What an audit is about, what answers earned, and the rows that it makes of that: one per rule."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from groupwise.core import (
    MAX_PLACES,
    Completion,
    Example,
    Finding,
    FindingLevel,
    Score,
    ScoreRangeError,
    parse_yaml,
)
from groupwise.inference.model import Model
from groupwise.inference.settings import RetrySettings
from groupwise.judges import JudgeSettings, StopSettings
from groupwise.rewards.reward import Parser, takes_batches
from groupwise.rewards.reward_set import RewardSet

TOLERANCE = 1e-9
BYTES_PER_TOKEN = 4
"""Roughly, of English and of Chinese; rewards of length are audited with it."""
ASKED_ONCE = JudgeSettings(
    retry=RetrySettings(max_attempts=1), stop=StopSettings(max_no_verdict_rate=1.0)
)
"""Settings of a judge in an audit: stand-ins that fail are meant to."""
Scorer = RewardSet | Callable[[Example, Completion], Score | float | None]
"""A RewardSet, or any function that scores one completion."""
Pair = tuple[Example, str]
"""An example and a text that answers it."""


@dataclass(frozen=True, slots=True)
class JudgeSeat:
    """How to put another model behind the judge of the rewards.

    Attributes:
        build: returns the same rewards with that model behind their judge, under ``ASKED_ONCE``
            and without a cache.
        replies: the whole reply by which a model gives each label.
    """

    build: Callable[[Model], Scorer]
    replies: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RewardCase:
    """Rewards and what they are to be compared with.

    Attributes:
        rewards: what training is rewarded by.
        examples: examples with the balance of the training data. Where none has a label, the
            rewards only check, and are audited without references.
        parser: reads answers as the evaluation does.
        write_answer: ``(example, label) -> text`` in the right form; with the example's own label
            it is the reference answer. None: the parser writes it.
        seat: where the judge sits, if there is one; None: a RewardSet with Judged parts is
            looked through.
        samples: answers of the base by the id of an example, where some were drawn.
        max_new_tokens: that a policy can say at most; None: not known.
        uncounted: parts of the rewards that have a value in training and none before a run, such as
            one of a model that is loaded then.
    """

    rewards: Scorer
    examples: Sequence[Example]
    parser: Parser
    write_answer: Callable[[Example, str], str] | None = None
    seat: JudgeSeat | None = None
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    max_new_tokens: int | None = None
    uncounted: Sequence[str] = ()

    @property
    def has_references(self) -> bool:
        """Whether some example has a label."""
        return any(example.label is not None for example in self.examples)

    def write(self, example: Example, label: str) -> str:
        """Return the answer to ``example`` that gives ``label``."""
        write = self.write_answer
        return self.parser.write(label) if write is None else write(example, label)


@cache
def read_tables() -> dict[str, Any]:
    return parse_yaml(Path(__file__).with_name("audit.yaml").read_text(encoding="utf-8"))


def list_reward_findings() -> list[str]:
    """Return every name that a finding about rewards can have."""
    tables = read_tables()
    return [f"reward/{name}" for name in {**tables["rules"], **tables["checks"]}]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a text earned; ``problem`` is empty if the reward worked."""

    value: float | None
    reason: str = ""
    breakdown: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    problem: Literal["range", "raised", ""] = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One answer that shows what is wrong: what it earned (None: nothing), and why that is."""

    example_id: str
    label: str | None
    text: str
    earned: float | None
    why: str

    def show_answer(self) -> str:
        earned = "no score" if self.earned is None else f"{self.earned:.3g}"
        return f"{_shorten(self.text, 100)} earns {earned}"

    def describe(self) -> str:
        return f"{self.show_answer()} on {self.example_id[:12]}: {self.why}"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """What one probe found."""

    name: str  # fixed, for programs and ``--accept``
    level: FindingLevel  # how bad a failure is
    title: str  # what was tried, for people
    must: str  # what has to hold
    num_tried: int
    highest: float | None  # the most that an answer earned; None if none has a score
    num_failed: int = 0  # answers that break the rule
    evidence: tuple[Evidence, ...] = ()  # the first of those, at most 20

    @property
    def is_passed(self) -> bool:
        return self.num_failed == 0

    def make_finding(self) -> Finding:
        message = f"{self.title}: {self.must}; {self.num_failed} of {self.num_tried} break this."
        places = tuple(evidence.describe() for evidence in self.evidence)
        return Finding(self.level, self.name, message, self.num_failed, places)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"is_passed": self.is_passed}


def make_row(
    rule: str,
    outcomes: Sequence[Outcome],
    failures: Sequence[Evidence],
    *,
    num_tried: int | None = None,
    kind: Literal["rules", "checks"] = "rules",
) -> AuditRow:
    """Return the row of what was tried under a rule, of which ``failures`` break it."""
    tables = read_tables()
    level, title, must = tables[kind][rule]
    return AuditRow(
        name=f"reward/{rule}",
        level=level if level in get_args(FindingLevel) else "warning",
        title=title,
        must=tables["bars"].get(must, must),
        num_tried=len(outcomes) if num_tried is None else num_tried,
        highest=max((one.value for one in outcomes if one.value is not None), default=None),
        num_failed=len(failures),
        evidence=tuple(failures[:MAX_PLACES]),
    )


def point_at(pair: Pair, outcome: Outcome, why: str) -> Evidence:
    """Return the evidence that a text is; the reward's own words stand behind ``why``."""
    example, text = pair
    said = f" (it says: {_shorten(outcome.reason, 300)})" if outcome.reason else ""
    return Evidence(example.id, example.label, text, outcome.value, why + said)


def _shorten(text: str, most: int) -> str:
    shown = repr(text)
    if len(shown) <= most:
        return shown
    return f"{shown[: most - 20]}…{shown[-15:]} ({len(text)} characters)"


class ScoreTable:
    """What answers earned, by example and text; each is scored once."""

    def __init__(self, score: Callable[..., list[Outcome]]) -> None:
        self.score = score
        self.rows: dict[tuple[str, str], tuple[Pair, Outcome]] = {}

    def fill(self, pairs: Iterable[Pair]) -> None:
        """Score the pairs that are not known yet, in one batch where the rewards take batches."""
        new = {(e.id, text): (e, text) for e, text in pairs if (e.id, text) not in self.rows}
        outcomes = self.score(list(new.values()))
        self.rows |= dict(zip(new, zip(new.values(), outcomes, strict=True), strict=True))

    def look_up(self, pair: Pair) -> Outcome:
        self.fill([pair])
        return self.rows[pair[0].id, pair[1]][1]

    def earn(self, pair: Pair) -> float:
        """Return the value that a text earned; -1 where it has none."""
        value = self.look_up(pair).value
        return -1.0 if value is None else value

    def point(self, pair: Pair, why: str) -> Evidence:
        return point_at(pair, self.look_up(pair), why)

    def make_row(
        self, rule: str, pairs: Iterable[Pair], failures: Sequence[Evidence], **more: Any
    ) -> AuditRow:
        return make_row(rule, [self.look_up(pair) for pair in pairs], failures, **more)


def score_all(
    rewards: Scorer, pairs: Sequence[Pair], *, is_truncated: bool = False
) -> list[Outcome]:
    """Return what each text earns, in one batch where the rewards take batches.

    A completion has about as many tokens as a policy would have written its text with.
    """
    ended = "length" if is_truncated else "stop"
    completions: list[Completion] = []
    for _, text in pairs:
        tokens = tuple(range(-(-len(text.encode()) // BYTES_PER_TOKEN)))
        completions.append(Completion(text, tokens, finish_reason=ended))

    def read(score: Score | float | None) -> Outcome:
        found = score if isinstance(score, Score) else Score(score)
        return Outcome(found.value, found.reason, found.breakdown)

    batch: object = rewards
    if takes_batches(batch) and pairs:
        try:
            return list(map(read, batch.score_batch([e for e, _ in pairs], completions)))
        except (Exception, SystemExit):  # noqa: BLE001 - a stranger's reward
            pass  # one of them raised: score one by one to find which
    call = rewards.score if isinstance(rewards, RewardSet) else rewards
    outcomes: list[Outcome] = []
    for (example, _), completion in zip(pairs, completions, strict=True):
        try:
            outcomes.append(read(call(example, completion)))
        except ScoreRangeError as error:
            outcomes.append(Outcome(None, str(error), problem="range"))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's reward
            told = f"{type(error).__name__}: {error}"
            outcomes.append(Outcome(None, told, problem="raised"))
    return outcomes
