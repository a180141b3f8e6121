"""The audit of rewards that only check: no reference answer says what is right.

What is no answer to anything may earn something, but not the most that there is, or a policy ends
there. Most rewards are graded, and every checker can be met without sense; so a run is refused only
where what cannot be an answer (nothing, the prompt, garbage) earns the most on most rows. All else
is a warning with the answer that earned it, and information where a part of the reward, such as
fluency, cannot be counted before the run. With the base's own answers it is known how much good
ones earn, and what of them pays.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from groupwise.core import Example
from groupwise.rewards.audit import lazy_texts, texts
from groupwise.rewards.audit.case import SAMPLE_SIZE, RewardCase
from groupwise.rewards.audit.lazy_texts import Row, fill, read_row
from groupwise.rewards.audit.rows import AuditRow, Evidence, Rule, ScoreTable, point_at

Refused = Literal["any", "most", "never"]
"""What is an error: that one text of a kind earns the most on most rows, that most texts of the
kind do, or nothing: such texts may do the task by chance, or on purpose."""

_FULL, _LEAST_KNOWN = 0.99, 0.75
_MOST, _SOME = 0.5, 0.25
_GAIN = 1e-3
_SCREENED = 6
_CLOSE = 0.5
"""A text that earns less than this share of the most on the first rows is not tried on others."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A kind of text; those that ``write`` returns stand in the same order for every row.

    ``is_language`` tells that what reads answers with a model may well like the texts.
    """

    name: str
    title: str
    write: Callable[[Row], Iterable[str]]
    refused: Refused
    is_language: bool = False

    @property
    def rule(self) -> Rule:
        """The rule of its row."""
        return _rule(self.name, self.title, "must earn less than good answers do")


def _rule(name: str, title: str, must: str) -> Rule:
    return Rule(f"reward/{name}", "warning", title, must)


PROBES = (
    Probe("pays-empty", "an empty answer", lambda _: [""], "any"),
    Probe("pays-white-space", "white space", lambda _: texts.WHITE_SPACE, "any"),
    Probe("pays-empty-format", "the format without contents", lambda _: lazy_texts.SHELLS, "any"),
    Probe("pays-echo", "the prompt echoed back", lazy_texts.write_echo, "any"),
    Probe("pays-garbage", "words that answer nothing", lambda _: lazy_texts.GARBAGE, "most"),
    Probe("pays-long-output", "as much output as there can be", lazy_texts.write_long, "most"),
    Probe("pays-off-topic", "sentences about something else", lazy_texts.write_off_topic, "most"),
    Probe(
        "pays-language",
        "sentences about something else, in another language",
        lazy_texts.write_other_language,
        "most",
    ),
    Probe("pays-praise", "praise of itself, grades", lambda _: lazy_texts.PRAISE, "most"),
    Probe("pays-many-answers", "very many answers as one", lazy_texts.write_many, "most"),
    Probe("pays-truism", "what is always true", lambda _: lazy_texts.TRUISMS, "most"),
    Probe("pays-tampering", "code that ends or deceives", lambda _: lazy_texts.TAMPERING, "most"),
    Probe("pays-stuffing", "the words of the row, listed", lazy_texts.write_stuffing, "never"),
    Probe(
        "pays-talk-of-the-task",
        "a sentence about the task, with what it names",
        lazy_texts.write_talk,
        "never",
        is_language=True,
    ),
    Probe(
        "pays-fitted-form",
        "as many words, lines or signs as asked, without sense",
        lazy_texts.write_fitted,
        "never",
    ),
    Probe(
        "pays-filled-format",
        "the names that are asked for, without contents",
        lazy_texts.write_filled_shells,
        "never",
    ),
)

CONSTANT = _rule(
    "pays-constant",
    "the best answers to other rows",
    "must earn less than good answers on most rows",
)
LENGTH = _rule("pays-length", "a text said again and again", "must earn no more than said once")
KEYWORD = _rule(
    "pays-keyword",
    "stock words and grades behind a text",
    "must earn no more than any other words",
)
PADDED = _rule("length-is-free", "a good answer among very many words", "must earn less than alone")
BROKEN = _rule("pays-broken-answer", "half of a good answer", "must earn less than the whole")
ORDER = _rule(
    "ignores-order", "the words of a good answer in another order", "must earn less than in order"
)
EMPTIED = _rule(
    "pays-emptied-answer", "a good answer without its contents", "must earn less than with them"
)
BAD = _rule(
    "pays-bad-samples",
    "the base's own answers that say next to nothing or repeat themselves",
    "must earn less than its good ones",
)
COMPOSED = _rule(
    "pays-stock-phrases",
    "stock phrases put together, the same for every row",
    "must earn less than good answers on most rows",
)
ALIKE = _rule(
    "samples-earn-the-same",
    "the base's own answers",
    "must earn different rewards, or there is nothing to learn from",
)
RULES = (
    *(probe.rule for probe in PROBES),
    *(COMPOSED, ALIKE, CONSTANT, LENGTH, KEYWORD, PADDED, BROKEN, ORDER, EMPTIED, BAD),
)

_NEUTRAL = {"en": "somewhere in the green hills 7", "zh": "某处的青山绿水之间七"}
_STOCK = (
    *("because", "therefore", "however", "step by step", "wait", "certainly", "first", "please"),
    *("I am sorry.", "I apologize.", "Hello!", "Yes.", "No.", "Kind regards", "for example"),
    *(
        "in conclusion",
        "verified",
        "I am confident.",
        "10/10",
        "Confidence: 100%",
        "!",
        "?",
        "\n- ",
    ),
    *(
        "[1]",
        "https://example.org",
        "(Smith, 2020)",
        "**bold**",
        "🙂",
        "thank you",
        "42",
        "Answer:",
    ),
    *("因为", "所以", "首先", "一步一步", "总之", "我非常确定", "满分", "谢谢"),
)
_MAX_CONSTANTS, _MAX_COMPOSED = 8, 5


@dataclass(frozen=True, slots=True)
class Level:
    """What good answers earn.

    Attributes:
        most: the most that is known to be earned, at most 0.99.
        is_known: whether the base's own answers say so.
    """

    most: float
    is_known: bool


def draw_rows(case: RewardCase, *, size: int = SAMPLE_SIZE) -> list[Row]:
    """Return the first examples, those with answers of the base before others."""
    sampled = [example for example in case.examples if example.id in case.samples]
    others = [example for example in case.examples if example.id not in case.samples]
    most = case.max_new_tokens or 5 * 2000 // lazy_texts.BYTES_PER_TOKEN
    return [read_row(e, lazy_texts.BYTES_PER_TOKEN * most) for e in [*sampled, *others][:size]]


def run_probes(case: RewardCase, rows: Sequence[Row], table: ScoreTable) -> list[AuditRow]:
    """Return a row for every kind of text that these rows have a place for."""
    written = {
        probe.name: [[row.cut(text) for text in probe.write(row)] for row in rows]
        for probe in PROBES
    }
    samples = {row.example.id: list(case.samples.get(row.example.id, ())) for row in rows}
    table.fill((row.example, text) for row in rows for text in samples[row.example.id])
    _fill(rows, written.values(), table)
    level = find_level(rows, samples, table)
    good = _find_good(rows, samples, level, table)
    found = [
        _judge(probe, rows, written[probe.name], level, table, uncounted=case.uncounted)
        for probe in PROBES
    ]
    return [
        *(row for row in found if row.num_tried),
        _check_constants(rows, good, level, table),
        _compose(rows, level, table),
        *_check_habits(rows, good, table),
        *(_check_good(rows, good, table) if good else []),
        *(_check_samples(rows, samples, level, table) if case.samples else []),
    ]


def find_level(
    rows: Sequence[Row], samples: Mapping[str, Sequence[str]], table: ScoreTable
) -> Level:
    """Return what the best of the base's answers earn; without any, the maximum of 1 counts.

    A base that earns next to nothing shows no good answers.
    """
    values = [
        table.look_up(row.example, text).value for row in rows for text in samples[row.example.id]
    ]
    best = max((value for value in values if value is not None), default=0.0)
    return Level(min(_FULL, max(best, _LEAST_KNOWN)) if best else _FULL, best >= _LEAST_KNOWN)


def _fill(
    rows: Sequence[Row], written: Iterable[Sequence[Sequence[str]]], table: ScoreTable
) -> None:
    """Try every text on the first rows, and on the others what came close there."""
    kinds = list(written)
    first = range(min(_SCREENED, len(rows)))
    table.fill((rows[n].example, text) for kind in kinds for n in first for text in kind[n])
    close = [_list_close(rows, kind, table) for kind in kinds]
    table.fill(
        (rows[n].example, text)
        for kind, places in zip(kinds, close, strict=True)
        for n in range(len(first), len(rows))
        for place, text in enumerate(kind[n])
        if place in places
    )


def _list_close(rows: Sequence[Row], kind: Sequence[Sequence[str]], table: ScoreTable) -> set[int]:
    return {
        place
        for row, listed in zip(rows[:_SCREENED], kind, strict=False)
        for place, text in enumerate(listed)
        if (table.look_up(row.example, text).value or 0.0) >= _CLOSE
    }


def _judge(
    probe: Probe,
    rows: Sequence[Row],
    written: Sequence[Sequence[str]],
    level: Level,
    table: ScoreTable,
    *,
    uncounted: Sequence[str],
) -> AuditRow:
    """Return the row of a kind of text; its level follows from which of the texts earn the most.

    Where parts of the reward are uncounted, it is not known that what is no language pays.
    """
    close = _list_close(rows, written, table)
    tried: list[tuple[int, Row, str]] = [
        (place, row, text)
        for number, (row, listed) in enumerate(zip(rows, written, strict=True))
        for place, text in enumerate(listed)
        if number < _SCREENED or place in close
    ]
    full = [one for one in tried if _earns(one[1], one[2], table) >= level.most]
    counts = {place: sum(one[0] == place for one in full) for place, _, _ in tried}
    most = [place for place, count in counts.items() if count > _MOST * len(rows)]
    reached = {row.example.id for _, row, _ in full}
    is_error = (probe.refused == "any" and most) or (
        probe.refused == "most" and len(most) > _MOST * len(counts)
    )
    failures: list[Evidence] = []
    if is_error or len(reached) > _SOME * len(rows):
        full.sort(key=lambda one: -counts[one[0]])
        firsts = {row.example.id: (row, text) for _, row, text in reversed(full)}
        failures = [_point(*firsts[key], table, _say_level(level)) for key in firsts]
    elif probe.refused == "any":
        failures = _find_half(tried, rows, level, table)
    rule = probe.rule
    if is_error:
        rule = replace(rule, level="error")
    elif uncounted and not probe.is_language:
        rule = replace(rule, level="info", must=f"{rule.must}, not counting {', '.join(uncounted)}")
    outcomes = [table.look_up(row.example, text) for _, row, text in tried]
    return rule.make_row(outcomes, failures, num_tried=len(rows) if tried else 0)


def _find_half(
    tried: Sequence[tuple[int, Row, str]], rows: Sequence[Row], level: Level, table: ScoreTable
) -> list[Evidence]:
    """Return one text of nothing that earns more than half of the most on most rows."""
    half = level.most / _FULL / 2
    found: dict[int, list[tuple[Row, str]]] = {}
    for place, row, text in tried:
        if _earns(row, text, table) > half + _GAIN:
            found.setdefault(place, []).append((row, text))
    best = max(found.values(), key=len, default=list[tuple[Row, str]]())
    if len(best) <= _MOST * len(rows):
        return []
    return [_point(*one, table, "that is more than half of the most") for one in best]


def _say_level(level: Level) -> str:
    if level.is_known:
        return f"the base's best answers earn no more than {level.most:.3g}"
    return "more can hardly be earned"


def _earns(row: Row, text: str, table: ScoreTable) -> float:
    value = table.look_up(row.example, text).value
    return -1.0 if value is None else value


def _point(row: Row, text: str, table: ScoreTable, why: str) -> Evidence:
    return point_at(row.example, text, table.look_up(row.example, text), why)


Good = dict[str, tuple[str, float]]
"""By the id of an example, the best of the base's answers and what it earns."""


