"""Judges: models, and panels of them, that decide questions, or say why they cannot."""

from groupwise.judges.cache import ReplyCache
from groupwise.judges.config import JudgeConfig, build_judge
from groupwise.judges.judge import (
    Judge,
    Ledger,
    NoVerdict,
    NoVerdictCause,
    Question,
    StopSettings,
    Verdict,
    judge_all,
)
from groupwise.judges.model import (
    Asker,
    GenerativeJudge,
    JudgePrompt,
    JudgeSettings,
    LogitJudge,
    ModelJudge,
    fence,
    load_prompt,
)
from groupwise.judges.panel import PairwiseJudge, Panel, swap_pair

__all__ = [
    "Asker",
    "GenerativeJudge",
    "Judge",
    "JudgeConfig",
    "JudgePrompt",
    "JudgeSettings",
    "Ledger",
    "LogitJudge",
    "ModelJudge",
    "NoVerdict",
    "NoVerdictCause",
    "PairwiseJudge",
    "Panel",
    "Question",
    "ReplyCache",
    "StopSettings",
    "Verdict",
    "build_judge",
    "fence",
    "judge_all",
    "load_prompt",
    "swap_pair",
]
