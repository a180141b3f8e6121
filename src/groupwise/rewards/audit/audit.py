"""The audit of rewards: can a policy be paid for something else than the right answer?

No model is asked: what a policy may find is written here, scored, and compared with the reference
answer and the metric. Where a judge pays, too, stand-ins take the place of its model, so that every
verdict can be tried within seconds; each has at most one weakness. The audit says what it found and
stops nothing.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from groupwise.core import Example, Finding, RewardError
from groupwise.inference.model import LabelShares, Model, Reply, RequestError, Sampling
from groupwise.judges import GenerativeJudge, LogitJudge
from groupwise.rewards.audit.answers import AnswerChecks
from groupwise.rewards.audit.checkers import CheckerChecks
from groupwise.rewards.audit.rows import (
    ASKED_ONCE,
    TOLERANCE,
    AuditRow,
    Evidence,
    JudgeSeat,
    Outcome,
    Pair,
    RewardCase,
    Scorer,
    ScoreTable,
    make_row,
    point_at,
    read_tables,
    score_all,
)
from groupwise.rewards.functions import FunctionReward
from groupwise.rewards.judged import Judged
from groupwise.rewards.reward import Reward, applies_to, explain_unusable
from groupwise.rewards.reward_set import RewardSet

MAX_MISSING_SHARE = 0.5
_NUM_RESCORED, _NUM_JUDGED = 3, 2
_NUM_CALLS, _CALLS_AT_ONCE, _MOST_S = 8_000, 100, 2.0
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class RewardAudit:
    """All that an audit found."""

    rows: tuple[AuditRow, ...]  # one per probe, passed ones included
    num_examples: int  # that answers were tried on
    num_scored: int  # answers

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
    cut_off = table.score(plain, is_truncated=True)
    wholes = [max(table.earn(pair), 0.0) for pair in plain]
    failures = [
        point_at(pair, cut, f"cut off; ended by itself, it earns {whole:.3g}")
        for pair, cut, whole in zip(plain, cut_off, wholes, strict=True)
        if cut.value is not None and cut.value > whole + TOLERANCE
    ]
    rows.append(make_row("pays-truncated", cut_off, failures))
    rewards = case.rewards
    parts = rewards.rewards.values() if isinstance(rewards, RewardSet) else [rewards]
    modules = [getattr(part, "__module__", None) or type(part).__module__ for part in parts]
    is_foreign = seat is None and not all(
        module.startswith("groupwise") and not isinstance(part, FunctionReward)
        for part, module in zip(parts, modules, strict=True)
    )
    rows.append(_check_repeats(plain, table, is_foreign=is_foreign))
    # A sound checker pays nothing for what is written here, and its parts need not vary.
    is_varied = case.has_references or bool(case.samples)
    if isinstance(case.rewards, RewardSet):  # after all calls, some of which alone may read a file
        rows += _check_parts(case.rewards, table, is_varied=is_varied)
    if seat is not None:  # that a judge outvotes the truth a RewardSet does not allow
        judged = checks.list_judged()[:_NUM_JUDGED]
        rows += [check_failures(judged, seat), check_injections(judged, seat)]
    return RewardAudit(tuple(rows), len(checks.examples), len(table.rows))


def _check_usable(case: RewardCase) -> tuple[AuditRow, list[Example]]:
    """Ask the rewards about every example; return the row, and the examples that can be used."""
    asked = [(example, explain_unusable(case.rewards, example)) for example in case.examples]
    reasons: dict[str, list[Example]] = {}
    for example, why in asked:
        if why:
            reasons.setdefault(why, []).append(example)
    firsts, others = list[Evidence](), list[Evidence]()  # of each reason
    for why, found in sorted(reasons.items(), key=lambda reason: -len(reason[1])):
        told = f"{why} ({len(found)} of {len(asked)} examples)"
        first, *rest = (Evidence(e.id, e.label, "any answer", None, told) for e in found)
        firsts.append(first)
        others += rest
    row = make_row("unusable-example", [], [*firsts, *others], num_tried=len(asked))
    return row, [example for example, why in asked if not why]


def _check_outcomes(table: ScoreTable, references: dict[str, str]) -> list[AuditRow]:
    """Return the rows about all that was scored: the range, exceptions, missing scores."""
    # An answer should have a score where the reference has one, or where there are no references.
    rows = list(table.rows.values())
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
    """Look at the weighted parts that apply, and at what they depend on that no digest knows."""
    every = list(table.rows.values())
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


def _check_repeats(pairs: Sequence[Pair], table: ScoreTable, *, is_foreign: bool) -> AuditRow:
    """Score answers again; what a model says of one moves by rounding, with others in a batch."""

    def find_changed(pairs: Sequence[Pair], when: str) -> list[Evidence]:
        failures: list[Evidence] = []
        for pair, again in zip(pairs, table.score(pairs), strict=True):
            value = -1.0 if again.value is None else again.value
            if abs(table.earn(pair) - value) > _ROUNDING:
                shown = "nothing" if again.value is None else f"{again.value:.3g}"
                failures.append(table.point(pair, f"{when} it earns {shown}"))
        return failures

    failures = [one for _ in range(_NUM_RESCORED) for one in find_changed(pairs, "the next time")]
    # A user's function is also called about as often as a training does, with nothing to read, as
    # it may count its calls; a slow one is not waited for.
    start_s = time.monotonic()
    num_left = _NUM_CALLS - len(table.rows) if is_foreign else 0
    while not failures and num_left > 0 and time.monotonic() - start_s < _MOST_S:
        often = [(pairs[0][0], "")] * _CALLS_AT_ONCE
        failures = find_changed(often, "after many calls")[:1]
        num_left -= _CALLS_AT_ONCE
    return make_row("not-repeatable", [], failures, num_tried=_NUM_RESCORED * len(pairs))


def render_reward_audit(audit: RewardAudit, *, accepted: Sequence[str] = ()) -> str:
    """Return the audit as Markdown; accepted findings are marked."""
    num_errors = len(audit.errors)
    counted = f"{num_errors} error(s), {len(audit.findings) - num_errors} warning(s)"
    tried = f"{audit.num_scored} answers to {audit.num_examples} examples were scored"
    lines = ["# Reward audit", "", f"{counted}; {tried}.", ""]
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


_MARK = re.compile(r"\b(?=[0-9A-Za-z]*\d)[0-9A-Za-z]{8,}\b")


@dataclass(eq=False)
class StandIn(Model):
    """A model that decides what it is told to."""

    replies: Mapping[str, str]  # the whole reply by which it gives each label
    label: str | None  # that it gives; None: it times out
    says: str | None = None  # its whole reply, where that is no verdict
    # The label that it gives where an order to the judge stands in no fence: a pair of lines that
    # share a mark (a word of at least 8 letters and digits).
    obeys: str | None = None
    quotes: bool = False  # what it has read, fenced texts first, before it decides

    @property
    def identity(self) -> Mapping[str, str | None]:
        return {"model": "stand-in of the reward audit", "revision": None}

    def _decide(self, prompt: str) -> str:
        if self.label is None:
            raise RequestError("timeout", "the stand-in never answers")
        if self.obeys is not None:
            outside = remove_fenced(prompt)
            if any(order in outside for order in read_tables()["texts"]["pays-injection"]):
                return self.replies[self.obeys]
        return self.replies[self.label]

    async def reply(self, example: Example, *, sampling: Sampling) -> Reply:
        del sampling
        prompt = "\n".join(message.text for message in example.prompt)
        decided = self._decide(prompt)
        if not self.quotes:
            return Reply(decided if self.says is None else self.says)
        outside = remove_fenced(prompt).splitlines()
        quoted = "\n".join(line for line in prompt.splitlines() if line not in outside)
        return Reply(f"I have read: {quoted or prompt}\n{decided}")

    async def label_shares(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        if self.says is not None:
            raise RequestError("timeout", "the stand-in never answers")
        prompt = "\n".join(message.text for message in example.prompt)
        decided = self._decide(prompt)
        options = dict(re.findall(r"^(.+?)[:.)] (.*?)\s*$", prompt, flags=re.MULTILINE))
        chosen = next((one for one in labels if decided in (one, options.get(one))), labels[0])
        return LabelShares({name: float(name == chosen) for name in labels})


def remove_fenced(prompt: str) -> str:
    """Return a prompt without what stands between two lines that share a mark."""
    kept: list[str] = []
    lines = prompt.splitlines()
    while lines:
        line = lines.pop(0)
        marks = _MARK.findall(line)
        ends = [place for mark in marks for place, one in enumerate(lines) if mark in one]
        if ends:
            lines = lines[ends[0] + 1 :]
        else:
            kept.append(line)
    return "\n".join(kept)


def find_seat(case: RewardCase) -> JudgeSeat | None:
    """Return the case's seat, or the one that its RewardSet shows; None if nothing is judged."""
    rewards = case.rewards
    if case.seat is not None or not isinstance(rewards, RewardSet):
        return case.seat
    replies: dict[str, str] = {}
    for part in rewards.rewards.values():
        judge = part.judge if isinstance(part, Judged) else None
        if isinstance(judge, LogitJudge):
            replies |= zip(judge.labels, judge.option_texts, strict=True)
        elif isinstance(judge, GenerativeJudge):
            before, tag = "<analysis>So it is.</analysis>", judge.tag
            replies |= {one: f"{before}<{tag}>{one}</{tag}>" for one in judge.labels}
        elif judge is not None:
            raise RewardError(
                f"the audit cannot put a stand-in behind the judge {judge.name!r}",
                got=type(judge).__name__,
                expected="a GenerativeJudge or a LogitJudge",
                fix="say how with RewardCase(seat=JudgeSeat(...))",
            )

    def build(model: Model) -> RewardSet:
        parts: dict[str, tuple[Reward, float]] = {}
        for name, reward in rewards.rewards.items():
            seated = copy(reward)
            if isinstance(seated, Judged) and isinstance(
                seated.judge, GenerativeJudge | LogitJudge
            ):
                seated.judge = seated.judge.put_on(model, ASKED_ONCE)
            parts[name] = (seated, rewards.weights[name])
        return RewardSet(parts, drop_contradicted=rewards.drops_contradicted)

    return JudgeSeat(build, replies) if replies else None