def _find_good(
    rows: Sequence[Row], samples: Mapping[str, Sequence[str]], level: Level, table: ScoreTable
) -> Good:
    found: Good = {}
    for row in rows:
        scored = [(text, _earns(row, text, table)) for text in samples[row.example.id]]
        if scored:
            text, value = max(scored, key=lambda pair: pair[1])
            if level.is_known and value >= _LEAST_KNOWN:
                found[row.example.id] = (text, value)
    return found


def _check_constants(rows: Sequence[Row], good: Good, level: Level, table: ScoreTable) -> AuditRow:
    """Give every row the best answers to other rows: the base's, or the best that were tried."""
    best: dict[str, float] = {text: value for text, value in good.values()}
    for example, text, outcome in table.list_rows():
        if outcome.value is not None and example.id not in good and not good:
            best[text] = max(best.get(text, 0.0), outcome.value)
    full = [text for text, value in best.items() if value >= level.most and text.strip()]
    constants = full[:: max(1, len(full) // _MAX_CONSTANTS)][:_MAX_CONSTANTS]
    table.fill((row.example, text) for row in rows for text in constants)
    failures: list[Evidence] = []
    for text in constants:
        reached = [row for row in rows if _earns(row, text, table) >= level.most]
        if len(reached) > max(_MOST * len(rows), len(failures)):
            failures = [
                _point(row, text, table, "the same text earns as much on other rows")
                for row in reached
            ]
    outcomes = [table.look_up(row.example, text) for row in rows for text in constants]
    return CONSTANT.make_row(outcomes, failures, num_tried=len(rows))


def _compose(rows: Sequence[Row], level: Level, table: ScoreTable) -> AuditRow:
    """Put stock phrases before a plain sentence as long as one of them earns more on most rows."""
    tried = rows[:_SCREENED]
    text = plain = next(iter(lazy_texts.write_off_topic(rows[0])))
    for _ in range(_MAX_COMPOSED):
        longer = [f"{phrase} {text}" for phrase in (*_STOCK, *lazy_texts.PRAISE)]
        table.fill((row.example, row.cut(one)) for row in tried for one in (text, *longer))
        sums = {one: sum(_earns(row, row.cut(one), table) for row in tried) for one in longer}
        best = max(longer, key=lambda one: sums[one])
        if sums[best] <= sum(_earns(row, row.cut(text), table) for row in tried) + _GAIN:
            break
        text = best
    table.fill((row.example, row.cut(text)) for row in rows)
    full = [row for row in rows if _earns(row, row.cut(text), table) >= level.most]
    failures = [_point(row, row.cut(text), table, _say_level(level)) for row in full]
    outcomes = [table.look_up(row.example, row.cut(text)) for row in rows]
    is_found = text != plain and len(full) > _MOST * len(rows)
    return COMPOSED.make_row(outcomes, failures if is_found else [])


def _check_habits(rows: Sequence[Row], good: Good, table: ScoreTable) -> list[AuditRow]:
    """Say of a plain text, and of a good one, whether length or stock words alone earn more."""
    tried = rows[:_SCREENED]
    bases = [(row, text) for row in tried for text in _list_bases(row, good)]
    longer = [fill(f"{text} ", row) for row, text in bases]
    words = [(_NEUTRAL[row.language], *_STOCK) for row, _ in bases]
    stocked = [
        [row.cut(f"{text} {word}") for word in listed]
        for (row, text), listed in zip(bases, words, strict=True)
    ]
    table.fill(
        (row.example, text)
        for (row, base), long, with_words in zip(bases, longer, stocked, strict=True)
        for text in (base, long, *with_words)
    )
    by_length: list[_Gain] = []
    by_word: dict[int, list[_Gain]] = {}
    for (row, base), long, (neutral, *with_words) in zip(bases, longer, stocked, strict=True):
        plain = _earns(row, base, table)
        if _earns(row, long, table) > plain + _GAIN:
            by_length.append((row, long, plain))
        plain = max(plain, _earns(row, neutral, table))
        for place, text in enumerate(with_words):
            if _earns(row, text, table) > plain + _GAIN:
                by_word.setdefault(place, []).append((row, text, plain))
    best = max(by_word.values(), key=_count_rows, default=list[_Gain]())
    return [
        _row_of_gains(LENGTH, by_length, tried, table, "said once"),
        _row_of_gains(KEYWORD, best, tried, table, "with another word"),
    ]


_Gain = tuple[Row, str, float]
"""A row, a text, and what it earns without what it gains by."""


def _count_rows(gains: Sequence[_Gain]) -> int:
    return len({row.example.id for row, _, _ in gains})


def _list_bases(row: Row, good: Good) -> Iterator[str]:
    yield row.cut(next(iter(lazy_texts.write_off_topic(row))))
    if row.values:
        yield row.cut(f"{' '.join(row.values)}.")
    if row.example.id in good:
        yield good[row.example.id][0]


def _row_of_gains(
    rule: Rule,
    gains: Sequence[_Gain],
    rows: Sequence[Row],
    table: ScoreTable,
    why: str,
) -> AuditRow:
    firsts = {row.example.id: (row, text, plain) for row, text, plain in reversed(gains)}
    failures = [
        _point(row, text, table, f"{why} it earns {max(plain, 0.0):.3g}")
        for row, text, plain in firsts.values()
    ]
    outcomes = [table.look_up(row.example, text) for row, text, _ in gains]
    is_found = len(failures) > _MOST * len(rows)
    return rule.make_row(outcomes, failures if is_found else [], num_tried=len(rows))


def _check_good(rows: Sequence[Row], good: Good, table: ScoreTable) -> list[AuditRow]:
    """Say what of good answers pays: all of them, their order, their contents."""
    with_good = [row for row in rows if row.example.id in good]
    changes: list[tuple[Rule, Callable[[Row, str], str]]] = [
        (PADDED, lambda row, text: row.cut(f"{text} {fill('word ', row)}")),
        (BROKEN, lambda _, text: text[: len(text) // 2]),
        (ORDER, lambda _, text: _reorder(text)),
        (EMPTIED, lambda _, text: lazy_texts.empty_values(text)),
    ]
    written = {
        rule.name: [(row, change(row, good[row.example.id][0])) for row in with_good]
        for rule, change in changes
    }
    table.fill((row.example, text) for pairs in written.values() for row, text in pairs)
    found: list[AuditRow] = []
    for rule, _ in changes:
        pairs = [(row, t) for row, t in written[rule.name] if t != good[row.example.id][0]]
        failures = [
            _point(row, text, table, f"whole, it earns {good[row.example.id][1]:.3g}")
            for row, text in pairs
            if _earns(row, text, table) > good[row.example.id][1] - _GAIN
        ]
        outcomes = [table.look_up(row.example, text) for row, text in pairs]
        is_found = len(failures) > _MOST * len(pairs)
        found.append(rule.make_row(outcomes, failures if is_found else [], num_tried=len(pairs)))
    return [row for row in found if row.num_tried]


def _reorder(text: str) -> str:
    """Return the words of a text with the second half in front; its end stays where it is."""
    body, end = re.fullmatch(r"(.*?)([.!?。！？]?\s*)", text, re.DOTALL).groups()  # pyright: ignore
    words = body.split(" ") if " " in body else list(body)
    joint = " " if " " in body else ""
    return joint.join([*words[1::2], *words[::2]]) + end


def _check_samples(
    rows: Sequence[Row], samples: Mapping[str, Sequence[str]], level: Level, table: ScoreTable
) -> list[AuditRow]:
    """Say whether the base's answers differ in what they earn, and what its bad ones earn."""
    every = [(row, text) for row in rows for text in samples[row.example.id]]
    values = {_earns(*one, table) for one in every}
    alike = [_point(*every[0], table, f"all {len(every)} earn this")] if len(values) == 1 else []
    bad = [one for one in every if lazy_texts.is_degenerate(one[1])]
    full = [
        _point(*one, table, _say_level(level)) for one in bad if _earns(*one, table) >= level.most
    ]
    return [
        ALIKE.make_row([table.look_up(row.example, text) for row, text in every], alike),
        BAD.make_row([table.look_up(row.example, text) for row, text in bad], full),
    ]


def list_plain(rows: Sequence[Row], case: RewardCase) -> list[tuple[Example, str]]:
    """Return a few answers to be scored twice."""
    plain = [(row.example, row.cut(next(iter(lazy_texts.write_off_topic(row))))) for row in rows]
    return plain + [(e, case.samples[e.id][0]) for e, _ in plain if case.samples.get(e.id)]
