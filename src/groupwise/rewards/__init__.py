"""Rewards: from an example and a completion to a Score in [0, 1], or to "cannot be scored".

One file per reward. The answer contract here is the only parser of answers: rewards, metrics
and reports all read a completion through it.
"""

from groupwise.rewards.answer_format import AnswerFormat
from groupwise.rewards.answers import Answer, AnswerContract
from groupwise.rewards.audit import (
    REWARD_FINDINGS,
    Measure,
    RewardAudit,
    RewardCase,
    audit_rewards,
    measure_labels,
)
from groupwise.rewards.label_match import LabelMatch
from groupwise.rewards.math_equality import MathEquality
from groupwise.rewards.reward import BatchReward, Reward, RewardKind
from groupwise.rewards.reward_set import RewardSet, WeightedReward

__all__ = [
    "REWARD_FINDINGS",
    "Answer",
    "AnswerContract",
    "AnswerFormat",
    "BatchReward",
    "LabelMatch",
    "MathEquality",
    "Measure",
    "Reward",
    "RewardAudit",
    "RewardCase",
    "RewardKind",
    "RewardSet",
    "WeightedReward",
    "audit_rewards",
    "measure_labels",
]
