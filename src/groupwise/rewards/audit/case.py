"""What a reward audit is about: the rewards, a sample of examples, and how answers are written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.inference.model import Model
from groupwise.inference.settings import RetrySettings
from groupwise.judges import JudgeSettings, StopSettings
from groupwise.rewards.reward import NearMisses, Parser
from groupwise.rewards.reward_set import RewardSet

Scorer = RewardSet | Callable[[Example, Completion], Score | float | None]
"""A RewardSet, or any function that scores one completion."""

Measure = Callable[[Example, str], float | None]
"""How the metric counts a text: 1 right, 0 wrong, between them partly right, None invalid."""

ASKED_ONCE = JudgeSettings(
    retry=RetrySettings(max_attempts=1), stop=StopSettings(max_no_verdict_rate=1.0)
)
"""Settings of a judge in an audit: stand-ins that fail are meant to."""

SAMPLE_SIZE = 16
NUM_RIVALS = 3


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


@dataclass(frozen=True, slots=True)
class Item:
    """One example of the sample with its answers.

    Attributes:
        example: the example.
        label: its label, in the spelling of answers: of a solution, the answer.
        reference: the right answer in the right form.
        rivals: other labels, likewise.
        wrong: the answers with the other labels, all of them wrong for the metric.
        near: texts that are nearly the right answer, where the parser knows any.
    """

    example: Example
    label: str
    reference: str
    rivals: tuple[str, ...]
    wrong: tuple[str, ...]
    near: tuple[str, ...] = ()


def draw_items(case: RewardCase, *, size: int = SAMPLE_SIZE) -> list[Item]:
    """Return up to ``size`` labelled examples, taken from the labels in turn."""
    by_label: dict[str, list[Example]] = {}
    for example in case.examples:
        if example.label is not None:
            by_label.setdefault(example.label, []).append(example)
    if not by_label:
        raise RewardError(
            "rewards cannot be audited without labelled examples",
            got=f"{len(case.examples)} examples without labels",
        )
    return [_make_item(case, example, list(by_label)) for example in _take_turns(by_label, size)]


def relabel(example: Example, label: str) -> Example:
    """Return the example as if ``label`` were its truth, for writers that look it up."""
    return replace(example, label=label)


def _take_turns(by_label: Mapping[str, Sequence[Example]], size: int) -> list[Example]:
    longest = max(map(len, by_label.values()))
    turns = [rows[n] for n in range(longest) for rows in by_label.values() if n < len(rows)]
    return turns[:size]


def _make_item(case: RewardCase, example: Example, seen: Sequence[str]) -> Item:
    label = str(example.label)
    labels = case.parser.labels
    others = [name for name in labels or seen if name != label]
    rivals = others if labels else others[:NUM_RIVALS]
    written = {name: case.write(example, name) for name in (label, *rivals)}
    spelled = {name: case.parser.parse(text, example).label for name, text in written.items()}
    texts = [written[name] for name in rivals]
    parser: object = case.parser
    return Item(
        example,
        label=spelled[label] or label,
        reference=written[label],
        rivals=tuple(spelled[name] or name for name in rivals),
        wrong=tuple(text for text in texts if case.parser.measure(example, text) != 1.0),
        near=tuple(parser.write_near_misses(label)) if isinstance(parser, NearMisses) else (),
    )
