"""What rewards do with a judge: with wrong verdicts, with failures, with orders in an answer.

The model behind the judge is a stand-in, so that every verdict can be tried without a model and
within seconds. Each stand-in has at most one weakness.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import product

from groupwise.core import Example, RewardError
from groupwise.inference.model import LabelShares, Model, Reply, RequestError, Sampling
from groupwise.judges import GenerativeJudge, LogitJudge
from groupwise.rewards.audit.rows import (
    ASKED_ONCE,
    TOLERANCE,
    AuditRow,
    Evidence,
    JudgeSeat,
    Outcome,
    Pair,
    RewardCase,
    Scorer,
    make_row,
    point_at,
    read_tables,
    score_all,
)
from groupwise.rewards.judged import Judged
from groupwise.rewards.reward import Reward
from groupwise.rewards.reward_set import RewardSet

_MARK = re.compile(r"\b(?=[0-9A-Za-z]*\d)[0-9A-Za-z]{8,}\b")


class StandIn(Model):
    """A model that decides what it is told to.

    Args:
        replies: the whole reply by which it gives each label.
        label: that it gives; None: it times out.
        says: its whole reply, where that is no verdict.
        obeys: the label that it gives where an order to the judge stands in no fence: a pair of
            lines that share a mark (a word of at least 8 letters and digits).
        quotes: whether it quotes what it has read, fenced texts first, before it decides.
    """

    def __init__(
        self,
        replies: Mapping[str, str],
        label: str | None,
        *,
        says: str | None = None,
        obeys: str | None = None,
        quotes: bool = False,
    ) -> None:
        self.replies, self.label = replies, label
        self.says, self.obeys, self.quotes = says, obeys, quotes

    @property
    def identity(self) -> Mapping[str, str | None]:
        return {"model": "stand-in of the reward audit", "revision": None}

    def _decide(self, prompt: str) -> str:
        """Return the reply that gives the decided label."""
        if self.label is None:
            raise RequestError("timeout", "the stand-in never answers")
        outside = remove_fenced(prompt) if self.obeys else ""
        orders = read_tables()["texts"]["pays-injection"]
        is_fooled = self.obeys is not None and any(order in outside for order in orders)
        return self.replies[self.obeys if is_fooled and self.obeys else self.label]

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        del sampling
        prompt = "\n".join(message.text for message in example.prompt)
        decided = self._decide(prompt)
        if not self.quotes:
            return Reply(decided if self.says is None else self.says)
        outside = remove_fenced(prompt).splitlines()
        quoted = "\n".join(line for line in prompt.splitlines() if line not in outside)
        return Reply(f"I have read: {quoted or prompt}\n{decided}")

    async def label_shares(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        if self.says is not None:
            raise RequestError("timeout", "the stand-in never answers")
        prompt = "\n".join(message.text for message in example.prompt)
        decided = self._decide(prompt)
        options = dict(re.findall(r"^(.+?)[:.)] (.*?)\s*$", prompt, flags=re.MULTILINE))
        chosen = next((one for one in labels if decided in (one, options.get(one))), labels[0])
        return LabelShares({name: float(name == chosen) for name in labels})


def remove_fenced(prompt: str) -> str:
    """Return a prompt without what stands between two lines that share a mark."""
    kept: list[str] = []
    lines = prompt.splitlines()
    while lines:
        line = lines.pop(0)
        marks = _MARK.findall(line)
        ends = [place for mark in marks for place, one in enumerate(lines) if mark in one]
        if ends:
            lines = lines[ends[0] + 1 :]
        else:
            kept.append(line)
    return "\n".join(kept)


def find_seat(case: RewardCase) -> JudgeSeat | None:
    """Return the case's seat, or the one that its RewardSet shows; None if nothing is judged."""
    rewards = case.rewards
    if case.seat is not None or not isinstance(rewards, RewardSet):
        return case.seat
    replies: dict[str, str] = {}
    for part in rewards.rewards.values():
        judge = part.judge if isinstance(part, Judged) else None
        if isinstance(judge, LogitJudge):
            replies |= zip(judge.labels, judge.option_texts, strict=True)
        elif isinstance(judge, GenerativeJudge):
            before, tag = "<analysis>So it is.</analysis>", judge.tag
            replies |= {one: f"{before}<{tag}>{one}</{tag}>" for one in judge.labels}
        elif judge is not None:
            raise RewardError(
                f"the audit cannot put a stand-in behind the judge {judge.name!r}",
                got=type(judge).__name__,
                expected="a GenerativeJudge or a LogitJudge",
                fix="say how with RewardCase(seat=JudgeSeat(...))",
            )

    def build(model: Model) -> RewardSet:
        parts: dict[str, tuple[Reward, float]] = {}
        for name, reward in rewards.rewards.items():
            seated = copy(reward)
            if isinstance(seated, Judged) and isinstance(
                seated.judge, GenerativeJudge | LogitJudge
            ):
                seated.judge = seated.judge.put_on(model, ASKED_ONCE)
            parts[name] = (seated, rewards.weights[name])
        return RewardSet(parts, drop_contradicted=rewards.drops_contradicted)

    return JudgeSeat(build, replies) if replies else None


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
    """Return the rows about a judge; that it outvotes the truth a RewardSet does not allow."""
    return [_check_failures(answers, seat), _check_injections(answers, seat)]


