"""Rewards in the call shapes of TRL, verl and ms-swift, in both directions.

Out: a RewardSet as a reward function of the other library. In: a reward function of the other
library as a Reward. None of these libraries is imported here.
"""

from groupwise.rewards.adapters.imports import load_object
from groupwise.rewards.adapters.rows import ScoreRange
from groupwise.rewards.adapters.swift_orm import SwiftReward, make_swift_orm
from groupwise.rewards.adapters.trl_function import TrlFunction, TrlReward
from groupwise.rewards.adapters.verl_score import VerlReward, VerlScore

__all__ = [
    "ScoreRange",
    "SwiftReward",
    "TrlFunction",
    "TrlReward",
    "VerlReward",
    "VerlScore",
    "load_object",
    "make_swift_orm",
]
