"""Judges: models, rules and panels that decide questions, or say why they cannot."""

from groupwise.judges.batches import judge_all
from groupwise.judges.cache import ReplyCache
from groupwise.judges.generative import GenerativeJudge
from groupwise.judges.judge import Judge, NoVerdict, NoVerdictCause, Question, Verdict
from groupwise.judges.ledger import Ledger, StopSettings
from groupwise.judges.logit import LogitJudge
from groupwise.judges.model_judge import JudgeSettings, ModelJudge
from groupwise.judges.pairwise import PairwiseJudge, swap_pair
from groupwise.judges.panel import Panel
from groupwise.judges.prompt import JudgePrompt, load_prompt
from groupwise.judges.rule_first import Rule, RuleFirstJudge

__all__ = [
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
    "Rule",
    "RuleFirstJudge",
    "StopSettings",
    "Verdict",
    "judge_all",
    "load_prompt",
    "swap_pair",
]