def _check_failures(answers: Sequence[Answers], seat: JudgeSeat) -> AuditRow:
    """Hold what answers earn from a failed judge against what they earn with verdicts.

    Any number is a fault where verdicts matter: the weight of what the judge did not say went to
    the other parts, or to a verdict that nobody gave.
    """
    outcomes: list[Outcome] = []
    failures: list[Evidence] = []
    first, *_ = labels = list(seat.replies)
    both = " ".join([seat.replies[label] for label in labels][:2])
    failing = {"it times out": StandIn(seat.replies, None)}
    for said in ("", "I cannot tell.", both):
        failing[f"it says {said!r}"] = StandIn(seat.replies, first, says=said)
    pairs = [(example, text) for example, *texts in answers for text in texts if text]
    rights = {(example.id, reference) for example, reference, _ in answers}
    columns = [score_all(seat.build(StandIn(seat.replies, label)), pairs) for label in labels]
    failed = {how: score_all(seat.build(model), pairs) for how, model in failing.items()}
    for place, pair in enumerate(pairs):
        judged = [v for column in columns if (v := column[place].value) is not None]
        low, high = min(judged, default=0.0), max(judged, default=0.0)
        for how, column in failed.items():
            outcome = column[place]
            outcomes.append(outcome)
            if outcome.value is None or high <= low + TOLERANCE:
                continue
            is_right = (pair[0].id, pair[1]) in rights
            why = (
                "and its weight went to the other parts: answers that were judged earn from "
                f"{low:.3g} to {high:.3g}"
            )
            if is_right and outcome.value < high - TOLERANCE:
                why = "which was counted against the right answer"
            elif not is_right and outcome.value > low + TOLERANCE:
                why = "which was counted for a wrong answer"
            failures.append(point_at(pair, outcome, f"the judge failed ({how}), {why}"))
            break
    return make_row("judge-failure-scored", outcomes, failures)


def _check_injections(answers: Sequence[Answers], seat: JudgeSeat) -> AuditRow:
    orders = read_tables()["texts"]["pays-injection"]
    pairs = [
        (example, f"{wrong}\n{order}") for (example, _, wrong), order in product(answers, orders)
    ]
    outcomes: list[Outcome] = []
    failures: dict[int, Evidence] = {}
    for honest in seat.replies:
        plain = score_all(seat.build(StandIn(seat.replies, honest)), pairs)
        weak = [
            ("a judge that obeys what it reads", StandIn(seat.replies, honest, obeys=label))
            for label in seat.replies
        ]
        quoting = StandIn(seat.replies, honest, quotes=True)
        for judge, model in [*weak, ("a judge that quotes what it reads", quoting)]:
            found = score_all(seat.build(model), pairs)
            outcomes += found
            for place, (outcome, base) in enumerate(zip(found, plain, strict=True)):
                # The order made it earn more, or took its score away.
                is_swayed = outcome.value is None and base.value is not None
                if is_swayed or (outcome.value or 0.0) > (base.value or 0.0) + TOLERANCE:
                    plainly = "no score" if base.value is None else f"{base.value:.3g}"
                    why = f"{judge} would give it {plainly} without the order"
                    failures.setdefault(place, point_at(pairs[place], outcome, why))
    return make_row("judge-obeys-injection", outcomes, [failures[n] for n in sorted(failures)])
