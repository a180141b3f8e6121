"""What is no right answer, where the right one is known, and what it earns.

A text that the metric calls invalid may earn nothing; any other that is not the reference must
earn less than it. Spellings of right and wrong answers say whether reward and metric count alike,
and habits (words, length, language) whether a wrong answer gains by one of them.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, zip_longest

from groupwise.core import Example
from groupwise.rewards.audit.case import RewardCase
from groupwise.rewards.audit.rows import (
    TOLERANCE,
    AuditRow,
    Evidence,
    Pair,
    ScoreTable,
    read_tables,
)
from groupwise.rewards.reward import NearMisses

TAGGED = re.compile(r"(<(\w+)>).*?(</\2>)", re.DOTALL)
_PLACE = re.compile(r"\{([a-z_]+)\}")
_KEYED = re.compile(r"([:：])[^.。:：\n]*")
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")
_QUANTITY = re.compile(r"([-−]?[\d.,/]+)(\s*)([a-zA-Z%°]{1,4}|[\u4e00-\u9fff]{1,2})")
_FULL_WIDTH = str.maketrans({":": "：", ".": "。", ",": "，", "(": "（", ")": "）", "-": "－"})
_COMMA_OF_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_AROUND = " .,;:!?。，；：！？'\"“”‘’()[]*`"
_SAMPLE_SIZE, _NUM_RIVALS, _NUM_WITH_HABITS = 16, 3, 4
_NUM_WORDS = 2000
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
    """Return what is tried for one example, by the rule that it is tried for."""
    label, reference = item.label, item.reference
    quoted = json.dumps(label, ensure_ascii=False)
    turns = [message.text for message in item.example.prompt]
    values = {"label": label, "reference": reference, "json": quoted}
    values |= {"prompt": turns[-1], "turns": "\n".join(turns)}
    values |= {"words": " ".join(["word"] * _NUM_WORDS), "signs": "字" * _NUM_WORDS}
    values |= {"labels": f"{label} " * (_NUM_WORDS // 4)}
    values |= {"wrong": item.wrong[0]} if item.wrong else {}
    tables = read_tables()
    texts = {rule: fill_places(listed, values) for rule, listed in tables["texts"].items()}
    texts["pays-wrong-answer"] = item.wrong
    texts["pays-near-form"] = list(item.near)
    texts["pays-broken-answer"] = [reference[: len(reference) * n // 4] for n in (1, 2, 3)]
    texts["pays-broken-answer"].append(reference[:-1])
    if reference != label:
        forms = (r"\1\3", r"\1 \3")
        texts["pays-empty-format"] += [TAGGED.sub(form, reference) for form in forms]
        texts["pays-empty-format"].append(_KEYED.sub(r"\1", reference))
        texts["pays-empty-format"].append(reference.replace(label, "").rstrip())
    inside = {rule: fill_places(listed, values) for rule, listed in tables["inside"].items()}
    inside["pays-near-number"] = list(_write_near_numbers(label))
    inside["pays-other-unit"] = list(_write_other_units(label))
    inside["pays-near-words"] += _write_near_words(label)
    inside["pays-several-answers"] = list(_write_several(item))
    for rule, listed in inside.items():
        texts.setdefault(rule, []).extend(map(item.replace_label, listed))
    names = [label, *item.rivals[:_NUM_RIVALS]]
    for listed in (names, names[::-1]) if item.rivals else ():
        shown = json.dumps(listed, ensure_ascii=False)
        texts["pays-several-answers"].append(reference.replace(quoted, shown))
    for wrong in item.wrong[:1]:
        texts["pays-injection"] += [f"{wrong}\n{one}" for one in tables["texts"]["pays-injection"]]
        if label not in wrong:
            texts["pays-mention"].append(wrong.replace("<think>", f"<think>{label} "))
    return texts


def _write_near_numbers(label: str) -> Iterator[str]:
    """Write the first and the last number of a label moved by one, tenfold, of other sign, cut."""
    found = list(_NUMBER.finditer(label))
    for match in {match.start(): match for match in (*found[:1], *found[-1:])}.values():
        plain = match.group().replace("−", "-")
        value, digits = float(plain), plain.lstrip("-")
        moved = [value + 1, value - 1, value + 0.5, *(value / by for by in (10, 100))]
        moved += [value * by for by in (1.02, 2, 10, 100, 1000)]
        signed = [digits] if plain.startswith("-") else [f"-{digits}", f"−{digits}", f"负{digits}"]
        spelled = [f"{plain}0", f"{plain}1", f"1{digits}", digits[::-1], digits.replace(".", "")]
        for number in (*(f"{one:.10g}" for one in moved), *signed, *spelled):
            yield label[: match.start()] + number + label[match.end() :]
    yield from ("nan", "inf") if found else ()


def _write_other_units(label: str) -> Iterator[str]:
    match = _QUANTITY.fullmatch(label)
    if match is not None:
        number, space, unit = match.groups()
        yield number
        for other in read_tables()["units"][not unit.isascii()]:
            if other != unit:
                yield f"{number}{space}{other}"


def _write_near_words(label: str) -> Iterator[str]:
    """Write a label with letters doubled, swapped, changed, cut or left out."""
    middle = len(label) // 2
    yield label + label[-1:] * 2
    if len(label) > 2:
        before, behind = label[:middle], label[middle + 1 :]
        yield from (label[::-1], label[:3], label[-3:], before + behind)
        yield before[:-1] + label[middle] + before[-1] + behind
        yield before + ("x" if label.isascii() else "某") + behind


def _write_several(item: Item) -> Iterator[str]:
    """Write several answers in the place of one, also as ranges."""
    names = [item.label, *item.rivals[:_NUM_RIVALS]]
    if len(names) > 1:
        for joint in (", ", "", " / ", "或"):
            yield from (joint.join(names), joint.join(names[::-1]))
    found = _NUMBER.findall(item.label)
    if found:
        yield f"{item.label}, {float(found[-1].replace('−', '-')) + 1:.10g}"
        yield ", ".join([item.label, *map(str, range(-10, 101))])


def _pair_labels(item: Item) -> list[tuple[str, str]]:
    """Return texts with two labels in one line, in both orders.

    Where the last (or the first) label counts, one order is a right answer, but the other is not.
    """
    joints = (" ", " or ", "/", "，", " and also ")
    pairs = [(item.label, joint, rival) for rival in item.rivals for joint in joints]
    pairs += [(item.reference, " ", wrong) for wrong in item.wrong]
    return [(one + joint + other, other + joint + one) for one, joint, other in pairs]


def _pair_lists(item: Item) -> list[tuple[str, str]]:
    """Return lists of every label, in both orders."""
    names = [item.label, *item.rivals]
    writers: list[Callable[[Sequence[str]], str]] = [
        *(joint.join for joint in ("\n", ", ", "、")),
        lambda names: "\n".join(f"{n}. {name}" for n, name in enumerate(names, start=1)),
        lambda names: json.dumps(names, ensure_ascii=False),
    ]
    return [(write(names), write(names[::-1])) for write in writers if item.rivals]


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
    """Texts that are not the reference answers of a sample, held against what those earn."""

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
        """Return a few answers to be scored in other ways."""
        return [(i.example, text) for i in self.items for text in (i.reference, *i.wrong[:1])]

    def list_judged(self) -> list[tuple[Example, str, str]]:
        """Return examples with a right and a wrong answer, for the judge to err about."""
        return [(item.example, item.reference, item.wrong[0]) for item in self.items if item.wrong]

    def list_rows(self) -> list[AuditRow]:
        """Return the rows of all that is tried."""
        rows = [*self._check_references(), *self._probe(), *self._probe_orders()]
        rows += [*self._compare_spellings(), *self._check_merged(), self._check_constants()]
        return [*rows, *self._check_habits()]

    def _check_references(self) -> list[AuditRow]:
        found: dict[str, list[Evidence]] = {"below-maximum": [], "unscored": []}
        pairs = [(item.example, item.reference) for item in self.items]
        for pair in pairs:
            if self.full[pair[0].id] < 0:
                found["unscored"].append(self.table.point(pair, "it has no score"))
            elif self.full[pair[0].id] < 1.0 - TOLERANCE:
                found["below-maximum"].append(self.table.point(pair, "it is the right answer"))
        return [
            self.table.make_row(f"reference-{rule}", pairs, them) for rule, them in found.items()
        ]

    def _probe(self) -> list[AuditRow]:
        """Return the rows of every kind of text that these answers have a place for."""
        tried: dict[str, list[Pair]] = {}
        for item in self.items:
            for rule, texts in write_texts(item).items():
                others = [text for text in dict.fromkeys(texts) if text != item.reference]
                tried.setdefault(rule, []).extend((item.example, text) for text in others)
        self.table.fill(pair for pairs in tried.values() for pair in pairs)
        rows: list[AuditRow] = []
        for rule, (_, _, bar) in read_tables()["rules"].items():
            pairs = tried.get(rule, [])
            failures = [
                self.table.point(pair, why)
                for pair in pairs
                if (why := self._find_fault(bar, pair))
            ]
            rows += [self.table.make_row(rule, pairs, failures)] if pairs else []
        return rows

    def _find_fault(self, bar: str, pair: Pair) -> str:
        """Return what is wrong with what a text earned; empty if nothing is."""
        value, full = self.table.earn(pair), self.full[pair[0].id]
        worst = self.worst[pair[0].id]
        if value <= TOLERANCE or (bar != "nothing" and not pair[1].strip()):
            return ""
        if bar == "nothing":
            return "it must earn 0"
        measured = self.measure(*pair)
        if bar == "as measured":
            share = measured or 0.0  # the metric's share of the way from wrong to right
            if full <= worst + TOLERANCE:
                return ""  # this reward credits nothing; other rows say so
            if value <= worst + share * (full - worst) + TOLERANCE:
                return ""
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

    def _probe_orders(self) -> list[AuditRow]:
        """Return the rows of texts with several labels; one of two orders must earn less."""
        rows: list[AuditRow] = []
        for rule, write in (("label-stuffing", _pair_labels), ("label-list", _pair_lists)):
            written = [(item, texts) for item in self.items for texts in write(item)]
            self.table.fill((item.example, text) for item, texts in written for text in texts)
            failures: list[Evidence] = []
            for item, texts in written:
                pairs = [(item.example, text) for text in texts]
                whys = [self._find_fault("less", pair) for pair in pairs]
                is_invalid = any(self.measure(*pair) is None for pair in pairs)
                is_hedge = not any(self._is_answer(item, text) for text in texts)
                if is_hedge and (all(whys) or (is_invalid and any(whys))):
                    why = next(filter(None, whys))
                    failures.append(self.table.point(pairs[whys.index(why)], why))
            tried = [(item.example, text) for item, texts in written for text in texts]
            rows.append(self.table.make_row(f"pays-{rule}", tried, failures))
        return rows

    def _is_answer(self, item: Item, text: str) -> bool:
        """Whether the metric calls a text right here, and wrong if another label were the truth.

        Letters said twice are no hedge where answers are sets; what is right for all labels is one.
        """
        return self.measure(item.example, text) == 1.0 and not any(
            self.measure(replace(item.example, label=name), text) for name in item.rivals
        )

    def _compare_spellings(self) -> list[AuditRow]:
        """Return three rows: where the reward is stricter than the metric, and where it is laxer.

        A spelling is credited if it earns more than a wrong answer in the right format. That marks
        around the right answer earn nothing is no error: the plain answer earns all.
        """
        tried: dict[bool, list[Pair]] = {True: [], False: []}
        found: dict[str, list[Evidence]] = {
            "stricter-than-metric": [],
            "stricter-on-marks": [],
            "laxer-than-metric": [],
        }
        spelled = [(item, text) for item in self.items for text in _spell(item)]
        self.table.fill((item.example, text) for item, text in spelled)
        for item, text in spelled:
            pair, worst = (item.example, text), self.worst[item.example.id]
            measured, value = self.measure(*pair), self.table.earn(pair)
            if self.full[item.example.id] <= worst + TOLERANCE or value < 0:
                continue  # this reward credits nothing; other rows say so
            if measured and measured < 1.0 - TOLERANCE:
                continue
            tried[bool(measured)].append(pair)
            is_credited = value > worst + TOLERANCE
            if measured and not is_credited:
                sources = (item.label, item.reference)
                marked = {mark.format(one) for mark in read_tables()["marks"] for one in sources}
                rule = "stricter-on-marks" if text in marked else "stricter-than-metric"
                found[rule].append(self.table.point(pair, "the metric calls it right"))
            elif not measured and is_credited:
                why = "the metric calls it " + ("invalid" if measured is None else "wrong")
                found["laxer-than-metric"].append(self.table.point(pair, why))
        return [
            self.table.make_row(rule, tried[rule != "laxer-than-metric"], failures)
            for rule, failures in found.items()
        ]

    def _check_merged(self) -> list[AuditRow]:
        """Return a row about labels that differ in marks alone, if there are any.

        Every label is looked at, not only those of the sample. Case, space, commas of thousands
        and marks around a label never make another one.
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
        """Give every example the same label, for each label in turn.

        The bound is the majority rate, taken with the metric: the share of examples for which the
        best constant is right.
        """
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
        found: dict[str, list[Evidence]] = {"keyword": [], "length": [], "language": []}
        tables, tried = read_tables(), list[Pair]()
        languages = [  # plain words (few and many), stock words, and very many words
            (plain, tables["words"][name], [" ".join([plain[1]] * times) for times in (8, 60)])
            for name, plain in tables["plain"].items()
        ]
        for item in [item for item in self.items if item.wrong][:_NUM_WITH_HABITS]:
            framed = {
                word: _frame(item, word) for kinds in languages for words in kinds for word in words
            }
            tried += [pair for pairs in framed.values() for pair in pairs]
            self.table.fill(tried)
            best = {word: self._find_best(pairs) for word, pairs in framed.items()}
            plainly = [max(best[word] for word in plain) for plain, _, _ in languages]
            for (least, _), (_, words, long) in zip(plainly, languages, strict=True):
                for word in words:
                    if best[word][0] > least + TOLERANCE:
                        why = f"{word!r} pays: another word in its place earns {least:.3g}"
                        pair = (item.example, best[word][1])
                        found["keyword"].append(self.table.point(pair, why))
                value, text = max(best[one] for one in long)
                if value > least + TOLERANCE:
                    why = f"length pays: with few words it earns {least:.3g}"
                    found["length"].append(self.table.point((item.example, text), why))
            (low, _), (high, text) = sorted(plainly)
            if high > max(low, self._find_best([(item.example, item.wrong[0])])[0]) + TOLERANCE:
                why = f"the language pays: in the other one it earns {low:.3g}"
                found["language"].append(self.table.point((item.example, text), why))
        return [self.table.make_row(f"pays-{kind}", tried, them) for kind, them in found.items()]

    def _find_best(self, pairs: Sequence[Pair]) -> tuple[float, str]:
        """Return the most that one of some texts earns of those that are not right at all."""
        worth = [(self.table.earn(pair), pair[1]) for pair in pairs if not self.measure(*pair)]
        return max([(0.0, ""), *worth])


def _spell(item: Item) -> list[str]:
    """Return the spellings of the label, of the reference and of one wrong answer.

    What stands in tags before the answer's is no part of the answer, and stays as it is.
    """
    thoughts = [match.group() for match in TAGGED.finditer(item.reference)][:-1]
    sources = dict.fromkeys((item.reference, item.label, *item.wrong[:1]))
    spelled = [text for source in sources for text in write_spellings(source)]
    if thoughts:
        inside = [item.replace_label(text) for text in write_spellings(item.label)]
        spelled = [*inside, *(t for t in spelled if all(thought in t for thought in thoughts))]
    return list(dict.fromkeys(spelled))


def _frame(item: Item, word: str) -> list[Pair]:
    """Put a word before a wrong answer, into its thinking if it has one, and alone."""
    wrong = item.wrong[0]
    texts = [f"{word}\n{wrong}", f"{word} {wrong}", word]
    if "<think>" in wrong:
        texts.append(wrong.replace("<think>", f"<think>{word} ", 1))
    return [(item.example, text) for text in texts]