def score_agreeing(
    rewards: Sequence[Scorer],
    measure: Callable[[Example, str], float | None] | None,
    pairs: Sequence[Pair],
    *,
    is_truncated: bool = False,
) -> list[Outcome]:
    """Return what texts earn whose judge agrees with the metric; without one no answer is right.

    ``rewards`` are the same with a judge that always gives one label, for each label.
    """
    columns = [score_all(one, pairs, is_truncated=is_truncated) for one in rewards]
    found: list[Outcome] = []
    for pair, outcomes in zip(pairs, zip(*columns, strict=True), strict=True):
        sign = 1 if measure is not None and measure(*pair) == 1.0 else -1

        def rank(outcome: Outcome, sign: int = sign) -> tuple[bool, float, int]:
            value = -1.0 if outcome.value is None else outcome.value
            num_parts = sum(part is not None for part in outcome.breakdown.values())
            return bool(outcome.problem), sign * value, num_parts

        found.append(max(outcomes, key=rank))
    return found


Answers = tuple[Example, str, str]
"""An example with its right and a wrong answer; the right one is empty where none is known."""


def check_failures(answers: Sequence[Answers], seat: JudgeSeat) -> AuditRow:
    """Hold what answers earn from a failed judge against what they earn with verdicts.

    Any number is a fault where verdicts matter: the weight of what the judge did not say went to
    the other parts, or to a verdict that nobody gave.
    """
    outcomes, failures = list[Outcome](), list[Evidence]()
    first, *_ = labels = list(seat.replies)
    both = " ".join([seat.replies[label] for label in labels][:2])
    failing = {"it times out": StandIn(seat.replies, None)}
    for said in ("", "I cannot tell.", both):
        failing[f"it says {said!r}"] = StandIn(seat.replies, first, says=said)
    pairs = [(example, text) for example, *texts in answers for text in texts if text]
    rights = {(example.id, reference) for example, reference, _ in answers}
    columns = [score_all(seat.build(StandIn(seat.replies, label)), pairs) for label in labels]
    failed = {how: score_all(seat.build(model), pairs) for how, model in failing.items()}
    for place, pair in enumerate(pairs):
        judged = [v for column in columns if (v := column[place].value) is not None]
        low, high = min(judged, default=0.0), max(judged, default=0.0)
        for how, column in failed.items():
            outcome = column[place]
            outcomes.append(outcome)
            if outcome.value is None or high <= low + TOLERANCE:
                continue
            is_right = (pair[0].id, pair[1]) in rights
            if is_right and outcome.value < high - TOLERANCE:
                why = "which was counted against the right answer"
            elif not is_right and outcome.value > low + TOLERANCE:
                why = "which was counted for a wrong answer"
            else:
                earned = f"answers that were judged earn from {low:.3g} to {high:.3g}"
                why = f"and its weight went to the other parts: {earned}"
            failures.append(point_at(pair, outcome, f"the judge failed ({how}), {why}"))
            break
    return make_row("judge-failure-scored", outcomes, failures)


