"""Judges: models, rules and panels that decide questions, or say why they cannot."""

from groupwise.judges.batches import judge_all
from groupwise.judges.judge import Judge, NoVerdict, NoVerdictCause, Question, Verdict

__all__ = [
    "Judge",
    "NoVerdict",
    "NoVerdictCause",
    "Question",
    "Verdict",
    "judge_all",
]
