"""The audit of rewards: can a policy be paid for something else than the right answer?

No model is asked: what a policy may find is written here, scored, and compared with the reference
answer and the metric. It says what it found and stops nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from groupwise.core import Finding, RewardError, digest_json
from groupwise.rewards.audit import checkers, criteria, habits, judging, probes
from groupwise.rewards.audit.case import RewardCase, draw_items
from groupwise.rewards.audit.rows import AuditRow, ScoreTable
from groupwise.rewards.audit.stand_ins import find_seat

RULES = (*probes.RULES, *criteria.RULES, *habits.RULES, *judging.RULES, *checkers.RULES)
REWARD_FINDINGS = tuple(dict.fromkeys(rule.name for rule in RULES))
"""Every name a finding about rewards can have."""


@dataclass(frozen=True, slots=True)
class RewardAudit:
    """All that an audit found.

    Attributes:
        rows: one per probe, passed ones included.
        num_examples: how many examples answers were tried on.
        num_scored: how many answers were scored.
    """

    rows: tuple[AuditRow, ...]
    num_examples: int
    num_scored: int

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What fails, errors first."""
        failed = [row.make_finding() for row in self.rows if not row.is_passed]
        return tuple(sorted(failed, key=lambda finding: finding.level != "error"))

    @property
    def digest(self) -> str:
        """What these findings are known by: the first twelve digits of their digest."""
        return digest_json([finding.to_json() for finding in self.findings])[:12]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What training must not start with."""
        return tuple(finding for finding in self.findings if finding.level == "error")

    def to_json(self) -> dict[str, Any]:
        """Return the audit as JSON values."""
        return {
            "digest": self.digest,
            "findings": [finding.to_json() for finding in self.findings],
            "rows": [row.to_json() for row in self.rows],
            "num_examples": self.num_examples,
            "num_scored": self.num_scored,
        }


def audit_rewards(case: RewardCase) -> RewardAudit:
    """Try what is not a right answer, and say what it earns.

    Where a judge has a part in the rewards, stand-ins take the place of its model: one that agrees
    with the metric while answers are tried, and ones that are wrong, fail or obey their input.
    Where no example has a label, answers are held against the most that can be earned.

    Raises:
        RewardError: if there are no examples, a reference answer cannot be written, or a judge's
            model cannot be replaced.
    """
    if not case.examples:
        raise RewardError("rewards cannot be audited without examples", got="none")
    unusable, usable = criteria.check_usable(case)
    if not usable and not unusable.is_passed:
        return RewardAudit((unusable,), 0, 0)
    case = replace(case, examples=usable)
    return (_audit_answers if case.has_references else _audit_checkers)(case, unusable)


def _audit_checkers(case: RewardCase, unusable: AuditRow) -> RewardAudit:
    """Try what is no answer at all; a judge, if there is one, never calls it right."""
    seat = find_seat(case)
    rewards = case.rewards if seat is None else judging.Agreeing(seat, lambda example, text: 0.0)
    table = ScoreTable(rewards)
    tried = checkers.draw_rows(case)
    rows = [unusable, *checkers.run_probes(case, tried, table)]
    rows += probes.check_outcomes(table, {})
    if case.samples:  # a sound checker pays nothing for what is written here
        rows += habits.check_parts(case.rewards, table)
    plain = checkers.list_plain(tried, case)
    rows += [habits.check_truncated(plain, table), habits.check_repeats(plain, table)]
    rows.append(habits.check_unseen(case.rewards, table))
    rows += judging.check_fooling([row.example for row in tried], seat) if seat else []
    return RewardAudit(tuple(rows), len(tried), len(table.list_rows()))


def _audit_answers(case: RewardCase, unusable: AuditRow) -> RewardAudit:
    """Try what is not the reference answer, and compare what it earns with the metric."""
    items = draw_items(case)
    seat = find_seat(case)
    table = ScoreTable(
        case.rewards if seat is None else judging.Agreeing(seat, case.parser.measure)
    )
    rows = [
        unusable,
        *probes.run_probes(items, case.parser.measure, table),
        *criteria.compare_criteria(items, case.parser.measure, table),
        *criteria.check_merged(case, table),
        *probes.check_outcomes(table, {item.example.id: item.reference for item in items}),
    ]
    rows += [*habits.check_parts(case.rewards, table), habits.check_constants(case, table)]
    plain = [(i.example, text) for i in items for text in (i.reference, *i.wrong[:1])]
    rows += [
        *habits.check_habits(items, case.parser.measure, table),
        habits.check_truncated(plain, table),
        habits.check_repeats(plain, table),
    ]
    rows.append(habits.check_unseen(case.rewards, table))
    rows += judging.check_judging(items, seat) if seat is not None else []
    return RewardAudit(tuple(rows), len(items), len(table.list_rows()))


_HEADER = ("finding", "what was tried", "what must hold", "highest", "result")


def render_reward_audit(audit: RewardAudit, *, accepted: Sequence[str] = ()) -> str:
    """Return the audit as Markdown; accepted findings are marked."""
    num_errors = len(audit.errors)
    lines = [
        "# Reward audit",
        "",
        f"{num_errors} error(s), {len(audit.findings) - num_errors} warning(s); "
        f"{audit.num_scored} answers to {audit.num_examples} examples were scored.",
        "",
    ]
    for finding in audit.findings:
        mark = " (accepted)" if finding.name in accepted else ""
        lines.append(f"- **{finding.level}**{mark} `{finding.name}`: {_escape(finding.message)}")
        lines += [f"  - {_escape(place)}" for place in finding.where]
    table = [_HEADER, ["---"] * len(_HEADER), *map(_list_cells, audit.rows)]
    lines += ["", *(f"| {' | '.join(map(_escape, cells))} |" for cells in table)]
    return "\n".join([*lines, ""])


def _list_cells(row: AuditRow) -> tuple[str, str, str, str, str]:
    highest = "" if row.highest is None else f"{row.highest:.3g}"
    result = "passed" if row.is_passed else f"{row.level}: {row.num_failed} of {row.num_tried}"
    return row.name, row.title, row.must, highest, result


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
