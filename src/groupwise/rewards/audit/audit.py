"""The audit of rewards: can a policy be paid for something else than the right answer?

No model is asked: what a policy may find is written here, scored, and compared with the reference
answer and the metric. It says what it found and stops nothing.
"""

from dataclasses import dataclass, replace
from typing import Any

from groupwise.core import Finding
from groupwise.rewards.audit.balance import (
    CONSTANT,
    NEVER_VARIES,
    OFTEN_MISSING,
    check_constants,
    check_parts,
)
from groupwise.rewards.audit.case import RewardCase, draw_items
from groupwise.rewards.audit.criteria import LAXER, STRICTER, compare_criteria
from groupwise.rewards.audit.habits import (
    KEYWORD,
    LANGUAGE,
    LENGTH,
    REPEATABLE,
    check_habits,
    check_repeats,
)
from groupwise.rewards.audit.judging import (
    FAILURES,
    OBEYS,
    OUTVOTES,
    Agreeing,
    check_judging,
)
from groupwise.rewards.audit.outcomes import ScoreTable
from groupwise.rewards.audit.probes import (
    HEDGES,
    OUT_OF_RANGE,
    PROBES,
    RAISES,
    REFERENCE,
    UNSCORED,
    UNSCORED_REFERENCE,
    check_outcomes,
    run_probes,
)
from groupwise.rewards.audit.rows import AuditRow
from groupwise.rewards.audit.seat import find_seat
from groupwise.rewards.audit.unusable import UNUSABLE, check_usable

RULES = (
    UNUSABLE,
    REFERENCE,
    UNSCORED_REFERENCE,
    *(probe.rule for probe in (*PROBES, *HEDGES)),
    STRICTER,
    LAXER,
    CONSTANT,
    KEYWORD,
    LENGTH,
    LANGUAGE,
    REPEATABLE,
    OUTVOTES,
    FAILURES,
    OBEYS,
    OUT_OF_RANGE,
    RAISES,
    UNSCORED,
    NEVER_VARIES,
    OFTEN_MISSING,
)
REWARD_FINDINGS = tuple(rule.name for rule in RULES)
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
    def errors(self) -> tuple[Finding, ...]:
        """What training must not start with."""
        return tuple(finding for finding in self.findings if finding.level == "error")

    def to_json(self) -> dict[str, Any]:
        """Return the audit as JSON values."""
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "rows": [row.to_json() for row in self.rows],
            "num_examples": self.num_examples,
            "num_scored": self.num_scored,
        }


def audit_rewards(case: RewardCase) -> RewardAudit:
    """Try what is not a right answer, and say what it earns.

    Where a judge has a part in the rewards, stand-ins take the place of its model: one that agrees
    with the metric while answers are tried, and ones that are wrong, fail or obey their input.

    Raises:
        RewardError: if no example has a label, a reference answer cannot be written, or a judge's
            model cannot be replaced.
    """
    unusable, usable = check_usable(case)
    if not usable and not unusable.is_passed:
        return RewardAudit((unusable,), 0, 0)
    case = replace(case, examples=usable)
    items = draw_items(case)
    seat = find_seat(case)
    table = ScoreTable(case.rewards if seat is None else Agreeing(seat, case.parser.measure))
    rows = [
        unusable,
        *run_probes(items, case.parser.measure, table),
        *compare_criteria(items, case.parser.measure, table),
        *check_outcomes(table, items),
    ]
    rows += [*check_parts(case.rewards, table), check_constants(case, table)]
    rows += [*check_habits(items, case.parser.measure, table), check_repeats(items, table)]
    rows += check_judging(items, seat) if seat is not None else []
    return RewardAudit(tuple(rows), len(items), len(table.list_rows()))
