"""What pays without looking, and what the parts of a RewardSet add: constants, parts, weights."""

from collections import Counter
from collections.abc import Sequence

from groupwise.core import Example
from groupwise.rewards.audit.case import RewardCase, Scorer
from groupwise.rewards.audit.outcomes import Outcome, ScoreTable
from groupwise.rewards.audit.rows import TOLERANCE, AuditRow, Evidence, Rule, point_at
from groupwise.rewards.reward_set import RewardSet

MAX_CONSTANTS = 8
MAX_BALANCED_EXAMPLES = 200
MAX_MISSING_SHARE = 0.5

CONSTANT = Rule(
    "reward/constant-beats-majority",
    "error",
    "the same answer to every example",
    "must be paid in full no more often than the metric calls the best of them right",
)
NEVER_VARIES = Rule(
    "reward/part-never-varies",
    "warning",
    "every weighted part",
    "must give different answers different values",
)
OFTEN_MISSING = Rule(
    "reward/part-often-missing",
    "warning",
    "every weighted part",
    f"must have a value for at least {1 - MAX_MISSING_SHARE:.0%} of the answers",
)


def check_constants(case: RewardCase, table: ScoreTable) -> AuditRow:
    """Give every example the same label, for each label in turn.

    The bound is the majority rate, taken with the metric: the share of examples for which the
    best constant is right.
    """
    examples = [e for e in case.examples if e.label is not None][:MAX_BALANCED_EXAMPLES]
    counts = Counter(str(example.label) for example in examples)
    constants = case.parser.labels or tuple(name for name, _ in counts.most_common(MAX_CONSTANTS))
    answers = {
        name: [(example, case.write(example, name)) for example in examples] for name in constants
    }
    references = [(e, case.write(e, str(e.label))) for e in examples]
    table.fill([*references, *(pair for pairs in answers.values() for pair in pairs)])
    rights = {
        name: sum(case.parser.measure(e, text) == 1.0 for e, text in pairs)
        for name, pairs in answers.items()
    }
    best = max(rights.values())
    failures: list[Evidence] = []
    for name, pairs in answers.items():
        paid = _list_paid(pairs, references, table)
        if len(paid) > best:
            shown = next((p for p in paid if case.parser.measure(*p) != 1.0), paid[0])
            why = (
                f"as a constant, {name!r} is paid in full on {len(paid)} of {len(examples)} "
                f"examples; the majority rate is {best} of {len(examples)}"
            )
            failures.append(point_at(*shown, table.look_up(*shown), why))
    outcomes = [table.look_up(*pair) for pairs in answers.values() for pair in pairs]
    return CONSTANT.make_row(outcomes, failures)


def _list_paid(
    pairs: Sequence[tuple[Example, str]],
    references: Sequence[tuple[Example, str]],
    table: ScoreTable,
) -> list[tuple[Example, str]]:
    """Return the answers that earn as much as the reference of their example."""
    paid: list[tuple[Example, str]] = []
    for pair, reference in zip(pairs, references, strict=True):
        value, full = table.look_up(*pair).value, table.look_up(*reference).value
        if value and full is not None and value > full - TOLERANCE:
            paid.append(pair)
    return paid


def check_parts(rewards: Scorer, table: ScoreTable) -> list[AuditRow]:
    """Look at the parts of a RewardSet over all that was scored; no rows for other scorers."""
    if not isinstance(rewards, RewardSet):
        return []
    rows = [row for row in table.list_rows() if row[2].breakdown]
    still: list[Evidence] = []
    missing: list[Evidence] = []
    parts = [name for name, weight in rewards.weights.items() if weight > 0]
    parts = [name for name in parts if rewards.kinds[name] != "human"]
    for part in parts if rows else ():
        values = [row[2].breakdown.get(part) for row in rows]
        known = [value for value in values if value is not None]
        num_missing = len(values) - len(known)
        if known and max(known) - min(known) <= TOLERANCE:
            why = f"the part {part!r} is {known[0]:.3g} for every answer that was tried"
            still.append(point_at(rows[0][0], rows[0][1], Outcome(known[0]), why))
        if num_missing > MAX_MISSING_SHARE * len(values):
            shown = rows[values.index(None)]
            why = f"the part {part!r} has no value for {num_missing} of {len(values)} answers"
            missing.append(point_at(shown[0], shown[1], shown[2], why))
    return [
        NEVER_VARIES.make_row([], still, num_tried=len(parts)),
        OFTEN_MISSING.make_row([], missing, num_tried=len(parts)),
    ]
