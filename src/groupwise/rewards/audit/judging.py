"""What rewards do with a judge: with wrong verdicts, with failures, with orders in an answer.

The model behind the judge is a stand-in, so that every verdict can be tried without a model and
within seconds. Each stand-in has one weakness.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import product

from groupwise.core import Example, RewardError
from groupwise.inference.model import LabelShares, Model, Reply, RequestError, Sampling
from groupwise.judges import GenerativeJudge, Judge, LogitJudge
from groupwise.rewards.audit.case import ASKED_ONCE, JudgeSeat, RewardCase, Scorer
from groupwise.rewards.audit.rows import (
    TOLERANCE,
    AuditRow,
    Evidence,
    Outcome,
    Pair,
    make_row,
    point_at,
    read_tables,
    score_all,
)
from groupwise.rewards.judged import Judged
from groupwise.rewards.reward import Reward
from groupwise.rewards.reward_set import RewardSet

_PROBABILITIES = (1.0, 0.75, 0.51, 0.5)
_NO_VERDICTS = (None, "", "I cannot tell.", "{first} {second}")
_MARK = re.compile(r"\b(?=[0-9A-Za-z]*\d)[0-9A-Za-z]{8,}\b")


class StandIn(Model):
    """A model that decides what it is told to, with a probability at the first token."""

    def __init__(self, replies: Mapping[str, str], label: str, *, probability: float = 1.0) -> None:
        self.replies = replies
        self.label = label
        self.probability = probability

    @property
    def identity(self) -> Mapping[str, str | None]:
        return {"model": f"stand-in of the reward audit ({type(self).__name__})", "revision": None}

    def decide(self, prompt: str) -> str:
        del prompt
        return self.label

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        del sampling
        return Reply(self.replies[self.decide(_read_prompt(example))])

    async def label_shares(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        """Give the decided label its probability, and the others the rest in equal parts."""
        prompt = _read_prompt(example)
        decided = self.replies[self.decide(prompt)]
        options = dict(re.findall(r"^(.+?)[:.)] (.*?)\s*$", prompt, flags=re.MULTILINE))
        chosen = next((one for one in labels if decided in (one, options.get(one))), labels[0])
        rest = (1.0 - self.probability) / max(1, len(labels) - 1)
        return LabelShares({n: self.probability if n == chosen else rest for n in labels})


class Gullible(StandIn):
    """Decides what an injection asks for, unless the injection stands inside a fence.

    A fence is a pair of lines that share a mark (a word of at least 8 letters and digits) which
    the text between them does not have.
    """

    def __init__(self, replies: Mapping[str, str], label: str, *, obeyed: str) -> None:
        super().__init__(replies, label)
        self.obeyed = obeyed

    def decide(self, prompt: str) -> str:
        open_text = remove_fenced(prompt)
        is_fooled = any(order in open_text for order in read_tables()["texts"]["pays-injection"])
        return self.obeyed if is_fooled else self.label


class Quoting(StandIn):
    """Quotes the prompt's fenced texts, or all of an unfenced prompt, before it decides."""

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        prompt = _read_prompt(example)
        left = remove_fenced(prompt).splitlines()
        quoted = "\n".join(line for line in prompt.splitlines() if line not in left)
        reply = await super().reply(example, sampling=sampling)
        return Reply(f"I have read: {quoted or prompt}\n{reply.text}")


