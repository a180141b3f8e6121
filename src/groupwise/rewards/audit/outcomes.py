"""Scoring the texts of an audit once each, also with rewards that raise or leave their range."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from groupwise.core import Completion, Example, GroupwiseError, Score, ScoreRangeError
from groupwise.rewards.audit.case import Scorer
from groupwise.rewards.reward import BatchReward
from groupwise.rewards.reward_set import RewardSet

Problem = Literal["range", "raised"]

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

    def score_again(self, pairs: Sequence[tuple[Example, str]]) -> list[Outcome]:
        """Return what the pairs earn now, whatever they earned before."""
        return score_all(self.rewards, list(pairs))

    def list_rows(self) -> list[tuple[Example, str, Outcome]]:
        """Return all that was scored, in order."""
        return [(self._examples[name], text, o) for (name, text), o in self._known.items()]


def complete(text: str) -> Completion:
    """Return a text as a policy would have written it, with about as many tokens as it has."""
    return Completion(text, token_ids=tuple(range(-(-len(text.encode()) // BYTES_PER_TOKEN))))


def score_all(rewards: Scorer, pairs: list[tuple[Example, str]]) -> list[Outcome]:
    """Return what each text earns, in one batch where the rewards take batches."""
    batch: object = rewards
    if isinstance(batch, BatchReward) and pairs:
        examples = [example for example, _ in pairs]
        completions = [complete(text) for _, text in pairs]
        try:
            return [_read_score(score) for score in batch.score_batch(examples, completions)]
        except GroupwiseError:
            pass  # one of them raised: score one by one to find which
    return [score_alone(rewards, example, text) for example, text in pairs]


def score_alone(rewards: Scorer, example: Example, text: str) -> Outcome:
    """Return what one text earns; what a reward does wrong becomes a problem."""
    call = rewards.score if isinstance(rewards, RewardSet) else rewards
    try:
        return _read_score(call(example, complete(text)))
    except ScoreRangeError as error:
        return Outcome(None, str(error), problem="range")
    except Exception as error:  # noqa: BLE001 - the boundary to a stranger's reward
        return Outcome(None, f"{type(error).__name__}: {error}", problem="raised")


def _read_score(score: Score | float | None) -> Outcome:
    found = score if isinstance(score, Score) else Score(score)
    return Outcome(found.value, found.reason, found.breakdown)
