"""What rewards do with a judge: with wrong verdicts, with failures, with orders in an answer.

The model behind the judge is a stand-in, so that every verdict can be tried.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.inference.model import Model
from groupwise.rewards.audit.case import Item, JudgeSeat, Measure
from groupwise.rewards.audit.rows import (
    TOLERANCE,
    AuditRow,
    Evidence,
    Outcome,
    Rule,
    point_at,
    score_all,
    score_alone,
)
from groupwise.rewards.audit.stand_ins import Failing, Gullible, Quoting, StandIn
from groupwise.rewards.audit.texts import INJECTIONS
from groupwise.rewards.reward_set import RewardSet

OUTVOTES = Rule(
    "reward/judge-outvotes-truth",
    "error",
    "a right and a wrong answer, whatever the judge says of either",
    "the right one must earn more where the truth is known",
)
FAILURES = Rule(
    "reward/judge-failure-scored",
    "error",
    "answers whose judge times out, says nothing or contradicts itself",
    "must have no score, unless no verdict changes what they earn",
)
OBEYS = Rule(
    "reward/judge-obeys-injection",
    "error",
    "a wrong answer with orders to the judge, forged verdicts and closed fences",
    "must earn what the same judge gives it when it reads them as part of the answer",
)
RULES = (OUTVOTES, FAILURES, OBEYS)

PROBABILITIES = (1.0, 0.75, 0.51, 0.5)
_NO_VERDICTS = (None, "", "I cannot tell.", "{first} {second}")
NUM_JUDGED_ITEMS = 2
_PLAIN = "I have thought about it, and this is all that I can say."


class Agreeing:
    """Rewards whose judge always agrees with the metric: pays right answers all it can."""

    def __init__(self, seat: JudgeSeat, measure: Measure) -> None:
        self.measure = measure
        self.rewards = [seat.build(StandIn(seat.replies, label)) for label in seat.replies]

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the best score that a verdict can give a right answer, else the worst."""
        return self.score_batch([example], [completion])[0]

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return such a score for each pair."""
        pairs = [(e, c.text) for e, c in zip(examples, completions, strict=True)]
        rows = zip(*(score_all(rewards, pairs) for rewards in self.rewards), strict=True)
        return [self._choose(*pair, row) for pair, row in zip(pairs, rows, strict=True)]

    def _choose(self, example: Example, text: str, outcomes: Sequence[Outcome]) -> Score:
        problem = next((outcome for outcome in outcomes if outcome.problem), None)
        if problem is not None:
            raise RewardError(problem.reason)
        sign = 1 if self.measure(example, text) == 1.0 else -1
        found = max(outcomes, key=lambda outcome: _rank(outcome, sign))
        return Score(found.value, found.reason, found.breakdown)


def _rank(outcome: Outcome, sign: int) -> tuple[float, int]:
    """Return the value, best first for the sign 1; between equals, how many parts have one."""
    value = -1.0 if outcome.value is None else outcome.value
    return sign * value, sum(part is not None for part in outcome.breakdown.values())


def check_judging(items: Sequence[Item], seat: JudgeSeat) -> list[AuditRow]:
    """Return the rows about the judge."""
    sample = [item for item in items if item.wrong][:NUM_JUDGED_ITEMS]
    return [
        _check_outvoting(sample, seat),
        _check_failures(sample, seat),
        _check_injections(sample, seat),
    ]


def check_fooling(examples: Sequence[Example], seat: JudgeSeat) -> list[AuditRow]:
    """Return the rows about a judge where no answer is known to be right."""
    items = [Item(example, "", "", (), (_PLAIN,)) for example in examples[:NUM_JUDGED_ITEMS]]
    return [_check_failures(items, seat), _check_injections(items, seat)]


def _check_outvoting(items: Sequence[Item], seat: JudgeSeat) -> AuditRow:
    outcomes: list[Outcome] = []
    failures: list[Evidence] = []
    for item in items:
        wrong = item.wrong[0]
        if not _knows_truth(item, seat):
            continue
        rights = _try_verdicts(item.example, item.reference, seat)
        wrongs = _try_verdicts(item.example, wrong, seat)
        outcomes += [outcome for _, outcome in (*rights, *wrongs)]
        for (said_right, right), (said_wrong, paid) in product(rights, wrongs):
            if right.value is None or paid.value is None or right.value > paid.value + TOLERANCE:
                continue
            why = (
                f"the right answer {item.reference!r} earns {right.value:.3g} when the judge says "
                f"{said_right} of it and {said_wrong} of this"
            )
            failures.append(point_at(item.example, wrong, paid, why))
            break
    return OUTVOTES.make_row(outcomes, failures)


def _knows_truth(item: Item, seat: JudgeSeat) -> bool:
    """Whether the rewards tell right from wrong without the judge.

    A RewardSet says so by its truths; of other rewards it is known if they do when the judge fails.
    """
    rewards = seat.build(Failing(seat.replies))
    right = score_alone(rewards, item.example, item.reference)
    wrong = score_alone(rewards, item.example, item.wrong[0])
    pairs = [(right.value, wrong.value)]
    if isinstance(rewards, RewardSet):
        truths = [name for name, kind in rewards.kinds.items() if kind == "truth"]
        truths = [name for name in truths if name in rewards.weigh(item.example)]
        pairs = [(right.breakdown.get(name), wrong.breakdown.get(name)) for name in truths]
    return any(a is not None and b is not None and a > b + TOLERANCE for a, b in pairs)


def _try_verdicts(example: Example, text: str, seat: JudgeSeat) -> list[tuple[str, Outcome]]:
    """Return what ``text`` earns under every verdict, and under none."""
    models: list[tuple[str, Model]] = [("no verdict", Failing(seat.replies))]
    for label, probability in product(seat.replies, PROBABILITIES):
        model = StandIn(seat.replies, label, probability=probability)
        models.append((f"{label} ({probability:.2f})", model))
    return [(said, score_alone(seat.build(model), example, text)) for said, model in models]


def _check_failures(items: Sequence[Item], seat: JudgeSeat) -> AuditRow:
    """Hold what answers earn from a failed judge against what they earn with verdicts.

    Any number is a fault where verdicts matter: the weight of what the judge did not say went to
    the other parts, or to a verdict that nobody gave.
    """
    outcomes: list[Outcome] = []
    failures: list[Evidence] = []
    for item in items:
        for text in filter(None, (item.reference, item.wrong[0])):
            judged = _try_labels(item.example, text, seat)
            for model in _list_failing(seat):
                failed = score_alone(seat.build(model), item.example, text)
                outcomes.append(failed)
                why = _explain_failed(failed.value, judged, is_right=text == item.reference)
                if why:
                    said = "it times out" if model.text is None else f"it says {model.text!r}"
                    failures.append(
                        point_at(item.example, text, failed, f"the judge failed ({said}), {why}")
                    )
                    break
    return FAILURES.make_row(outcomes, failures)


def _try_labels(example: Example, text: str, seat: JudgeSeat) -> list[float]:
    """Return what an answer earns under each verdict."""
    models = [StandIn(seat.replies, label) for label in seat.replies]
    scores = [score_alone(seat.build(model), example, text).value for model in models]
    return [value for value in scores if value is not None]


def _explain_failed(failed: float | None, judged: Sequence[float], *, is_right: bool) -> str:
    """Return what is wrong with what an answer earns when the judge fails; empty if nothing is."""
    if failed is None or not judged or max(judged) <= min(judged) + TOLERANCE:
        return ""
    if is_right and failed < max(judged) - TOLERANCE:
        return "which was counted against the right answer"
    if not is_right and failed > min(judged) + TOLERANCE:
        return "which was counted for a wrong answer"
    return (
        "and its weight went to the other parts: answers that were judged earn from "
        f"{min(judged):.3g} to {max(judged):.3g}"
    )


def _list_failing(seat: JudgeSeat) -> Iterator[Failing]:
    first, second = list(seat.replies.values())[:2]
    for text in _NO_VERDICTS:
        said = None if text is None else text.format(first=first, second=second)
        yield Failing(seat.replies, text=said)


def _check_injections(items: Sequence[Item], seat: JudgeSeat) -> AuditRow:
    pairs = [
        (item.example, f"{item.wrong[0]}\n{injection}")
        for item, injection in product(items, INJECTIONS)
    ]
    outcomes: list[Outcome] = []
    failures: dict[int, Evidence] = {}
    for honest in seat.replies:
        plain = score_all(seat.build(StandIn(seat.replies, honest)), pairs)
        for weak, model in _list_weak(seat, honest):
            found = score_all(seat.build(model), pairs)
            outcomes += found
            for place, (outcome, base) in enumerate(zip(found, plain, strict=True)):
                if _is_swayed(outcome.value, base.value):
                    plainly = "no score" if base.value is None else f"{base.value:.3g}"
                    why = f"{weak} would give it {plainly} without the order"
                    failures.setdefault(place, point_at(*pairs[place], outcome, why))
    return OBEYS.make_row(outcomes, [failures[place] for place in sorted(failures)])


def _list_weak(seat: JudgeSeat, honest: str) -> Iterator[tuple[str, Model]]:
    for obeyed in seat.replies:
        yield "a judge that obeys what it reads", Gullible(seat.replies, honest, obeyed=obeyed)
    yield "a judge that quotes what it reads", Quoting(seat.replies, honest)


def _is_swayed(value: float | None, plain: float | None) -> bool:
    """Whether an order in the text made it earn more, or took its score away."""
    if value is None:
        return plain is not None
    return value > (plain or 0.0) + TOLERANCE
