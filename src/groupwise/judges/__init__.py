"""Judges: models, and panels of them, that decide questions, or say why they cannot."""

from groupwise.judges.cache import ReplyCache
from groupwise.judges.generative import GenerativeJudge
from groupwise.judges.judge import Judge, NoVerdict, NoVerdictCause, Question, Verdict, judge_all
from groupwise.judges.ledger import Ledger, StopSettings
from groupwise.judges.logit import LogitJudge
from groupwise.judges.model_judge import Asker, JudgeSettings, ModelJudge
from groupwise.judges.prompt import JudgePrompt, fence, load_prompt
from groupwise.judges.votes import PairwiseJudge, Panel, swap_pair

__all__ = [
    "Asker",
    "GenerativeJudge",
    "Judge",
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
    "fence",
    "judge_all",
    "load_prompt",
    "swap_pair",
]
