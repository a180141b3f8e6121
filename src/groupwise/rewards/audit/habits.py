"""What pays without looking: habits (words, length, language), constants, and parts of a RewardSet.

A wrong answer is written with and without each; what it gains is the habit's pay. So a finding has
the name of what the reward keys on.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from groupwise.core import Example
from groupwise.rewards.adapters import TrlReward
from groupwise.rewards.audit.case import Item, Measure, RewardCase, Scorer
from groupwise.rewards.audit.rows import (
    TOLERANCE,
    AuditRow,
    Evidence,
    Outcome,
    Rule,
    ScoreTable,
    point_at,
    score_all,
)
from groupwise.rewards.functions import FunctionReward
from groupwise.rewards.reward import applies_to
from groupwise.rewards.reward_set import RewardSet

MAX_CONSTANTS = 8
MAX_BALANCED_EXAMPLES = 200
MAX_MISSING_SHARE = 0.5

KEYWORD = Rule(
    "reward/pays-keyword",
    "error",
    "a wrong answer with a stock word ('because', '因为')",
    "must earn no more than with any other word",
)
LENGTH = Rule(
    "reward/pays-length",
    "error",
    "a wrong answer with more words around it",
    "must earn no more than a short one",
)
LANGUAGE = Rule(
    "reward/pays-language",
    "error",
    "a wrong answer in English and in Chinese words",
    "must earn the same in both",
)
REPEATABLE = Rule(
    "reward/not-repeatable", "error", "an answer scored again", "must earn the same again"
)
TRUNCATED = Rule(
    "reward/pays-truncated",
    "error",
    "an answer that the limit of tokens has cut off",
    "must earn no more than the same text that ended by itself",
)
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
UNSEEN = Rule(
    "reward/depends-on-unseen",
    "warning",
    "what the rewards read",
    "must be read where their file is imported: a later change of it is not noticed, and steps "
    "that are done are not done again",
)
RULES = (
    KEYWORD,
    LENGTH,
    LANGUAGE,
    REPEATABLE,
    TRUNCATED,
    CONSTANT,
    NEVER_VARIES,
    OFTEN_MISSING,
    UNSEEN,
)

_WORDS = {
    "en": ("because", "therefore", "step by step", "wait", "certainly", "first", "verified"),
    "zh": ("因为", "所以", "一步一步", "等等", "一定", "首先", "已验证"),
}
_PLAIN = {
    "en": ("somewhere", "Look at the problem once more."),
    "zh": ("就在这附近的某处吧", "请你再把这道题目从头到尾仔细地看上一遍，然后重新想一想吧好。"),
}
"""Of the same length in both languages, so that length is not taken for language."""
_NUM_REPEATS = 60
_NUM_ITEMS = 4
_NUM_RESCORED = 3
_NUM_CALLS, _CALLS_AT_ONCE, _MOST_S = 8_000, 100, 2.0
_ROUNDING = 1e-3


@dataclass(frozen=True, slots=True)
class _Tried:
    """What wrong answers to one item earn: plainly, by language, and with each habit."""

    item: Item
    measure: Measure
    table: ScoreTable

    def find_best(self, texts: Sequence[str]) -> tuple[float, str, Outcome]:
        """Return the most that one of the texts earns of those that are not right at all."""
        best = (0.0, "", Outcome(None))
        for text in texts:
            outcome = self.table.look_up(self.item.example, text)
            is_wrong = not self.measure(self.item.example, text)
            if is_wrong and outcome.value is not None and outcome.value > best[0]:
                best = (outcome.value, text, outcome)
        return best

    def point(self, text: str, outcome: Outcome, why: str) -> Evidence:
        return point_at(self.item.example, text, outcome, why)


def check_habits(items: Sequence[Item], measure: Measure, table: ScoreTable) -> list[AuditRow]:
    """Return the rows about words, length and language, on answers that the metric calls wrong."""
    sample = [item for item in items if item.wrong][:_NUM_ITEMS]
    table.fill((item.example, text) for item in sample for text in _list_texts(item))
    rules = (KEYWORD, LENGTH, LANGUAGE)
    found: dict[str, list[Evidence]] = {rule.name: [] for rule in rules}
    for item in sample:
        tried = _Tried(item, measure, table)
        plain = {name: tried.find_best(_frame_all(item, words)) for name, words in _PLAIN.items()}
        bare = tried.find_best(item.wrong[:1])[0]
        found[KEYWORD.name] += _find_keywords(tried, plain)
        found[LENGTH.name] += _find_length(tried, plain)
        found[LANGUAGE.name] += _find_language(tried, plain, bare)
    outcomes = [table.look_up(i.example, text) for i in sample for text in _list_texts(i)]
    return [rule.make_row(outcomes, found[rule.name]) for rule in rules]


def _find_keywords(tried: _Tried, plain: dict[str, tuple[float, str, Outcome]]):
    for name, words in _WORDS.items():
        for word in words:
            value, text, outcome = tried.find_best(_frame_all(tried.item, (word,)))
            if value > plain[name][0] + TOLERANCE:
                why = f"{word!r} pays: another word in its place earns {plain[name][0]:.3g}"
                yield tried.point(text, outcome, why)


def _find_length(tried: _Tried, plain: dict[str, tuple[float, str, Outcome]]):
    for name, (short, _, _) in plain.items():
        value, text, outcome = tried.find_best(_frame_all(tried.item, _lengthen(name)))
        if value > short + TOLERANCE:
            yield tried.point(text, outcome, f"length pays: with few words it earns {short:.3g}")


def _find_language(tried: _Tried, plain: dict[str, tuple[float, str, Outcome]], bare: float):
    low, high = sorted(plain.values(), key=lambda found: found[0])
    if high[0] > max(low[0], bare) + TOLERANCE:
        why = f"the language pays: in the other one it earns {low[0]:.3g}"
        yield tried.point(high[1], high[2], why)


def check_repeats(pairs: Sequence[tuple[Example, str]], table: ScoreTable) -> AuditRow:
    """Return the row of answers that were scored before and are scored again.

    What a model says of an answer moves by rounding, with the answers beside it in a batch.
    """
    failures: list[Evidence] = []
    for _ in range(_NUM_RESCORED):
        failures += _find_changed(pairs, table, "the next time")
    if pairs and not failures and _is_foreign(table.rewards):
        failures += _call_often(pairs[0][0], table)
    return REPEATABLE.make_row([], failures, num_tried=_NUM_RESCORED * len(pairs))


def _find_changed(
    pairs: Sequence[tuple[Example, str]], table: ScoreTable, when: str
) -> list[Evidence]:
    """Return the answers that earn something else now."""
    failures: list[Evidence] = []
    again_all = score_all(table.rewards, list(pairs))
    for (example, text), again in zip(pairs, again_all, strict=True):
        first = table.look_up(example, text)
        if not _is_same(first.value, again.value):
            shown = "nothing" if again.value is None else f"{again.value:.3g}"
            failures.append(point_at(example, text, first, f"{when} it earns {shown}"))
    return failures


def _call_often(example: Example, table: ScoreTable) -> list[Evidence]:
    """Call a user's function about as often as a training does: it may count its calls.

    It is given nothing to read, and a slow one is not waited for.
    """
    start_s = time.monotonic()
    num_left = _NUM_CALLS - len(table.list_rows())
    while num_left > 0 and time.monotonic() - start_s < _MOST_S:
        found = _find_changed([(example, "")] * _CALLS_AT_ONCE, table, "after many calls")
        if found:
            return found[:1]
        num_left -= _CALLS_AT_ONCE
    return []


def _is_foreign(rewards: Scorer) -> bool:
    """Say whether a part of the rewards is a function of the user's own."""
    parts = rewards.rewards.values() if isinstance(rewards, RewardSet) else [rewards]
    own = (FunctionReward, TrlReward)
    modules = [getattr(part, "__module__", None) or type(part).__module__ for part in parts]
    return any(isinstance(part, own) for part in parts) or not all(
        module.startswith("groupwise") for module in modules
    )