class Failing(StandIn):
    """Says ``text``, which is no verdict; without one, the request times out."""

    def __init__(self, replies: Mapping[str, str], *, text: str | None = None) -> None:
        super().__init__(replies, next(iter(replies)))
        self.text = text

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        if self.text is None:
            raise RequestError("timeout", "the stand-in never answers")
        return Reply(self.text)

    async def label_shares(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        raise RequestError("timeout", "the stand-in never answers")


def _read_prompt(example: Example) -> str:
    return "\n".join(message.text for message in example.prompt)


def remove_fenced(prompt: str) -> str:
    """Return a prompt without what stands between two lines that share a mark."""
    kept: list[str] = []
    lines = prompt.splitlines()
    while lines:
        line = lines.pop(0)
        marks = _MARK.findall(line)
        ends = (place for mark in marks for place, one in enumerate(lines) if mark in one)
        end = next(ends, None)
        if end is None:
            kept.append(line)
        else:
            lines = lines[end + 1 :]
    return "\n".join(kept)


def find_seat(case: RewardCase) -> JudgeSeat | None:
    """Return the case's seat, or the one that its RewardSet shows; None if nothing is judged."""
    rewards = case.rewards
    if case.seat is not None or not isinstance(rewards, RewardSet):
        return case.seat
    replies: dict[str, str] = {}
    for part in rewards.rewards.values():
        if isinstance(part, Judged):
            judge = _require_known(part.judge)
            if isinstance(judge, LogitJudge):
                replies |= zip(judge.labels, judge.option_texts, strict=True)
            else:
                before, tag = "<analysis>So it is.</analysis>", judge.tag
                replies |= {one: f"{before}<{tag}>{one}</{tag}>" for one in judge.labels}

    def build(responder: Model) -> RewardSet:
        parts: dict[str, tuple[Reward, float]] = {}
        for name, reward in rewards.rewards.items():
            seated = copy(reward)
            if isinstance(seated, Judged):
                seated.judge = _require_known(seated.judge).put_on(responder, ASKED_ONCE)
            parts[name] = (seated, rewards.weights[name])
        return RewardSet(parts, drop_contradicted=rewards.drops_contradicted)

    return JudgeSeat(build, replies) if replies else None


def _require_known(judge: Judge) -> GenerativeJudge | LogitJudge:
    if isinstance(judge, GenerativeJudge | LogitJudge):
        return judge
    raise RewardError(
        f"the audit cannot put a stand-in behind the judge {judge.name!r}",
        got=type(judge).__name__,
        expected="a GenerativeJudge or a LogitJudge",
        fix="say how with RewardCase(seat=JudgeSeat(...))",
    )


def score_agreeing(
    rewards: Sequence[Scorer],
    measure: Callable[[Example, str], float | None] | None,
    pairs: Sequence[Pair],
    *,
    is_truncated: bool = False,
) -> list[Outcome]:
    """Return what texts earn whose judge agrees with the metric: right answers, all they can.

    ``rewards`` are the same with a judge that always gives one label, for each label. Without a
    metric no answer is right.
    """
    columns = [score_all(one, pairs, is_truncated=is_truncated) for one in rewards]
    found: list[Outcome] = []
    for pair, outcomes in zip(pairs, zip(*columns, strict=True), strict=True):
        sign = 1 if measure is not None and measure(*pair) == 1.0 else -1

        def rank(outcome: Outcome, sign: int = sign) -> tuple[bool, float, int]:
            value = -1.0 if outcome.value is None else outcome.value
            num_parts = sum(part is not None for part in outcome.breakdown.values())
            return bool(outcome.problem), sign * value, num_parts

        found.append(max(outcomes, key=rank))
    return found


Answers = tuple[Example, str, str]
"""An example with its right and a wrong answer; the right one is empty where none is known."""


def check_judge(answers: Sequence[Answers], seat: JudgeSeat) -> list[AuditRow]:
    """Return the rows about a judge."""
    rows = [_check_failures(answers, seat), _check_injections(answers, seat)]
    return [_check_outvoting(answers, seat), *rows] if answers and answers[0][1] else rows


def _check_outvoting(answers: Sequence[Answers], seat: JudgeSeat) -> AuditRow:
    outcomes: list[Outcome] = []
    failures: list[Evidence] = []
    models: dict[str, StandIn] = {"no verdict": Failing(seat.replies)}
    for label, probability in product(seat.replies, _PROBABILITIES):
        model = StandIn(seat.replies, label, probability=probability)
        models[f"{label} ({probability:.2f})"] = model
    rewards = {said: seat.build(model) for said, model in models.items()}
    for example, reference, wrong in answers:
        pairs = [(example, reference), (example, wrong)]
        found = {said: score_all(one, pairs) for said, one in rewards.items()}
        if not _tells_truth(rewards["no verdict"], example, *found["no verdict"]):
            continue
        outcomes += [outcome for both in found.values() for outcome in both]
        for said_right, said_wrong in product(found, found):
            right, paid = found[said_right][0], found[said_wrong][1]
            if right.value is None or paid.value is None or right.value > paid.value + TOLERANCE:
                continue
            why = (
                f"the right answer {reference!r} earns {right.value:.3g} when the judge says "
                f"{said_right} of it and {said_wrong} of this"
            )
            failures.append(point_at(pairs[1], paid, why))
            break
    return make_row("judge-outvotes-truth", outcomes, failures)


def _tells_truth(rewards: object, example: Example, right: Outcome, wrong: Outcome) -> bool:
    """Whether the rewards tell right from wrong without the judge, which has failed here.

    A RewardSet says so by its truths; of other rewards it is known if they do all the same.
    """
    pairs = [(right.value, wrong.value)]
    if isinstance(rewards, RewardSet):
        truths = [name for name, kind in rewards.kinds.items() if kind == "truth"]
        truths = [name for name in truths if name in rewards.weigh(example)]
        pairs = [(right.breakdown.get(name), wrong.breakdown.get(name)) for name in truths]
    return any(a is not None and b is not None and a > b + TOLERANCE for a, b in pairs)


def _check_failures(answers: Sequence[Answers], seat: JudgeSeat) -> AuditRow:
    """Hold what answers earn from a failed judge against what they earn with verdicts.

    Any number is a fault where verdicts matter: the weight of what the judge did not say went to
    the other parts, or to a verdict that nobody gave.
    """
    outcomes: list[Outcome] = []
    failures: list[Evidence] = []
    first, second = list(seat.replies.values())[:2]
    sayings = [text and text.format(first=first, second=second) for text in _NO_VERDICTS]
    pairs = [(example, text) for example, *texts in answers for text in texts if text]
    rights = {(example.id, reference) for example, reference, _ in answers}
    columns = [score_all(seat.build(StandIn(seat.replies, label)), pairs) for label in seat.replies]
    failed = [score_all(seat.build(Failing(seat.replies, text=said)), pairs) for said in sayings]
    for place, pair in enumerate(pairs):
        judged = [column[place].value for column in columns]
        judged = [value for value in judged if value is not None]
        for said, column in zip(sayings, failed, strict=True):
            outcome = column[place]
            outcomes.append(outcome)
            is_right = (pair[0].id, pair[1]) in rights
            why = _explain_failed(outcome.value, judged, is_right=is_right)
            if why:
                told = "it times out" if said is None else f"it says {said!r}"
                why = f"the judge failed ({told}), {why}"
                failures.append(point_at(pair, outcome, why))
                break
    return make_row("judge-failure-scored", outcomes, failures)


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


def _check_injections(answers: Sequence[Answers], seat: JudgeSeat) -> AuditRow:
    orders = read_tables()["texts"]["pays-injection"]
    pairs = [
        (example, f"{wrong}\n{order}") for (example, _, wrong), order in product(answers, orders)
    ]
    outcomes: list[Outcome] = []
    failures: dict[int, Evidence] = {}
    for honest in seat.replies:
        plain = score_all(seat.build(StandIn(seat.replies, honest)), pairs)
        for weak, model in _list_weak(seat, honest):
            found = score_all(seat.build(model), pairs)
            outcomes += found
            for place, (outcome, base) in enumerate(zip(found, plain, strict=True)):
                # The order made it earn more, or took its score away.
                is_swayed = outcome.value is None and base.value is not None
                if is_swayed or (outcome.value or 0.0) > (base.value or 0.0) + TOLERANCE:
                    plainly = "no score" if base.value is None else f"{base.value:.3g}"
                    why = f"{weak} would give it {plainly} without the order"
                    failures.setdefault(place, point_at(pairs[place], outcome, why))
    return make_row("judge-obeys-injection", outcomes, [failures[n] for n in sorted(failures)])


def _list_weak(seat: JudgeSeat, honest: str) -> Iterator[tuple[str, StandIn]]:
    for obeyed in seat.replies:
        yield "a judge that obeys what it reads", Gullible(seat.replies, honest, obeyed=obeyed)
    yield "a judge that quotes what it reads", Quoting(seat.replies, honest)
