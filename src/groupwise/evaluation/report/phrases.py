"""How reports speak: the phrases of two languages from ``phrases.yaml``, and how numbers look.

Both languages fill in the same numbers in the same forms; nothing is computed here.
"""

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from groupwise.evaluation.predictions import Language, Measure, Policies

if TYPE_CHECKING:
    from groupwise.evaluation.metrics import Metric

Level = Literal["error", "warning", "info"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
LEVELS: tuple[Level, ...] = ("error", "warning", "info")
DASH, MINUS, NBSP = "\u2013", "\u2212", "\u00a0"
CODE = "\ue000", "\ue001"
"""What stands around keys and paths in a sentence; private characters, so that no text has them."""
_FOLDER = Path(__file__).parent


def format_share(value: float | None, *, decimals: int = 1) -> str:
    """Format 0.9421 as ``94.2 %``; None as a dash."""
    return DASH if value is None else f"{100 * value:.{decimals}f}{NBSP}%"


def format_share_interval(low: float, high: float, *, decimals: int = 1) -> str:
    """Format an interval of shares as ``91.7-96.0 %`` with an en dash."""
    return f"{100 * low:.{decimals}f}{DASH}{format_share(high, decimals=decimals)}"


def format_points(value: float, *, decimals: int = 1) -> str:
    """Format a difference of shares, 0.123, as ``+12.3`` (percentage points)."""
    rounded = round(100 * value, decimals)
    sign = "+" if rounded > 0 else MINUS if rounded < 0 else "\u00b1"
    return f"{sign}{abs(rounded):.{decimals}f}"


def format_p_cell(value: float) -> str:
    """Format a p-value for a table's cell: ``0.012`` or ``< 0.001``."""
    return f"<{NBSP}0.001" if value < 0.001 else f"{value:.3f}"


def format_duration(seconds: float) -> str:
    """Format seconds as ``85 ms``, ``1.2 s``, ``12 min`` or ``2 h 05 min``."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.{1 if seconds < 0.00995 else 0}f}{NBSP}ms"
    if seconds < 119.5:
        return f"{seconds:.3g}{NBSP}s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes}{NBSP}min"
    return f"{minutes // 60}{NBSP}h{NBSP}{minutes % 60:02d}{NBSP}min"


def format_count(value: int) -> str:
    """Format 12345 as ``12 345`` with a narrow no-break space."""
    return f"{value:,}".replace(",", "\u202f")


def format_plain(value: float) -> str:
    """Format any number with at most four digits, such as ``0.0512`` or ``2e-05``."""
    return f"{value:.4g}".replace("-", MINUS, 1 if value < 0 else 0)


def format_coefficient(value: float) -> str:
    """Format a score, or a coefficient in [-1, 1] such as Cohen's kappa, with three digits."""
    return f"{value:.3f}".replace("-", MINUS)


def format_metric(metric: "Metric") -> tuple[str, str]:
    """Format a metric's value and interval as its kind: a time, a score, points or a share."""
    name, form, between = metric.measure, format_coefficient, f"{NBSP}to{NBSP}"
    if name.endswith("_s"):
        form, between = format_duration, DASH
    elif name == "length_bias":
        form = format_points
    elif name in ("brier", "ece"):
        between = DASH
    elif name != "kappa":
        return format_share(metric.value), format_share_interval(metric.low, metric.high)
    return form(metric.value), between.join((form(metric.low), form(metric.high)))


def mark_code(text: object) -> str:
    """Return a key, a path or a value that pages show as code."""
    return f"{CODE[0]}{text}{CODE[1]}"


def unmark_code(text: str) -> str:
    """Return a sentence without the marks of its code, as a terminal shows it."""
    return text.translate(dict.fromkeys(map(ord, CODE)))


@dataclass(frozen=True, slots=True)
class Statement:
    """Something said, by phrase and numbers, so that both languages say the same."""

    kind: str  # key of its phrase
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])  # statements among them, too
    level: Level = "info"  # how bad it is, where it is a notice
    source: str = ""  # the file it comes from


