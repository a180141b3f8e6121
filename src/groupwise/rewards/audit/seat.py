"""Where a judge sits in rewards, so that an audit can seat a stand-in there."""

from collections.abc import Mapping
from typing import cast

from groupwise.core import RewardError
from groupwise.inference import Responder
from groupwise.judges import (
    GenerativeJudge,
    Judge,
    LogitJudge,
)
from groupwise.rewards.audit.case import ASKED_ONCE, JudgeSeat, RewardCase
from groupwise.rewards.judged import Judged
from groupwise.rewards.reward import Reward
from groupwise.rewards.reward_set import RewardSet


def find_seat(case: RewardCase) -> JudgeSeat | None:
    """Return the case's seat, or the one that its RewardSet shows; None if nothing is judged.

    Raises:
        RewardError: if a judge's model cannot be replaced.
    """
    rewards = case.rewards
    if case.seat is not None or not isinstance(rewards, RewardSet):
        return case.seat
    judged = [reward for reward in rewards.rewards.values() if isinstance(reward, Judged)]
    if not judged:
        return None
    replies: dict[str, str] = {}
    for part in judged:
        replies |= _list_replies(part.judge)

    def build(responder: Responder) -> RewardSet:
        parts: dict[str, tuple[Reward, float]] = {}
        for name, reward in rewards.rewards.items():
            is_judged = isinstance(reward, Judged)
            seated = _reseat(reward, responder) if is_judged else reward
            parts[name] = (seated, rewards.weights[name])
        return RewardSet(parts, drop_contradicted=rewards.drops_contradicted)

    return JudgeSeat(build, replies)


def _reseat(reward: Judged, responder: Responder) -> Judged:
    return Judged(
        _replace_model(reward.judge, responder),
        ask=reward.ask,
        pay=reward.pay,
        min_confidence=reward.min_confidence,
        name=reward.name,
    )


def _replace_model(judge: Judge, responder: Responder) -> Judge:
    """Return the same judge on another model, without a cache and without a second attempt."""
    replaced: GenerativeJudge | LogitJudge
    if isinstance(judge, GenerativeJudge):
        replaced = GenerativeJudge(
            responder,
            judge.prompt,
            tag=judge.tag,
            labels=judge.labels,
            sampling=judge.sampling,
            settings=ASKED_ONCE,
        )
    elif isinstance(judge, LogitJudge):
        replaced = LogitJudge(
            responder,
            judge.prompt,
            labels=judge.labels,
            option_texts=judge.option_texts,
            swap_options=judge.swap_options,
            settings=ASKED_ONCE,
        )
    else:
        raise _refuse(judge)
    return cast("Judge", replaced)


def _list_replies(judge: Judge) -> Mapping[str, str]:
    if isinstance(judge, GenerativeJudge):
        return {
            label: f"<analysis>So it is.</analysis><{judge.tag}>{label}</{judge.tag}>"
            for label in judge.labels
        }
    if isinstance(judge, LogitJudge):
        return dict(zip(judge.labels, judge.option_texts, strict=True))
    raise _refuse(judge)


def _refuse(judge: Judge) -> RewardError:
    return RewardError(
        f"the audit cannot put a stand-in behind the judge {judge.name!r}",
        got=type(judge).__name__,
        expected="a GenerativeJudge or a LogitJudge",
        fix="say how with RewardCase(seat=JudgeSeat(...))",
    )
