"""The audit of rewards: can a policy be paid for something else than the right answer?

No model is asked: what a policy may find is written here, scored, and compared with the reference
answer and the metric. It says what it found and stops nothing.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from groupwise.core import Example, Finding, RewardError, digest_json
from groupwise.rewards.adapters import TrlReward
from groupwise.rewards.audit.answers import AnswerChecks
from groupwise.rewards.audit.case import RewardCase, Scorer
from groupwise.rewards.audit.checkers import CheckerChecks
from groupwise.rewards.audit.judging import StandIn, check_judge, find_seat, score_agreeing
from groupwise.rewards.audit.rows import (
    TOLERANCE,
    AuditRow,
    Evidence,
    Outcome,
    Pair,
    ScoreTable,
    make_row,
    point_at,
    score_all,
)
from groupwise.rewards.functions import FunctionReward
from groupwise.rewards.reward import applies_to, explain_unusable
from groupwise.rewards.reward_set import RewardSet

MAX_MISSING_SHARE = 0.5
_NUM_RESCORED, _NUM_JUDGED = 3, 2
_NUM_CALLS, _CALLS_AT_ONCE, _MOST_S = 8_000, 100, 2.0
_ROUNDING = 1e-3


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
    with the metric while answers are tried (without labels: one that never calls them right), and
    ones that are wrong, fail or obey their input. Where no example has a label, answers are held
    against the most that can be earned.

    Raises:
        RewardError: if there are no examples, a reference answer cannot be written, or a judge's
            model cannot be replaced.
    """
    if not case.examples:
        raise RewardError("rewards cannot be audited without examples", got="none")
    unusable, usable = _check_usable(case)
    if not usable and not unusable.is_passed:
        return RewardAudit((unusable,), 0, 0)
    case = replace(case, examples=usable)
    seat = find_seat(case)
    score = partial(score_all, case.rewards)
    if seat is not None:
        measure = case.parser.measure if case.has_references else None
        models = [StandIn(seat.replies, label) for label in seat.replies]
        score = partial(score_agreeing, [seat.build(model) for model in models], measure)
    table = ScoreTable(score)
    checks = (AnswerChecks if case.has_references else CheckerChecks)(case, table)
    rows = [unusable, *checks.list_rows(), *_check_outcomes(table, checks.references)]
    if case.has_references or case.samples:  # a sound checker pays nothing for what is written here
        rows += _check_parts(case.rewards, table)
    plain = checks.list_plain()
    is_foreign = seat is None and _is_foreign(case.rewards)
    rows += [_check_truncated(plain, table), _check_repeats(plain, table, is_foreign=is_foreign)]
    rows.append(_check_unseen(case.rewards, table))
    rows += check_judge(checks.list_judged()[:_NUM_JUDGED], seat) if seat is not None else []
    return RewardAudit(tuple(rows), len(checks.examples), len(table.list_rows()))


def _check_usable(case: RewardCase) -> tuple[AuditRow, list[Example]]:
    """Ask the rewards about every example, not only the sample.

    Returns:
        The row, whose evidence has the first example of each reason in front, and the examples
        that can be used.
    """
    asked = [(example, explain_unusable(case.rewards, example)) for example in case.examples]
    found = [(example, why) for example, why in asked if why]
    counts = Counter(why for _, why in found)
    firsts = {why: example for example, why in reversed(found)}
    order = {why: place for place, (why, _) in enumerate(counts.most_common())}
    found.sort(key=lambda pair: (firsts[pair[1]] is not pair[0], order[pair[1]]))
    failures = [
        Evidence(
            example.id,
            example.label,
            "any answer",
            None,
            f"{why} ({counts[why]} of {len(asked)} examples)",
        )
        for example, why in found
    ]
    row = make_row("unusable-example", [], failures, num_tried=len(asked))
    return row, [example for example, why in asked if not why]


def _check_outcomes(table: ScoreTable, references: dict[str, str]) -> list[AuditRow]:
    """Return the rows about all that was scored: the range, exceptions, missing scores.

    An answer should have a score where the reference has one, or where there are no references.
    """
    rows = table.list_rows()
    known = {
        e.id for (e, text), o in rows if o.value is not None and references.get(e.id, text) == text
    }
    found: dict[str, list[Evidence]] = {"out-of-range": [], "raises": [], "unscored-answers": []}
    for (example, text), outcome in rows:
        pair = (example, text)
        if outcome.problem == "range":
            found["out-of-range"].append(point_at(pair, outcome, "it is outside [0, 1]"))
        elif outcome.problem == "raised":
            found["raises"].append(point_at(pair, outcome, "the reward raised"))
        elif outcome.value is None and example.id in known and text != references.get(example.id):
            found["unscored-answers"].append(point_at(pair, outcome, "it has no score"))
    outcomes = [outcome for _, outcome in rows]
    return [make_row(rule, outcomes, failures) for rule, failures in found.items()]


