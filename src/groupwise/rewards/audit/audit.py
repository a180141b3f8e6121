"""The audit of rewards: can a policy be paid for something else than the right answer?

No model is asked: what a policy may find is written here, scored, and compared with the reference
answer and the metric. It says what it found and stops nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from groupwise.core import Example, Finding, RewardError
from groupwise.rewards.audit.answers import AnswerChecks
from groupwise.rewards.audit.checkers import CheckerChecks
from groupwise.rewards.audit.judging import StandIn, check_judge, find_seat, score_agreeing
from groupwise.rewards.audit.rows import (
    TOLERANCE,
    AuditRow,
    Evidence,
    Outcome,
    Pair,
    RewardCase,
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
    plain = checks.list_plain()
    rows.append(_check_truncated(plain, table))
    is_foreign = seat is None and _is_foreign(case.rewards)
    rows.append(_check_repeats(plain, table, is_foreign=is_foreign))
    # A sound checker pays nothing for what is written here, and its parts need not vary.
    is_varied = case.has_references or bool(case.samples)
    if isinstance(case.rewards, RewardSet):  # after all calls, some of which alone may read a file
        rows += _check_parts(case.rewards, table, is_varied=is_varied)
    rows += check_judge(checks.list_judged()[:_NUM_JUDGED], seat) if seat is not None else []
    return RewardAudit(tuple(rows), len(checks.examples), len(table.list_rows()))


def _check_usable(case: RewardCase) -> tuple[AuditRow, list[Example]]:
    """Ask the rewards about every example, not only the sample.

    Returns:
        The row, whose evidence has the first example of each reason in front, and the examples
        that can be used.
    """
    asked = [(example, explain_unusable(case.rewards, example)) for example in case.examples]
    reasons: dict[str, list[Example]] = {}
    for example, why in asked:
        if why:
            reasons.setdefault(why, []).append(example)
    firsts: list[Evidence] = []
    others: list[Evidence] = []
    for why, found in sorted(reasons.items(), key=lambda reason: -len(reason[1])):
        told = f"{why} ({len(found)} of {len(asked)} examples)"
        first, *rest = (Evidence(e.id, e.label, "any answer", None, told) for e in found)
        firsts.append(first)
        others += rest
    failures = [*firsts, *others]
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


def _check_parts(rewards: RewardSet, table: ScoreTable, *, is_varied: bool) -> list[AuditRow]:
    """Look at the weighted parts over all that was scored; one that never applies is left out.

    Also at what they were found to depend on that no digest knows.
    """
    every = table.list_rows()
    rows = [row for row in every if row[1].breakdown]
    examples = {example.id: example for (example, _), _ in rows}.values()
    parts = {
        name: [outcome.breakdown.get(name) for _, outcome in rows]
        for name, weight in rewards.weights.items()
        if weight > 0
        and rewards.kinds[name] != "human"
        and any(applies_to(rewards.rewards[name], example) for example in examples)
    }
    found: dict[str, list[Evidence]] = {"part-never-varies": [], "part-often-missing": []}
    for part, values in parts.items() if is_varied else ():
        known = [value for value in values if value is not None]
        num_missing = len(values) - len(known)
        if known and max(known) - min(known) <= TOLERANCE:
            why = f"the part {part!r} is {known[0]:.3g} for every answer that was tried"
            found["part-never-varies"].append(point_at(rows[0][0], Outcome(known[0]), why))
        if num_missing > MAX_MISSING_SHARE * len(values):
            why = f"the part {part!r} has no value for {num_missing} of {len(values)} answers"
            found["part-often-missing"].append(point_at(*rows[values.index(None)], why))
    unseen = [
        (name, str(what))
        for name, part in rewards.rewards.items()
        for what in getattr(part, "unseen", ())
    ]
    whys = [f"the part {name!r} depends on {what}" for name, what in sorted(unseen)]
    failures = [point_at(*every[0], why) for why in whys]
    told = [make_row(rule, [], them, num_tried=len(parts)) for rule, them in found.items()]
    last = make_row("depends-on-unseen", [], failures, num_tried=len(every))
    return [*(told if is_varied else ()), last]


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
    may count its calls; a slow one is not waited for. What a model says of an answer moves by
    rounding, with the answers beside it in a batch.
    """

    def find_changed(pairs: Sequence[Pair], when: str) -> list[Evidence]:
        failures: list[Evidence] = []
        for pair, again in zip(pairs, table.score(pairs), strict=True):
            value = -1.0 if again.value is None else again.value
            if abs(table.earn(pair) - value) > _ROUNDING:
                shown = "nothing" if again.value is None else f"{again.value:.3g}"
                failures.append(table.point(pair, f"{when} it earns {shown}"))
        return failures

    failures = [one for _ in range(_NUM_RESCORED) for one in find_changed(pairs, "the next time")]
    start_s = time.monotonic()
    num_left = _NUM_CALLS - len(table.list_rows()) if is_foreign else 0
    while not failures and num_left > 0 and time.monotonic() - start_s < _MOST_S:
        often = [(pairs[0][0], "")] * _CALLS_AT_ONCE
        failures = find_changed(often, "after many calls")[:1]
        num_left -= _CALLS_AT_ONCE
    return make_row("not-repeatable", [], failures, num_tried=_NUM_RESCORED * len(pairs))


def _is_foreign(rewards: object) -> bool:
    """Whether a part of the rewards is a function of the user's own."""
    parts = rewards.rewards.values() if isinstance(rewards, RewardSet) else [rewards]
    modules = [getattr(part, "__module__", None) or type(part).__module__ for part in parts]
    return any(isinstance(part, FunctionReward) for part in parts) or not all(
        module.startswith("groupwise") for module in modules
    )


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