def check_truncated(pairs: Sequence[tuple[Example, str]], table: ScoreTable) -> AuditRow:
    """Return the row of texts that are scored as if the limit of tokens had cut them off."""
    outcomes = score_all(table.rewards, list(pairs), is_truncated=True)
    failures = [
        point_at(example, text, cut, f"cut off; ended by itself, it earns {whole:.3g}")
        for (example, text), cut in zip(pairs, outcomes, strict=True)
        if cut.value is not None
        and cut.value > (whole := table.look_up(example, text).value or 0.0) + TOLERANCE
    ]
    return TRUNCATED.make_row(outcomes, failures)


def _is_same(first: float | None, again: float | None) -> bool:
    if first is None or again is None:
        return first is again
    return abs(first - again) <= _ROUNDING


def _list_texts(item: Item) -> list[str]:
    words = [word for name in _WORDS for word in (*_WORDS[name], *_PLAIN[name], *_lengthen(name))]
    return [*item.wrong[:1], *_frame_all(item, words)]


def _lengthen(name: str) -> tuple[str, ...]:
    return tuple(" ".join([_PLAIN[name][1]] * times) for times in (8, _NUM_REPEATS))


def _frame_all(item: Item, words: Sequence[str]) -> list[str]:
    return [text for word in words for text in _frame(item, word)]


def _frame(item: Item, word: str) -> Iterator[str]:
    """Put words before a wrong answer, into its thinking if it has one, and alone."""
    wrong = item.wrong[0]
    yield f"{word}\n{wrong}"
    yield f"{word} {wrong}"
    if "<think>" in wrong:
        yield wrong.replace("<think>", f"<think>{word} ", 1)
    yield word


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


def check_unseen(rewards: Scorer, table: ScoreTable) -> AuditRow:
    """Name what parts were found to depend on, over all that was scored, that no digest knows."""
    found: list[tuple[str, str]] = []
    for name, part in rewards.rewards.items() if isinstance(rewards, RewardSet) else ():
        found += [(name, str(what)) for what in getattr(part, "unseen", ())]
    rows = table.list_rows()
    example, text, outcome = rows[0]
    failures = [
        point_at(example, text, outcome, f"the part {name!r} depends on {what}")
        for name, what in sorted(found)
    ]
    return UNSEEN.make_row([], failures, num_tried=len(rows))


def check_parts(rewards: Scorer, table: ScoreTable) -> list[AuditRow]:
    """Look at the parts of a RewardSet over all that was scored; no rows for other scorers.

    A part that has nothing to say about any example is left out.
    """
    if not isinstance(rewards, RewardSet):
        return []
    rows = [row for row in table.list_rows() if row[2].breakdown]
    still: list[Evidence] = []
    missing: list[Evidence] = []
    parts = [name for name, weight in rewards.weights.items() if weight > 0]
    parts = [name for name in parts if rewards.kinds[name] != "human"]
    shown = {example.id: example for example, _, _ in rows}.values()
    parts = [n for n in parts if any(applies_to(rewards.rewards[n], e) for e in shown)]
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