class Phrases(string.Formatter):
    """The phrases of one language, for the policies of a run, with further ones of a file.

    A place in a phrase may name a form, ``{gain:points}``, or a thing to count, ``{num:item}``. The
    file ``own`` has YAML as ``phrases.yaml`` here: ``key: {en: ..., zh: ...}``.
    """

    def __init__(
        self, language: Language, *, policies: Policies | None = None, own: Path | None = None
    ) -> None:
        self.language: Language = language
        self.policies = policies or Policies()
        shared = load_phrases(_FOLDER / "phrases.yaml")
        self._table = {**shared, **load_phrases(own)} if own else shared
        self._forms: Mapping[str, Callable[[Any], str]] = {
            "share": format_share,
            "points": format_points,
            "size": lambda value: format_points(abs(value)).lstrip("+±"),
            "interval": lambda ends: self.interval(*ends),
            "p": lambda x: f"p{NBSP}{'' if x < 0.001 else f'={NBSP}'}{format_p_cell(x)}",
            "count": format_count,
            "plain": format_plain,
            "coefficient": format_coefficient,
            "said": self.translate,
            "policy": self.title_policy,
            "measure": self.name_measure,
            "code": mark_code,
            "codes": lambda values: self.join(map(mark_code, values)),
            "list": self.join,
            "each": lambda those: ("；" if language == "zh" else "; ").join(map(self.say, those)),
        }

    def say(self, what: str | Statement, /, **values: Any) -> str:
        if isinstance(what, Statement):
            return self.say(what.kind, **what.values)
        return self.vformat(self._table[what][self.language], (), values)

    def say_each(self, *keys: str) -> tuple[str, ...]:
        """Return several phrases, such as the head of a table."""
        return tuple(map(self.say, keys))

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Statement):
            return self.say(value)
        if f"count.{format_spec}" in self._table:
            return self.count(value, format_spec)
        if not format_spec:
            return "" if value is None else str(value)
        return self._forms[format_spec](value)

    def count(self, number: int, thing: str) -> str:
        """Return ``12 items`` with the word of this language."""
        forms = self._table[f"count.{thing}"][self.language].split("|")
        return f"{format_count(number)}{NBSP}{forms[0] if number == 1 else forms[-1]}"

    def title(self, section: str, key: str) -> str:
        """Return the phrase ``SECTION.KEY``; what has none keeps its key."""
        return self._table.get(f"{section}.{key}", {}).get(self.language, key)

    def title_policy(self, name: str) -> str:
        """Return how a policy, or the step that trains it, is called."""
        title = self.policies.title(name, self.language)
        return self.title("step", name) if title == name else title

    def name_measure(self, measure: Measure) -> str:
        return measure.title_zh if self.language == "zh" else measure.title

    def title_measure(self, measure: Measure) -> str:
        """Return what a measure is called, and that less of it is better where it is."""
        title = self.name_measure(measure)
        return title if measure.is_higher_better else self.say("less_is_better", measure=title)

    def join(self, parts: Iterable[str]) -> str:
        """Return a list in the punctuation of this language."""
        return ("、" if self.language == "zh" else ", ").join(parts)

    def interval(self, low: float, high: float) -> str:
        """Return differences of shares as ``+8.1 to +16.4``."""
        return f"{NBSP}{self.say('to')}{NBSP}".join((format_points(low), format_points(high)))

    def translate(self, text: str) -> str:
        """Return what a file has in English, such as a finding; unknown texts stay as they are.

        So do its places, which may be a user's own words, but for those that the sentence says are
        ``{told:said}``.
        """
        for pattern, sentence in _list_translations() if self.language == "zh" else ():
            if found := pattern.fullmatch(text):
                return self.vformat(sentence, (), found.groupdict())
        return text


@cache
def load_phrases(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the phrases of a file by key and language."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def _list_translations() -> Sequence[tuple[re.Pattern[str], str]]:
    """Return what matches each English sentence of a file (only some places take any text)."""
    numbers = {"num": r"[\d,]+", "value": r"-?[\d.]+(?:e[-+]\d+)?"}
    found: list[tuple[re.Pattern[str], str]] = []
    known = yaml.safe_load((_FOLDER / "found.zh.yaml").read_text(encoding="utf-8"))
    for english, sentence in known.items():
        parts = [
            re.escape(text) + (f"(?P<{name}>{numbers.get(name, '.+?')})" if name else "")
            for text, name, *_ in string.Formatter().parse(english)
        ]
        found.append((re.compile("".join(parts), re.DOTALL), sentence))
    return found
