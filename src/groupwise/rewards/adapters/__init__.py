"""Rewards in the call shapes of TRL, verl and ms-swift; none of these libraries is imported here.

Out: a RewardSet as a reward function of the other library. In: TRL's reward functions as Rewards.
"""

from groupwise.rewards.adapters.plugins import VerlScore, make_swift_orm
from groupwise.rewards.adapters.rows import EXAMPLE_ID, ScoreRange
from groupwise.rewards.adapters.trl_function import TrlFunction, TrlReward

__all__ = ["EXAMPLE_ID", "ScoreRange", "TrlFunction", "TrlReward", "VerlScore", "make_swift_orm"]
