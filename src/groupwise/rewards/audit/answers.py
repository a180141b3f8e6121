"""What is no right answer, where the right one is known, and what it earns.

A text that the metric calls invalid may earn nothing; any other that is not the reference must
earn less than it. Spellings of right and wrong answers say whether reward and metric count alike,
and habits (words, length, language) whether a wrong answer gains by one of them.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, zip_longest

from groupwise.core import Example
from groupwise.rewards.audit.rows import (
    TOLERANCE,
    AuditRow,
    Evidence,
    Pair,
    RewardCase,
    ScoreTable,
    read_tables,
)
from groupwise.rewards.reward import NearMisses

TAGGED = re.compile(r"(<(\w+)>).*?(</\2>)", re.DOTALL)
_PLACE = re.compile(r"\{([a-z_]+)\}")
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")
_QUANTITY = re.compile(r"([-−]?[\d.,/]+)(\s*)([a-zA-Z%°]{1,4}|[\u4e00-\u9fff]{1,2})")
_FULL_WIDTH = str.maketrans({":": "：", ".": "。", ",": "，", "(": "（", ")": "）", "-": "－"})
_COMMA_OF_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_AROUND = " .,;:!?。，；：！？'\"“”‘’()[]*`"
_SAMPLE_SIZE, _NUM_RIVALS, _NUM_WITH_HABITS, _NUM_WORDS = 16, 3, 4, 2000
_MAX_CONSTANTS, _MAX_BALANCED_EXAMPLES = 8, 200


class Item:
    """One example of the sample with its answers.

    ``label`` and ``rivals``, the other labels, stand in the spelling of answers: of a solution it
    is what the solution ends with. ``wrong`` are the answers with rivals that the metric calls
    wrong, and ``near`` texts that are nearly right, where the parser knows any.
    """

    def __init__(self, case: RewardCase, example: Example, labels: Sequence[str]) -> None:
        label = str(example.label)
        rivals = [name for name in labels if name != label]
        rivals = rivals if case.parser.labels else rivals[:_NUM_RIVALS]
        written = {name: case.write(example, name) for name in (label, *rivals)}
        spelled = {n: case.parser.parse(t, example).label or n for n, t in written.items()}
        parser: object = case.parser
        self.example = example
        self.label = spelled[label]
        self.reference = written[label]
        self.rivals = [spelled[name] for name in rivals]
        self.names = [self.label, *self.rivals]
        self.wrong = [
            written[name] for name in rivals if case.parser.measure(example, written[name]) != 1.0
        ]
        self.near = parser.write_near_misses(label) if isinstance(parser, NearMisses) else ()

    def replace_label(self, text: str) -> str:
        """Return the reference with ``text`` in the place of the label, where it stands last."""
        before, found, behind = self.reference.rpartition(self.label)
        return f"{before}{text}{behind}" if found else text


def draw_items(case: RewardCase) -> list[Item]:
    """Return a sample of labelled examples, taken from the labels in turn."""
    by_label: dict[str, list[Example]] = {}
    for example in case.examples:
        if example.label is not None:
            by_label.setdefault(example.label, []).append(example)
    turns = [one for turn in zip_longest(*by_label.values()) for one in turn if one is not None]
    labels = case.parser.labels or tuple(by_label)
    return [Item(case, example, labels) for example in turns[:_SAMPLE_SIZE]]


def fill_places(templates: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """Return texts with the values in their ``{places}``, but for those with others."""
    return [
        _PLACE.sub(lambda match: values[match[1]], template)
        for template in templates
        if values.keys() >= set(_PLACE.findall(template))
    ]


def write_texts(item: Item) -> dict[str, list[str]]:
    label, reference, tables = item.label, item.reference, read_tables()
    quoted = json.dumps(label, ensure_ascii=False)
    turns = [message.text for message in item.example.prompt]
    values = {"label": label, "reference": reference, "json": quoted}
    values |= {"prompt": turns[-1], "turns": "\n".join(turns)}
    values |= {"words": " ".join(["word"] * _NUM_WORDS), "signs": "字" * _NUM_WORDS}
    values |= {"labels": f"{label} " * (_NUM_WORDS // 4)}
    values |= {"wrong": item.wrong[0]} if item.wrong else {}
    texts, inside = (
        {rule: fill_places(listed, values) for rule, listed in tables[kind].items()}
        for kind in ("texts", "inside")
    )
    texts |= {"reference-below-maximum": [reference], "reference-unscored": [reference]}
    texts |= {"pays-wrong-answer": item.wrong, "pays-near-form": list(item.near)}
    texts["pays-broken-answer"] = [reference[: len(reference) * n // 4] for n in (1, 2, 3)]
    texts["pays-broken-answer"].append(reference[:-1])
    if reference != label:
        texts["pays-empty-format"] += [TAGGED.sub(form, reference) for form in (r"\1\3", r"\1 \3")]
        texts["pays-empty-format"].append(re.sub(r"([:：])[^.。:：\n]*", r"\1", reference))
        texts["pays-empty-format"].append(reference.replace(label, "").rstrip())
    inside |= {rule: [*inside.get(rule, ()), *more] for rule, more in _write_near(item).items()}
    for rule, listed in inside.items():
        texts.setdefault(rule, []).extend(map(item.replace_label, listed))
    names = item.names[: _NUM_RIVALS + 1]
    for listed in (names, names[::-1]) if item.rivals else ():
        shown = json.dumps(listed, ensure_ascii=False)
        texts["pays-several-answers"].append(reference.replace(quoted, shown))
    for wrong in item.wrong[:1]:
        texts["pays-injection"] += [f"{wrong}\n{one}" for one in tables["texts"]["pays-injection"]]
        if label not in wrong:
            texts["pays-mention"].append(wrong.replace("<think>", f"<think>{label} "))
    return texts


def _write_near(item: Item) -> dict[str, list[str]]:
    """Write what is nearly the label: other numbers, units and letters, several in one place."""
    label, numbers, units = item.label, list[str](), list[str]()
    found = list(_NUMBER.finditer(label))
    for match in {match.start(): match for match in (*found[:1], *found[-1:])}.values():
        plain = match.group().replace("−", "-")
        value, digits = float(plain), plain.lstrip("-")
        moved = [value + 1, value - 1, value + 0.5, *(value / by for by in (10, 100))]
        moved += [value * by for by in (1.02, 2, 10, 100, 1000)]
        signed = [digits] if plain.startswith("-") else [f"-{digits}", f"−{digits}", f"负{digits}"]
        spelled = [f"{plain}0", f"{plain}1", f"1{digits}", digits[::-1], digits.replace(".", "")]
        for number in (*(f"{one:.10g}" for one in moved), *signed, *spelled):
            numbers.append(label[: match.start()] + number + label[match.end() :])
    numbers += ["nan", "inf"] if found else []
    quantity = _QUANTITY.fullmatch(label)
    if quantity is not None:
        number, space, unit = quantity.groups()
        others = [other for other in read_tables()["units"][not unit.isascii()] if other != unit]
        units = [number, *(f"{number}{space}{other}" for other in others)]
    words = [label + label[-1:] * 2]
    if len(label) > 2:  # letters left out, swapped or changed in the middle, or the ends alone
        middle = len(label) // 2
        before, behind = label[:middle], label[middle + 1 :]
        words += [label[::-1], label[:3], label[-3:], before + behind]
        words.append(before[:-1] + label[middle] + before[-1] + behind)
        words.append(before + ("x" if label.isascii() else "某") + behind)
    several: list[str] = []
    if item.rivals:
        names = item.names[: _NUM_RIVALS + 1]
        joints = (", ", "", " / ", "或")
        several += [joint.join(some) for joint in joints for some in (names, names[::-1])]
    if found:
        several.append(f"{label}, {float(found[-1].group().replace('−', '-')) + 1:.10g}")
        several.append(", ".join([label, *map(str, range(-10, 101))]))
    return {"pays-near-number": numbers, "pays-other-unit": units, "pays-near-words": words} | {
        "pays-several-answers": several
    }


def _write_orders(item: Item) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield rules and texts with two labels in one line, or with every label, in both orders."""
    for joint in (" ", " or ", "/", "，", " and also "):
        for rival in item.rivals:
            both = (item.label + joint + rival, rival + joint + item.label)
            yield "pays-label-stuffing", both
    for wrong in item.wrong:
        both = (f"{item.reference} {wrong}", f"{wrong} {item.reference}")
        yield "pays-label-stuffing", both
    writers = [
        *(joint.join for joint in ("\n", ", ", "、")),
        partial(json.dumps, ensure_ascii=False),
    ]
    for write in writers if item.rivals else ():
        yield "pays-label-list", (write(item.names), write(item.names[::-1]))


