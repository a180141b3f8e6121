"""What a reward audit is about: the rewards, a sample of examples, and how answers are written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from groupwise.core import Completion, Example, Score
from groupwise.inference.model import Model
from groupwise.inference.settings import RetrySettings
from groupwise.judges import JudgeSettings, StopSettings
from groupwise.rewards.reward import Parser
from groupwise.rewards.reward_set import RewardSet

Scorer = RewardSet | Callable[[Example, Completion], Score | float | None]
"""A RewardSet, or any function that scores one completion."""

ASKED_ONCE = JudgeSettings(
    retry=RetrySettings(max_attempts=1), stop=StopSettings(max_no_verdict_rate=1.0)
)
"""Settings of a judge in an audit: stand-ins that fail are meant to."""


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
        if self.write_answer is None:
            return self.parser.write(label)
        return self.write_answer(example, label)
