"""Stand-ins for the model behind a judge: each has one weakness, and none is a model.

They let an audit ask what the rewards do with a verdict, with a failure and with an order that
stands in an answer, without a model and within seconds.
"""

import re
from collections.abc import Mapping, Sequence
from copy import copy

from groupwise.core import Example, RewardError
from groupwise.inference.model import LabelShares, Model, Reply, RequestError, Sampling
from groupwise.judges import (
    GenerativeJudge,
    Judge,
    LogitJudge,
)
from groupwise.rewards.audit.case import ASKED_ONCE, JudgeSeat, RewardCase
from groupwise.rewards.audit.texts import INJECTIONS
from groupwise.rewards.judged import Judged
from groupwise.rewards.reward import Reward
from groupwise.rewards.reward_set import RewardSet

_MARK = re.compile(r"\b(?=[0-9A-Za-z]*\d)[0-9A-Za-z]{8,}\b")


class StandIn(Model):
    """A model that decides what it is told to.

    Args:
        replies: the whole reply for each label.
        label: what it decides.
        probability: of that label at the first token.
    """

    def __init__(self, replies: Mapping[str, str], label: str, *, probability: float = 1.0) -> None:
        self.replies = replies
        self.label = label
        self.probability = probability

    @property
    def identity(self) -> Mapping[str, str | None]:
        """A name that no model has."""
        return {"model": f"stand-in of the reward audit ({type(self).__name__})", "revision": None}

    def decide(self, prompt: str) -> str:
        """Return the label that is decided on after reading ``prompt``."""
        del prompt
        return self.label

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        """Reply as a model does that has decided."""
        del sampling
        return Reply(self.replies[self.decide(_read_prompt(example))])

    async def label_shares(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        """Give the decided label its probability, and the others the rest in equal parts."""
        prompt = _read_prompt(example)
        decided = self.replies[self.decide(prompt)]
        spelled = {label: _find_option(prompt, label) for label in labels}
        chosen = next((label for label in labels if decided in (label, spelled[label])), labels[0])
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
        """Obey what is read outside of fences."""
        open_text = remove_fenced(prompt)
        is_fooled = any(injection in open_text for injection in INJECTIONS)
        return self.obeyed if is_fooled else self.label


class Quoting(StandIn):
    """Says all that it has read again before it decides."""

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        """Quote the prompt's fenced texts, or all of an unfenced prompt, then decide."""
        prompt = _read_prompt(example)
        left = remove_fenced(prompt)
        quoted = "\n".join(line for line in prompt.splitlines() if line not in left.splitlines())
        reply = await super().reply(example, sampling=sampling)
        return Reply(f"I have read: {quoted or prompt}\n{reply.text}")


class Failing(StandIn):
    """Gives no reply that counts.

    Args:
        replies: see ``StandIn``.
        text: what it says instead; None: the request times out.
    """

    def __init__(self, replies: Mapping[str, str], *, text: str | None = None) -> None:
        super().__init__(replies, next(iter(replies)))
        self.text = text

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        """Say what is no verdict, or nothing."""
        del example, sampling
        if self.text is None:
            raise RequestError("timeout", "the stand-in never answers")
        return Reply(self.text)

    async def label_shares(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        """Give no probabilities."""
        del example, labels
        raise RequestError("timeout", "the stand-in never answers")


def remove_fenced(prompt: str) -> str:
    """Return a prompt without what stands between two lines that share a mark."""
    kept: list[str] = []
    lines = prompt.splitlines()
    number = 0
    while number < len(lines):
        end = _find_end(lines, number)
        if end is None:
            kept.append(lines[number])
        number = (number if end is None else end) + 1
    return "\n".join(kept)


def _find_end(lines: Sequence[str], start: int) -> int | None:
    """Return the next line with a mark of the line ``start``."""
    for mark in _MARK.findall(lines[start]):
        for number in range(start + 1, len(lines)):
            if mark in lines[number]:
                return number
    return None


def _read_prompt(example: Example) -> str:
    return "\n".join(message.text for message in example.prompt)


def _find_option(prompt: str, letter: str) -> str | None:
    found = re.search(rf"^{re.escape(letter)}[:.)] (.*)$", prompt, flags=re.MULTILINE)
    return found.group(1).strip() if found else None


def find_seat(case: RewardCase) -> JudgeSeat | None:
    """Return the case's seat, or the one that its RewardSet shows; None if nothing is judged."""
    rewards = case.rewards
    if case.seat is not None or not isinstance(rewards, RewardSet):
        return case.seat
    judged = [reward for reward in rewards.rewards.values() if isinstance(reward, Judged)]
    if not judged:
        return None
    replies: dict[str, str] = {}
    for part in judged:
        replies |= _list_replies(part.judge)

    def build(responder: Model) -> RewardSet:
        parts: dict[str, tuple[Reward, float]] = {}
        for name, reward in rewards.rewards.items():
            seated = copy(reward)
            if isinstance(seated, Judged):
                seated.judge = _read_judge(seated.judge).put_on(responder, ASKED_ONCE)
            parts[name] = (seated, rewards.weights[name])
        return RewardSet(parts, drop_contradicted=rewards.drops_contradicted)

    return JudgeSeat(build, replies)


def _list_replies(judge: Judge) -> Mapping[str, str]:
    known = _read_judge(judge)
    if isinstance(known, LogitJudge):
        return dict(zip(known.labels, known.option_texts, strict=True))
    return {
        label: f"<analysis>So it is.</analysis><{known.tag}>{label}</{known.tag}>"
        for label in known.labels
    }


def _read_judge(judge: Judge) -> GenerativeJudge | LogitJudge:
    if isinstance(judge, GenerativeJudge | LogitJudge):
        return judge
    raise RewardError(
        f"the audit cannot put a stand-in behind the judge {judge.name!r}",
        got=type(judge).__name__,
        expected="a GenerativeJudge or a LogitJudge",
        fix="say how with RewardCase(seat=JudgeSeat(...))",
    )