def write_spellings(text: str) -> list[str]:
    """Return other ways to write an answer, each once and without the text itself."""
    found = [text.upper(), text.lower(), text.title(), text.capitalize(), text.swapcase()]
    tables = read_tables()
    found += [frame.format(text) for frame in (*tables["marks"], *tables["frames"])]
    found += [text.replace("-", joint) for joint in (" ", "", "_", " - ", "‑", "–")]
    found += [text.translate(_FULL_WIDTH), text.replace(" ", ""), text.replace(" ", "  ")]
    if re.fullmatch(r"-?\d+", text):
        found += [f"{text}.0", f"{text}.", f"+{text}", f"0{text}", f"{int(text):,}", f"${text}"]
    return [spelling for spelling in dict.fromkeys(found) if spelling != text]


class AnswerChecks:
    """Texts that are not the reference answers, held against what those earn."""

    def __init__(self, case: RewardCase, table: ScoreTable) -> None:
        self.case = case
        self.table = table
        self.measure = case.parser.measure
        self.items = draw_items(case)
        self.references = {item.example.id: item.reference for item in self.items}
        self.examples = [item.example for item in self.items]
        table.fill((i.example, text) for i in self.items for text in (i.reference, *i.wrong))
        # What the reference earns, and the most that a wrong answer in the right format does.
        self.full = {i.example.id: table.earn((i.example, i.reference)) for i in self.items}
        self.worst = {
            item.example.id: max((0.0, *(table.earn((item.example, text)) for text in item.wrong)))
            for item in self.items
        }

    def list_plain(self) -> list[Pair]:
        return [(i.example, text) for i in self.items for text in (i.reference, *i.wrong[:1])]

    def list_judged(self) -> list[tuple[Example, str, str]]:
        return [(item.example, item.reference, item.wrong[0]) for item in self.items if item.wrong]

    def list_rows(self) -> list[AuditRow]:
        tried: dict[str, list[tuple[Item, tuple[str, ...]]]] = {}
        for item in self.items:
            texts = write_texts(item)
            for text in _spell(item):
                texts.setdefault(self._sort_spelling(item, text), []).append(text)
            for rule, listed in texts.items():
                is_about_it = rule.startswith("reference-")
                kept = [t for t in dict.fromkeys(listed) if is_about_it or t != item.reference]
                tried.setdefault(rule, []).extend((item, (text,)) for text in kept)
            for rule, both in _write_orders(item):
                tried.setdefault(rule, []).append((item, both))
        every = [one for some in tried.values() for one in some]
        self.table.fill((item.example, text) for item, texts in every for text in texts)
        rows: list[AuditRow] = []
        for rule, (_, _, bar) in read_tables()["rules"].items():
            found = [self._find_faulty(bar, *one) for one in tried.get(rule, ())]
            pairs = [(item.example, t) for item, texts in tried.get(rule, ()) for t in texts]
            rows += [self.table.make_row(rule, pairs, list(filter(None, found)))] if pairs else []
        rows += [*self._check_merged(), self._check_constants(), *self._check_habits()]
        return rows

    def _find_faulty(self, bar: str, item: Item, texts: Sequence[str]) -> Evidence | None:
        """Return what shows a fault of a text, or of one in two orders; None if nothing does.

        Where the last (or the first) label counts, one order is a right answer, but the other is
        not. What the metric calls right here, and wrong if another label were the truth, is an
        answer: letters said twice are no hedge where answers are sets.
        """
        pairs = [(item.example, text) for text in texts]
        whys = [self._find_fault(bar, pair) for pair in pairs]
        if not any(whys):
            return None
        if len(texts) > 1:
            others = [replace(item.example, label=name) for name in item.rivals]
            measured = [self.measure(*pair) for pair in pairs]
            is_answer = any(
                right == 1.0 and not any(self.measure(other, text) for other in others)
                for right, text in zip(measured, texts, strict=True)
            )
            if is_answer or not (all(whys) or None in measured):
                return None
        return next(self.table.point(p, why) for p, why in zip(pairs, whys, strict=True) if why)

    def _sort_spelling(self, item: Item, text: str) -> str:
        """Return the rule that a spelling is tried for, by what the metric says of it."""
        measured = self.measure(item.example, text)
        if not measured:
            return "laxer-than-metric"
        if measured < 1.0 - TOLERANCE:
            return ""  # partly right: neither must it be credited, nor may it not be
        # That marks around the right answer earn nothing is no error: the plain answer earns all.
        marks = read_tables()["marks"]
        is_marked = text in {m.format(t) for m in marks for t in (item.label, item.reference)}
        return "stricter-on-marks" if is_marked else "stricter-than-metric"

    def _find_fault(self, bar: str, pair: Pair) -> str:
        """Return what is wrong with what a text earned; empty if nothing is."""
        value, full = self.table.earn(pair), self.full[pair[0].id]
        worst = self.worst[pair[0].id]
        # A text is credited if it earns more than a wrong answer; where none is, other rows say so.
        credits_nothing = full <= worst + TOLERANCE
        if bar == "a score":
            return "it has no score" if full < 0 else ""
        if bar == "all":
            return "it is the right answer" if 0 <= full < 1.0 - TOLERANCE else ""
        if bar.startswith("credit"):
            is_missed = not credits_nothing and 0 <= value <= worst + TOLERANCE
            return "the metric calls it right" if is_missed else ""
        if value <= TOLERANCE or (bar != "nothing" and not pair[1].strip()):
            return ""
        if bar == "nothing":
            return "it must earn 0"
        measured = self.measure(*pair)
        if bar in ("wrong", "as measured"):
            share = measured or 0.0  # the metric's share of the way from wrong to right
            if credits_nothing or value <= worst + share * (full - worst) + TOLERANCE:
                return ""
            if bar == "wrong":
                return "the metric calls it " + ("invalid" if measured is None else "wrong")
            return f"the metric gives it {share:.3g}, and a wrong answer earns {worst:.3g}"
        if measured is None:
            return "the metric calls it invalid, so it must earn 0"
        if bar == "less unless right" and measured >= 1.0 - TOLERANCE:
            return ""
        if 0 <= full < value + TOLERANCE:
            return f"the reference earns no more ({full:.3g})"
        if bar == "no more than wrong" and value > worst + TOLERANCE:
            return f"a wrong answer earns {worst:.3g} without it"
        return ""

    def _check_merged(self) -> list[AuditRow]:
        """Return a row about labels of all examples that differ in marks alone, if there are any.

        Case, space, commas of thousands and marks around a label never make another one.
        """
        alike: dict[str, dict[str, Example]] = {}
        for example in self.case.examples:
            plain = unicodedata.normalize("NFKC", example.label or "").casefold()
            spelled = " ".join(_COMMA_OF_THOUSANDS.sub("", plain).strip(_AROUND).split())
            group = alike.setdefault("".join(filter(str.isalnum, plain)), {})
            group.setdefault(spelled, example)
        pairs = [
            (example, self.case.write(other, str(other.label)))
            for group in alike.values()
            for example, other in pairwise(group.values())
        ]
        failures = [
            self.table.point(pair, f"the metric takes it for the label {pair[0].label!r}")
            for pair in pairs
            if self.measure(*pair) == 1.0
        ]
        return [self.table.make_row("labels-count-as-one", pairs, failures)] if pairs else []

    def _check_constants(self) -> AuditRow:
        """Give every example the same label, each in turn; the best may earn the majority rate."""
        case, earn = self.case, self.table.earn
        examples = [e for e in case.examples if e.label is not None][:_MAX_BALANCED_EXAMPLES]
        counts = Counter(str(example.label) for example in examples)
        names = case.parser.labels or [name for name, _ in counts.most_common(_MAX_CONSTANTS)]
        answers = {name: [(e, case.write(e, name)) for e in examples] for name in names}
        references = [(e, case.write(e, str(e.label))) for e in examples]
        every = [pair for pairs in answers.values() for pair in pairs]
        self.table.fill([*references, *every])
        best = max(sum(self.measure(*p) == 1.0 for p in pairs) for pairs in answers.values())
        failures: list[Evidence] = []
        for name, pairs in answers.items():
            paid = [
                pair
                for pair, right in zip(pairs, references, strict=True)
                if earn(pair) > 0 and 0 <= earn(right) < earn(pair) + TOLERANCE
            ]
            if len(paid) > best:
                shown = next((pair for pair in paid if self.measure(*pair) != 1.0), paid[0])
                why = (
                    f"as a constant, {name!r} is paid in full on {len(paid)} of {len(examples)} "
                    f"examples; the majority rate is {best} of {len(examples)}"
                )
                failures.append(self.table.point(shown, why))
        return self.table.make_row("constant-beats-majority", every, failures)

    def _check_habits(self) -> list[AuditRow]:
        """Say which words, length or language a wrong answer gains by, under what it keys on."""
        tables, tried = read_tables(), list[Pair]()
        failures: dict[str, list[Evidence]] = {"keyword": [], "length": [], "language": []}

        def find_best(pairs: Sequence[Pair]) -> tuple[float, str]:
            self.table.fill(pairs)
            worth = [(self.table.earn(pair), pair[1]) for pair in pairs if not self.measure(*pair)]
            return max([(0.0, ""), *worth])

        for item in [item for item in self.items if item.wrong][:_NUM_WITH_HABITS]:
            example, wrong = item.example, item.wrong[0]

            def place(word: str, item: Item = item, wrong: str = wrong) -> tuple[float, str]:
                """Put a word before the answer, into its thinking if it has one, and alone."""
                texts = [f"{word}\n{wrong}", f"{word} {wrong}", word]
                texts += [wrong.replace("<think>", f"<think>{word} ", 1)] * ("<think>" in wrong)
                tried.extend((item.example, text) for text in texts)
                return find_best(tried[-len(texts) :])

            plainly: list[tuple[float, str]] = []
            for language, plain in tables["plain"].items():  # few plain words, and many
                plainly.append(max(map(place, plain)))
                least = plainly[-1][0]
                for word in tables["words"][language]:
                    value, text = place(word)
                    if value > least + TOLERANCE:
                        why = f"{word!r} pays: another word in its place earns {least:.3g}"
                        failures["keyword"].append(self.table.point((example, text), why))
                value, text = max(place(" ".join([plain[1]] * n)) for n in (8, 60))
                if value > least + TOLERANCE:
                    why = f"length pays: with few words it earns {least:.3g}"
                    failures["length"].append(self.table.point((example, text), why))
            (low, _), (high, text) = sorted(plainly)
            if high > max(low, find_best([(example, wrong)])[0]) + TOLERANCE:
                why = f"the language pays: in the other one it earns {low:.3g}"
                failures["language"].append(self.table.point((example, text), why))
        return [self.table.make_row(f"pays-{kind}", tried, them) for kind, them in failures.items()]


def _spell(item: Item) -> list[str]:
    """Return the spellings of the label, of the reference and of one wrong answer."""
    thoughts = [match.group() for match in TAGGED.finditer(item.reference)][:-1]
    sources = dict.fromkeys((item.reference, item.label, *item.wrong[:1]))
    spelled = [text for source in sources for text in write_spellings(source)]
    if thoughts:
        inside = [item.replace_label(text) for text in write_spellings(item.label)]
        spelled = [*inside, *(t for t in spelled if all(thought in t for thought in thoughts))]
    return list(dict.fromkeys(spelled))