def _check_parts(rewards: Scorer, table: ScoreTable) -> list[AuditRow]:
    """Look at the parts of a RewardSet over all that was scored; no rows for other scorers.

    A part that has nothing to say about any example is left out.
    """
    if not isinstance(rewards, RewardSet):
        return []
    rows = [row for row in table.list_rows() if row[1].breakdown]
    examples = {example.id: example for (example, _), _ in rows}.values()
    parts = [
        name
        for name, weight in rewards.weights.items()
        if weight > 0
        and rewards.kinds[name] != "human"
        and any(applies_to(rewards.rewards[name], example) for example in examples)
    ]
    still: list[Evidence] = []
    missing: list[Evidence] = []
    for part in parts:
        values = [row[1].breakdown.get(part) for row in rows]
        known = [value for value in values if value is not None]
        num_missing = len(values) - len(known)
        if known and max(known) - min(known) <= TOLERANCE:
            why = f"the part {part!r} is {known[0]:.3g} for every answer that was tried"
            still.append(point_at(rows[0][0], Outcome(known[0]), why))
        if num_missing > MAX_MISSING_SHARE * len(values):
            why = f"the part {part!r} has no value for {num_missing} of {len(values)} answers"
            missing.append(point_at(*rows[values.index(None)], why))
    return [
        make_row("part-never-varies", [], still, num_tried=len(parts)),
        make_row("part-often-missing", [], missing, num_tried=len(parts)),
    ]


def _check_truncated(pairs: Sequence[Pair], table: ScoreTable) -> AuditRow:
    """Score texts as if the limit of tokens had cut them off."""
    outcomes = table.score(pairs, is_truncated=True)
    failures: list[Evidence] = []
    for pair, cut in zip(pairs, outcomes, strict=True):
        whole = max(table.earn(pair), 0.0)
        if cut.value is not None and cut.value > whole + TOLERANCE:
            why = f"cut off; ended by itself, it earns {whole:.3g}"
            failures.append(point_at(pair, cut, why))
    return make_row("pays-truncated", outcomes, failures)


def _check_repeats(pairs: Sequence[Pair], table: ScoreTable, *, is_foreign: bool) -> AuditRow:
    """Score answers again.

    A user's function is also called about as often as a training does, with nothing to read, as it
    may count its calls; a slow one is not waited for.
    """
    failures: list[Evidence] = []
    for _ in range(_NUM_RESCORED):
        failures += _find_changed(pairs, table, "the next time")
    start_s = time.monotonic()
    num_left = _NUM_CALLS - len(table.list_rows()) if is_foreign else 0
    while not failures and num_left > 0 and time.monotonic() - start_s < _MOST_S:
        often = [(pairs[0][0], "")] * _CALLS_AT_ONCE
        failures = _find_changed(often, table, "after many calls")[:1]
        num_left -= _CALLS_AT_ONCE
    return make_row("not-repeatable", [], failures, num_tried=_NUM_RESCORED * len(pairs))


def _find_changed(pairs: Sequence[Pair], table: ScoreTable, when: str) -> list[Evidence]:
    """Return the answers that earn something else now.

    What a model says of an answer moves by rounding, with the answers beside it in a batch.
    """
    failures: list[Evidence] = []
    for pair, again in zip(pairs, table.score(pairs), strict=True):
        value = -1.0 if again.value is None else again.value
        if abs(table.earn(pair) - value) > _ROUNDING:
            shown = "nothing" if again.value is None else f"{again.value:.3g}"
            failures.append(table.point(pair, f"{when} it earns {shown}"))
    return failures


def _is_foreign(rewards: object) -> bool:
    """Whether a part of the rewards is a function of the user's own."""
    parts = rewards.rewards.values() if isinstance(rewards, RewardSet) else [rewards]
    modules = [getattr(part, "__module__", None) or type(part).__module__ for part in parts]
    return any(isinstance(part, FunctionReward | TrlReward) for part in parts) or not all(
        module.startswith("groupwise") for module in modules
    )


def _check_unseen(rewards: Scorer, table: ScoreTable) -> AuditRow:
    """Name what parts were found to depend on, over all that was scored, that no digest knows."""
    found: list[tuple[str, str]] = []
    for name, part in rewards.rewards.items() if isinstance(rewards, RewardSet) else ():
        found += [(name, str(what)) for what in getattr(part, "unseen", ())]
    rows = table.list_rows()
    failures = [
        point_at(*rows[0], f"the part {n!r} depends on {what}") for n, what in sorted(found)
    ]
    return make_row("depends-on-unseen", [], failures, num_tried=len(rows))


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
    lines += ["", "| finding | what was tried | what must hold | highest | result |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for row in audit.rows:
        highest = "" if row.highest is None else f"{row.highest:.3g}"
        result = "passed" if row.is_passed else f"{row.level}: {row.num_failed} of {row.num_tried}"
        cells = (row.name, row.title, row.must, highest, result)
        lines.append(f"| {' | '.join(map(_escape, cells))} |")
    return "\n".join([*lines, ""])


def _escape(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
