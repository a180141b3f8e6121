"""The audit of rewards before training: one row per probe, with the answer that shows a fault."""

from groupwise.rewards.audit.audit import RewardAudit, audit_rewards, render_reward_audit
from groupwise.rewards.audit.case import ASKED_ONCE, JudgeSeat, RewardCase, Scorer
from groupwise.rewards.audit.rows import AuditRow, Evidence, list_reward_findings

__all__ = [
    "ASKED_ONCE",
    "AuditRow",
    "Evidence",
    "JudgeSeat",
    "RewardAudit",
    "RewardCase",
    "Scorer",
    "audit_rewards",
    "list_reward_findings",
    "render_reward_audit",
]
