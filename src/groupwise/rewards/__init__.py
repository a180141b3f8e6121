"""Rewards: from an example and a completion to a Score in [0, 1], or to "cannot be scored".

Rewards, metrics and reports all read a completion through the answer parser of their run.
"""

from groupwise.rewards.audit.rows import ASKED_ONCE, JudgeSeat, RewardCase
from groupwise.rewards.boxes import Box, BoxIou, BoxParser
from groupwise.rewards.code import CodeParser, CodeTests
from groupwise.rewards.functions import FunctionReward, digest_functions, split_function
from groupwise.rewards.judged import Judged
from groupwise.rewards.labels import LabelParser, read_leniently
from groupwise.rewards.math import MathEquality, MathParser, NumberParser
from groupwise.rewards.parsers import AnswerSettings, ChoiceParser, JsonParser
from groupwise.rewards.reward import (
    AnswerFormat,
    AnswerParser,
    AnswerReward,
    BatchReward,
    HumanOverride,
    LabelMatch,
    NearMisses,
    OpenParser,
    Parsed,
    Parser,
    Reward,
    RewardKind,
)
from groupwise.rewards.reward_set import FactCounts, Lowest, RewardSet, describe_weights
from groupwise.rewards.shaping import Fluency, average_log_probs, find_threshold
from groupwise.rewards.text import (
    ExactMatch,
    TextParser,
    TokenF1,
    VqaAccuracy,
    VqaParser,
    compute_leave_one_out_accuracy,
    normalize_text,
    normalize_vqa_answer,
    split_tokens,
)

__all__ = [
    "ASKED_ONCE",
    "AnswerFormat",
    "AnswerParser",
    "AnswerReward",
    "AnswerSettings",
    "BatchReward",
    "Box",
    "BoxIou",
    "BoxParser",
    "ChoiceParser",
    "CodeParser",
    "CodeTests",
    "ExactMatch",
    "FactCounts",
    "Fluency",
    "FunctionReward",
    "HumanOverride",
    "JsonParser",
    "JudgeSeat",
    "Judged",
    "LabelMatch",
    "LabelParser",
    "Lowest",
    "MathEquality",
    "MathParser",
    "NearMisses",
    "NumberParser",
    "OpenParser",
    "Parsed",
    "Parser",
    "Reward",
    "RewardCase",
    "RewardKind",
    "RewardSet",
    "TextParser",
    "TokenF1",
    "VqaAccuracy",
    "VqaParser",
    "average_log_probs",
    "compute_leave_one_out_accuracy",
    "describe_weights",
    "digest_functions",
    "find_threshold",
    "normalize_text",
    "normalize_vqa_answer",
    "read_leniently",
    "split_function",
    "split_tokens",
]
