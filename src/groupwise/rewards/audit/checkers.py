"""What pays of rewards that only check: no reference answer says what is right.

What is no answer to anything may earn something, but not the most that there is, or a policy ends
there. Most rewards are graded, and every checker can be met without sense; so a run is refused only
where what cannot be an answer (nothing, the prompt, garbage) earns the most on most rows. All else
is a warning with the answer that earned it, and information where a part of the reward, such as
fluency, cannot be counted before the run. With the base's own answers it is known how much good
ones earn.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any, cast

from groupwise.core import Example
from groupwise.rewards.audit.answers import fill_places
from groupwise.rewards.audit.rows import (
    BYTES_PER_TOKEN,
    AuditRow,
    Evidence,
    Pair,
    RewardCase,
    ScoreTable,
    read_tables,
)

_FULL, _LEAST_KNOWN = 0.99, 0.75
_MOST, _SOME = 0.5, 0.25
_GAIN = 1e-3
_SAMPLE_SIZE, _NUM_FIRST = 16, 6
_CLOSE = 0.5
"""A text that earns less than this share of the most on the first rows is not tried on others."""
_MOST_TOKENS = 2500
_READS_LIKE_LANGUAGE = "pays-talk-of-the-task"
"""What reads answers with a model may well like such texts."""
_MAX_CONSTANTS, _MAX_COMPOSED = 8, 5
_MAX_VALUES, _MAX_KEYS, _MAX_NUMBERS = 6, 12, 3
_NUMBER_WORDS = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_ASKED_NUMBER = re.compile(rf"\b(?:\d{{1,3}}|{'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
_QUOTED = re.compile("[\"'`“”‘’「」]([^\"'`“”‘’「」\n]{1,40})[\"'`“”‘’「」]")
_EMPTY_VALUES: tuple[Any, ...] = ("", "x", 0, 1, None, [], {}, True, ["x"])


class Row:
    """An example, and what texts that are fitted to it are made of.

    ``values`` is what its columns hold, as texts, lists one by one; ``numbers`` are whole numbers
    from 1 to 200 that its columns and its prompt name; ``keys`` are names that an object may be
    asked to have, by where they stand.
    """

    def __init__(self, example: Example, most_bytes: int) -> None:
        self.example = example
        self.most_bytes = most_bytes
        self.prompt = example.prompt[-1].text
        self.language = "zh" if re.search("[\u4e00-\u9fff]", self.prompt) else "en"
        self.prose = read_tables()["prose"][self.language]
        self.plain = self.cut(re.split("(?<=[.。])", self.prose)[0])
        columns = {key: value for key, value in example.fields.items() if not key.startswith("_")}
        texts = list(dict.fromkeys(text for v in columns.values() for text in _list_texts(v)))
        self.values = texts[:_MAX_VALUES]
        self.quoted = _QUOTED.findall(self.prompt)
        numbers = [int(text) for text in texts if text.isdecimal()]
        for text in map(str.lower, _ASKED_NUMBER.findall(self.prompt)):
            is_word = text in _NUMBER_WORDS
            numbers.append(_NUMBER_WORDS.index(text) + 2 if is_word else int(text))
        self.numbers = [n for n in dict.fromkeys(numbers) if 1 <= n <= 200][:_MAX_NUMBERS]
        named = [[v if n is None else n for n, v in _list_parts(c)] for c in columns.values()]
        keys = [
            tuple(name for name in names if isinstance(name, str))[:_MAX_KEYS]
            for names in (*named, dict.fromkeys(self.quoted), columns)
        ]
        self.keys = list(dict.fromkeys(filter(None, keys)))

    def cut(self, text: str) -> str:
        """Return as much of a text as a policy can say."""
        return text.encode()[: self.most_bytes].decode(errors="ignore")

    def repeat(self, unit: str) -> str:
        return self.cut(unit * (self.most_bytes // max(1, len(unit.encode())) + 1)).strip()


def _list_parts(value: Any) -> list[tuple[Any, Any]]:
    """Return names and values of an object, and no names and values of a list."""
    if isinstance(value, dict):
        return list(cast("dict[Any, Any]", value).items())
    return [(None, inner) for inner in cast("list[Any]", value)] if isinstance(value, list) else []


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        yield from (t for part in _list_parts(value) for inner in part for t in _list_texts(inner))
    elif value is not None and str(value).strip():
        yield str(value).strip()[:600]


def write_texts(row: Row) -> dict[str, list[str]]:
    """Return what is tried for a row, by its rule; in the same order for every row."""
    tables, prose = read_tables(), row.prose
    values = {"prompt": row.prompt, "turns": "\n".join(turn.text for turn in row.example.prompt)}
    values["numbers"] = " ".join(map(str, range(1000)))
    asked = [text for text in row.values if text in row.prompt]
    quoted = row.quoted[:_MAX_VALUES] or asked
    about = [text for text in asked if text not in quoted] or asked
    if quoted and about:
        joint, marks = (" and ", '"{}"') if row.language == "en" else ("和", "“{}”")
        named = {"named": joint.join(map(marks.format, quoted)), "about": joint.join(about)}
        named["first"] = about[0]
        values |= {f"{row.language}_{name}": text for name, text in named.items()}
    texts = {
        rule: fill_places(dict.fromkeys((*tables["texts"].get(rule, ()), *listed)), values)
        for rule, listed in tables["lazy"].items()
    }
    units = ("word ", f"{prose} ", "asdf qwer zxcv ", "very, very good. ")
    texts["pays-long-output"] = list(map(row.repeat, units))
    texts["pays-off-topic"] = [prose[: match.end()] for match in re.finditer("[.。]", prose)]
    texts["pays-off-topic"].append(re.split("[,，]", prose)[0] + prose[-1])
    others = [text for name, text in tables["prose"].items() if name != row.language]
    firsts = [re.split("[.。]", text)[0] for text in others]
    texts["pays-language"] = [*tables["elsewhere"], *others, *firsts]
    # The words of the row's columns: all, all but one, and each alone.
    words = row.values
    lists = [words, words[::-1], *([word] for word in words)] if words else []
    if len(words) > 2:
        lists += [words[:place] + words[place + 1 :] for place in range(len(words))]
    stuffed = texts["pays-stuffing"] = list[str]()
    for several in lists:
        listed = " ".join(several)
        values = {"listed": listed, "capital": f"{listed[:1].upper()}{listed[1:]}"}
        values["json"] = json.dumps(several, ensure_ascii=False)
        stuffed += fill_places(tables["stuffed"], values)
    stuffed += row.quoted[:_MAX_VALUES]
    stuffed += re.findall(r"\d+(?:\.\d+)?", row.prompt)[:_MAX_VALUES]
    stuffed.append(row.repeat(f"{' '.join(words)} "))
    # As many words, signs, lines or items as the row has a number for.
    joint = " " if row.language == "en" else ""
    fitted = texts["pays-fitted-form"] = list[str]()
    for number in row.numbers:
        signs: Sequence[str] = prose.split() if joint else prose
        first = joint.join(islice(cycle(signs), number))
        first = first.rstrip(",.，。")
        fitted += [first, f"{first}.", "Word" + " word" * (number - 1) + "."]
        fitted += [between.join([word] * number) for word, between in tables["fitted"]]
        fitted.append("\n".join(f"{place}. word" for place in range(1, number + 1)))
        fitted.append(json.dumps(["word"] * number))
    texts["pays-filled-format"] = [
        text
        for keys in row.keys
        for text in (
            *(json.dumps(dict.fromkeys(keys, v), ensure_ascii=False) for v in _EMPTY_VALUES),
            json.dumps(keys, ensure_ascii=False),
            "\n".join(f"{key}:" for key in keys),
            "".join(f"<{key}></{key}>" for key in keys),
        )
    ]
    return {rule: [row.cut(text) for text in listed] for rule, listed in texts.items()}


class CheckerChecks:
    """Texts that do no task, held against the most that can be earned."""

    def __init__(self, case: RewardCase, table: ScoreTable) -> None:
        self.case = case
        self.table = table
        self.references: dict[str, str] = {}
        examples = sorted(case.examples, key=lambda example: example.id not in case.samples)
        most_bytes = BYTES_PER_TOKEN * (case.max_new_tokens or _MOST_TOKENS)
        self.rows = [Row(example, most_bytes) for example in examples[:_SAMPLE_SIZE]]
        self.examples = [row.example for row in self.rows]
        self.first = self.rows[:_NUM_FIRST]
        self.samples = [(e, text) for e in self.examples for text in case.samples.get(e.id, ())]
        table.fill(self.samples)
        best = max(map(table.earn, self.samples), default=0.0)
        # A base that earns next to nothing shows no good answers; without any, 1 is the most.
        self.most = min(_FULL, max(best, _LEAST_KNOWN)) if best > 0 else _FULL
        self.why = "more can hardly be earned"
        if best >= _LEAST_KNOWN:
            self.why = f"the base's best answers earn no more than {self.most:.3g}"
        # Of each row the best of the base's answers, if it is good.
        self.good: list[tuple[Row, str]] = []
        for row in self.rows:
            own = [pair for pair in self.samples if pair[0] is row.example]
            pair = max(own, key=table.earn, default=(row.example, ""))
            if own and table.earn(pair) >= _LEAST_KNOWN:
                self.good.append((row, pair[1]))

    def list_plain(self) -> list[Pair]:
        firsts = {example.id: (example, text) for example, text in reversed(self.samples)}
        return [*((row.example, row.plain) for row in self.rows), *firsts.values()]

    def list_judged(self) -> list[tuple[Example, str, str]]:
        plain = "I have thought about it, and this is all that I can say."
        return [(example, "", plain) for example in self.examples]

    def list_rows(self) -> list[AuditRow]:
        kinds: dict[str, dict[int, list[Pair]]] = {}
        for row in self.rows:
            for rule, texts in write_texts(row).items():
                for place, text in enumerate(texts):
                    kinds.setdefault(rule, {}).setdefault(place, []).append((row.example, text))
        # Every text is tried on the first rows, and on the others what came close there.
        first = {row.example.id for row in self.first}
        every = [pair for kind in kinds.values() for pairs in kind.values() for pair in pairs]
        self.table.fill(pair for pair in every if pair[0].id in first)
        for kind in kinds.values():
            for place, pairs in kind.items():
                firsts = [pair for pair in pairs if pair[0].id in first]
                if not any(self.table.earn(pair) >= _CLOSE for pair in firsts):
                    kind[place] = firsts
        self.table.fill(p for kind in kinds.values() for pairs in kind.values() for p in pairs)
        rules = [rule for rule in read_tables()["checks"] if any(kinds.get(rule, {}).values())]
        rows = [self._judge(rule, list(kinds[rule].values())) for rule in rules]
        rows += [self._check_constants(), self._compose(), *self._check_habits()]
        if self.case.samples:
            is_alike = len(set(map(self.table.earn, self.samples))) == 1
            why = f"all {len(self.samples)} earn this"
            alike = [self.table.point(pair, why) for pair in self.samples[:1] if is_alike]
            rows.append(self._make_row("samples-earn-the-same", self.samples, alike))
        return rows

    def _judge(self, rule: str, tried: Sequence[Sequence[Pair]]) -> AuditRow:
        """Return the row of a kind of text; its level follows from which texts earn the most."""
        refused = read_tables()["checks"][rule][0]
        num_most, num_rows = _MOST * len(self.rows), len(self.rows)

        def find_paid(least: float) -> list[list[Pair]]:
            """Return where each text earns so much, the text that does most often first."""
            paid = [[pair for pair in pairs if self.table.earn(pair) >= least] for pairs in tried]
            return sorted(paid, key=len, reverse=True)

        full = find_paid(self.most)
        num_full = sum(len(pairs) > num_most for pairs in full)
        is_error = num_full > {"any": 0, "most": _MOST * len(full), "never": len(full)}[refused]
        shown = {pair[0].id: pair for pairs in reversed(full) for pair in reversed(pairs)}
        why = self.why
        if not is_error and len(shown) <= _SOME * num_rows:
            shown = {}
            if refused == "any":  # of nothing, half of the most is too much
                half, *_ = find_paid(self.most / _FULL / 2 + _GAIN)
                shown = {pair[0].id: pair for pair in half if len(half) > num_most}
                why = "that is more than half of the most"
        failures = [self.table.point(pair, why) for pair in shown.values()]
        every = [pair for pairs in tried for pair in pairs]
        row = self._make_row(rule, every, failures, num_tried=num_rows)
        if is_error:
            return replace(row, level="error")
        if self.case.uncounted and rule != _READS_LIKE_LANGUAGE:
            parts = ", ".join(self.case.uncounted)
            return replace(row, level="info", must=f"{row.must}, not counting {parts}")
        return row

    def _make_row(
        self,
        rule: str,
        pairs: Sequence[Pair],
        failures: Sequence[Evidence],
        *,
        num_tried: int | None = None,
        is_most: bool = False,
    ) -> AuditRow:
        """Return a row; with ``is_most``, only what most of what was tried shows is a fault."""
        num_tried = len(pairs) if num_tried is None else num_tried
        if is_most and len(failures) <= _MOST * num_tried:
            failures = []
        return self.table.make_row(rule, pairs, failures, num_tried=num_tried, kind="checks")

    def _check_constants(self) -> AuditRow:
        """Give all rows the best answers to other rows: the base's, or the best of all tried."""
        earn, best = self.table.earn, dict[str, float]()
        known = [(row.example, text) for row, text in self.good]
        for pair in known or [pair for pair, _ in self.table.rows.values()]:
            best[pair[1]] = max(best.get(pair[1], 0.0), earn(pair))
        full = [text for text, value in best.items() if value >= self.most and text.strip()]
        constants = full[:: max(1, len(full) // _MAX_CONSTANTS)][:_MAX_CONSTANTS]
        every = [(example, text) for text in constants for example in self.examples]
        self.table.fill(every)
        reached = [
            [pair for pair in every if pair[1] == text and earn(pair) >= self.most]
            for text in constants
        ]
        why = "the same text earns as much on other rows"
        most = max(reached, key=len, default=list[Pair]())
        failures = [self.table.point(pair, why) for pair in most]
        num_tried = len(self.rows)
        return self._make_row("pays-constant", every, failures, num_tried=num_tried, is_most=True)

    def _compose(self) -> AuditRow:
        """Put stock phrases before a plain sentence while one of them earns more on most rows."""
        tables = read_tables()
        phrases = (*tables["stock"], *tables["lazy"]["pays-praise"])
        text = plain = self.rows[0].plain
        for _ in range(_MAX_COMPOSED):
            tried = {
                text: [(row.example, row.cut(text)) for row in self.first]
                for text in (text, *(f"{phrase} {text}" for phrase in phrases))
            }
            self.table.fill(pair for pairs in tried.values() for pair in pairs)
            sums = {text: sum(map(self.table.earn, pairs)) for text, pairs in tried.items()}
            best = max(sums, key=lambda one: sums[one])
            if sums[best] <= sums[text] + _GAIN:
                break
            text = best
        pairs = [(row.example, row.cut(text)) for row in self.rows]
        self.table.fill(pairs)
        paid = [pair for pair in pairs if text != plain and self.table.earn(pair) >= self.most]
        failures = [self.table.point(pair, self.why) for pair in paid]
        return self._make_row("pays-stock-phrases", pairs, failures, is_most=True)

    def _check_habits(self) -> list[AuditRow]:
        """Say of a plain text, and of a good one, whether length or stock words alone earn more."""
        tables, table = read_tables(), self.table
        bases = [(row, row.plain) for row in self.first]
        bases += [(row, row.cut(f"{' '.join(row.values)}.")) for row in self.first if row.values]
        bases += [(row, text) for row, text in self.good if row in self.first]
        # What gains, by the change and the example.
        found: dict[str, dict[str, Evidence]] = {"pays-length": {}}
        for row, text in bases:
            base, long = (row.example, text), (row.example, row.repeat(f"{text} "))
            neutral = (row.example, row.cut(f"{text} {tables['neutral'][row.language]}"))
            words = {word: (row.example, row.cut(f"{text} {word}")) for word in tables["stock"]}
            table.fill([base, long, neutral, *words.values()])
            plain = max(table.earn(base), 0.0)
            if table.earn(long) > plain + _GAIN:
                shown = table.point(long, f"said once it earns {plain:.3g}")
                found["pays-length"].setdefault(row.example.id, shown)
            plain = max(plain, table.earn(neutral))
            for word, pair in words.items():
                if table.earn(pair) > plain + _GAIN:
                    shown = table.point(pair, f"with another word it earns {plain:.3g}")
                    found.setdefault(word, {}).setdefault(row.example.id, shown)
        lengths = found.pop("pays-length")
        best = max(found.values(), key=len, default=dict[str, Evidence]())
        return [
            self._make_row(rule, [], list(gains.values()), num_tried=len(self.first), is_most=True)
            for rule, gains in (("pays-length", lengths), ("pays-keyword", best))
        ]