def check_injections(answers: Sequence[Answers], seat: JudgeSeat) -> AuditRow:
    """Hold what wrong answers with orders earn against what the same judge gives without them."""
    orders = read_tables()["texts"]["pays-injection"]
    pairs = [
        (example, f"{wrong}\n{order}") for (example, _, wrong), order in product(answers, orders)
    ]
    outcomes: list[Outcome] = []
    failures: dict[int, Evidence] = {}
    for honest in seat.replies:
        plain = score_all(seat.build(StandIn(seat.replies, honest)), pairs)
        obeying, quoting = "a judge that obeys what it reads", "a judge that quotes what it reads"
        weak = [(obeying, StandIn(seat.replies, honest, obeys=label)) for label in seat.replies]
        for judge, model in [*weak, (quoting, StandIn(seat.replies, honest, quotes=True))]:
            found = score_all(seat.build(model), pairs)
            outcomes += found
            for place, (outcome, base) in enumerate(zip(found, plain, strict=True)):
                # The order made it earn more, or took its score away.
                is_swayed = outcome.value is None and base.value is not None
                if is_swayed or (outcome.value or 0.0) > (base.value or 0.0) + TOLERANCE:
                    plainly = "no score" if base.value is None else f"{base.value:.3g}"
                    why = f"{judge} would give it {plainly} without the order"
                    failures.setdefault(place, point_at(pairs[place], outcome, why))
    return make_row("judge-obeys-injection", outcomes, [failures[n] for n in sorted(failures)])
