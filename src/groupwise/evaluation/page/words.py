"""The words of every page: statements and labels in English and Chinese, from two vocabularies.

A statement has a name and numbers; its sentence is ``vocabulary/LANGUAGE.yaml``'s. Both languages
fill in the same numbers in the same forms.
"""

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from groupwise.evaluation.page import numbers
from groupwise.evaluation.policies import Policies
from groupwise.evaluation.predictions import Measure

Language = Literal["en", "zh"]
Level = Literal["error", "warning", "info"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
LEVELS: tuple[Level, ...] = ("error", "warning", "info")
CODE = "\ue000", "\ue001"
"""What stands around keys and paths in a sentence; private characters, so that no text has them."""
_NUMBERS = {"num": r"[\d,]+", "value": r"-?[\d.]+(?:e[-+]\d+)?"}
"""Places of sentences in files that only a number takes."""
_NBSP = "\u00a0"
_VOCABULARY = Path(__file__).with_name("vocabulary")


@dataclass(frozen=True, slots=True)
class Statement:
    """Something said, by name and numbers, so that every language says the same.

    Attributes:
        kind: name of its sentence in the vocabulary.
        values: what the sentence is filled with.
        level: how bad it is, where it is a notice.
        source: the file it comes from; may be empty.
    """

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    level: Level = "info"
    source: str = ""


@cache
def load_vocabulary(
    language: Language, folder: Path = _VOCABULARY
) -> Mapping[str, Mapping[str, Any]]:
    """Return the vocabulary of a language by section, from a folder with ``LANGUAGE.yaml``."""
    path = folder / f"{language}.yaml"
    return cast("dict[str, dict[str, Any]]", yaml.safe_load(path.read_text(encoding="utf-8")))


@cache
def _list_translations(language: Language) -> Sequence[tuple[re.Pattern[str], str]]:
    """Return the translations of what files have in English: what each is of, and its sentence."""
    path = _VOCABULARY.parents[1] / f"report/found.{language}.yaml"
    if not path.is_file():
        return []
    known = cast("dict[str, str]", yaml.safe_load(path.read_text(encoding="utf-8")))
    return [(_match_template(english), sentence) for english, sentence in known.items()]


def _match_template(english: str) -> re.Pattern[str]:
    """Return what matches a sentence; but for numbers, its places are any text."""
    parts = [
        re.escape(text) + (f"(?P<{name}>{_NUMBERS.get(name, '.+?')})" if name else "")
        for text, name, *_ in string.Formatter().parse(english)
    ]
    return re.compile("".join(parts), re.DOTALL)


def explain(reason: str, words: Mapping[str, str], language: Language = "en") -> str:
    """Return the fairness gate's sentence about a difference or a sameness.

    A word with ``_zh`` behind its name takes the place of that word in Chinese.
    """
    if language == "zh":
        words = {**words, **{name.removesuffix("_zh"): words[name] for name in sorted(words)}}
    vocabulary = load_vocabulary(language)
    sentences: Mapping[str, str] = {**vocabulary["reasons"], **vocabulary["confounding"]}
    return sentences[reason].format(**words)


@dataclass(frozen=True)
class Words:
    """The words of one language for one page.

    Attributes:
        language: ``en`` or ``zh``.
        system_axis: key whose values are the systems, which they are then shown with.
        axes: keys of the grid's axes.
        policies: of the run that the page is about.
        vocabulary: folder of a recipe's own words, which are added to those of all pages.
    """

    language: Language
    system_axis: str = ""
    axes: tuple[str, ...] = ()
    policies: Policies = field(default_factory=Policies)
    vocabulary: Path | None = None
    _formatter: "_Formatter" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Give the formatter these words."""
        object.__setattr__(self, "_formatter", _Formatter(self))

    def say(self, statement: Statement) -> str:
        """Return the sentence of a statement."""
        values = dict(statement.values)
        if "reason" in values:
            values["why"] = self.explain(values["reason"], values["words"])
        return self.fill(self._section("statements")[statement.kind], values)

    def fill(self, template: str, values: Mapping[str, Any]) -> str:
        """Return a template with its places filled in."""
        return self._formatter.vformat(template, (), values)

    def say_all(self, statements: Iterable[Statement]) -> str:
        """Return sentences as one paragraph."""
        return ("" if self.language == "zh" else " ").join(map(self.say, statements))

    def explain(self, reason: str, words: Mapping[str, str]) -> str:
        """Return the fairness gate's sentence about a difference or a sameness."""
        return explain(reason, words, self.language)

    def label(self, name: str, /, **values: object) -> str:
        """Return a label, filled in."""
        return self.fill(self._section("labels")[name], values)

    def labels(self, *names: str) -> tuple[str, ...]:
        """Return several labels, such as the head of a table."""
        return tuple(map(self.label, names))

    def count(self, number: int, thing: str) -> str:
        """Return ``12 items`` with the word of this language."""
        forms: Sequence[str] = self._section("counts")[thing]
        word = forms[0] if number == 1 else forms[-1]
        return f"{numbers.format_count(number)}{_NBSP}{word}"

    def title_system(self, name: str) -> str:
        """Return how a system is called: with the axis where it is a value of one."""
        return f"{self.title_axis(self.system_axis)} {name}" if self.system_axis else name

    def title_axis(self, key: str) -> str:
        """Return the last part of an axis' key."""
        return key.rpartition(".")[2]

    def title(self, section: str, key: str) -> str:
        """Return what something is called; what the section does not have keeps its key."""
        return self._section(section).get(key, key)

    def translate(self, text: str) -> str:
        """Return what a file has in English, such as a finding; unknown texts stay as they are.

        So do its places, which may be a user's own words, but for those that the sentence says are
        ``{told:said}``.
        """
        for pattern, sentence in _list_translations(self.language):
            if found := pattern.fullmatch(text):
                return self.fill(sentence, found.groupdict())
        return text

    def title_policy(self, name: str) -> str:
        """Return how a policy, or the step that trains it, is called."""
        title = self.policies.title(name, self.language)
        return self.title("steps", name) if title == name else title

    def name_measure(self, measure: Measure) -> str:
        """Return what a measure is called."""
        return measure.title_zh if self.language == "zh" else measure.title

    def title_measure(self, measure: Measure) -> str:
        """Return what a measure is called, and that less of it is better where it is."""
        title = self.name_measure(measure)
        return title if measure.is_higher_better else self.label("less_is_better", measure=title)

    def title_pair(self, first: str, second: str) -> str:
        """Return ``first − second``, with the axis named once."""
        return f"{self.title_system(first)} \u2212 {second}"

    def place(self, coordinates: Sequence[str]) -> str:
        """Return ``epoch 1, size 200``; empty without axes."""
        parts = zip(self.axes, coordinates, strict=True)
        return self.join(f"{self.title_axis(key)} {value}" for key, value in parts)

    def join(self, parts: Iterable[str]) -> str:
        """Return a list in the punctuation of this language."""
        return ("、" if self.language == "zh" else ", ").join(parts)

    def join_all(self, parts: Sequence[str]) -> str:
        """Return ``a, b and c``."""
        *first, last = parts
        return f"{self.join(first)}{self.label('and')}{last}" if first else last

    def plain(self, value: float) -> str:
        """Return any number with at most four digits and a true minus sign."""
        return numbers.format_plain(value).replace("-", "\u2212", 1 if value < 0 else 0)

    def interval(self, low: float, high: float) -> str:
        """Return ``+8.1 to +16.4`` in this language."""
        ends = numbers.format_points(low), numbers.format_points(high)
        return f"{_NBSP}{self.label('to')}{_NBSP}".join(ends)

    def _section(self, name: str) -> Mapping[str, Any]:
        shared = load_vocabulary(self.language)
        if self.vocabulary is None:
            return shared[name]
        own = load_vocabulary(self.language, self.vocabulary)
        return {**shared.get(name, {}), **own.get(name, {})}


def mark_code(text: object) -> str:
    """Return a key, a path or a value that pages show as code."""
    return f"{CODE[0]}{text}{CODE[1]}"


def unmark_code(text: str) -> str:
    """Return a sentence without the marks of its code, as a terminal shows it."""
    return text.translate(dict.fromkeys(map(ord, CODE)))


def _name_shown(file: str) -> str:
    """Return the key of what a file of a run shows; that of any training step is the same."""
    return file.rpartition("/")[2] if file.endswith(("/on_policy.json", "/metrics.jsonl")) else file


class _Formatter(string.Formatter):
    """Fills in ``{name:form}``; a form is one of those below or a thing to count."""

    def __init__(self, words: Words) -> None:
        self._words = words
        colon = "：" if words.language == "zh" else ": "
        self._forms: Mapping[str, Callable[[Any], str]] = {
            "": str,
            "said": words.translate,
            "share": numbers.format_share,
            "shares": lambda ends: numbers.format_share_interval(*ends),
            "points": numbers.format_points,
            "size": lambda value: numbers.format_points(abs(value)).lstrip("+±"),
            "interval": lambda ends: words.interval(*ends),
            "p": numbers.format_p_value,
            "count": numbers.format_count,
            "coefficient": numbers.format_coefficient,
            "duration": numbers.format_duration,
            "code": mark_code,
            "codes": lambda values: words.join(map(mark_code, values)),
            "shows": lambda file: words.title("shows", _name_shown(file)),
            "subject": lambda name: name or words.label("the_judge"),
            "list": words.join,
            "say": lambda one: "" if one is None else words.say(one),
            "plain": words.plain,
            "parts": lambda parts: words.join_all([words.say(one) for one in parts]),
            "pairs": self._join_pairs,
            "policy": words.title_policy,
            "policies": lambda names: words.join(map(words.title_policy, names)),
            "system": words.title_system,
            "axis": words.title_axis,
            "systems": lambda names: words.join(map(words.title_system, names)),
            "measure": words.title_measure,
            "plain_measure": words.name_measure,
            "aspect": lambda aspect: words.title("aspects", aspect) + colon,
            "sentence": self._finish,
            "place": words.place,
            "place_after": self._add_place,
            "on_items": lambda num: "" if num is None else words.label("on_items", num=num),
        }

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return one value in its form."""
        form = self._forms.get(format_spec)
        return form(value) if form else self._words.count(value, format_spec)

    def _finish(self, clause: str) -> str:
        """Return a clause as a sentence; a key at its start keeps its letters."""
        if self._words.language == "zh":
            return f"{clause}。"
        is_word = clause.split(" ", 1)[0].isalpha()
        return f"{clause[:1].upper() if is_word else clause[:1]}{clause[1:]}."

    def _join_pairs(self, pairs: Sequence[tuple[str, Sequence[str | None]]]) -> str:
        """Return ``num_rows 5 against 6; digest a against b``."""
        is_chinese = self._words.language == "zh"
        against = " 对 " if is_chinese else " against "
        shown = [
            f"{key} {against.join('?' if one is None else one for one in values)}".strip()
            for key, values in pairs
        ]
        return ("；" if is_chinese else "; ").join(shown)

    def _add_place(self, coordinates: Sequence[str]) -> str:
        place = self._words.place(coordinates) if coordinates else ""
        return self._words.label("in_brackets", text=place) if place else ""
