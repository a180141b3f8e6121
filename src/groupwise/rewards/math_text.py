r"""How mathematics is written: notations as LaTeX, plain numbers read exactly, and units.

``10²`` is ``10^{2}``, ``½`` is ``\frac{1}{2}``, ``√2`` is ``\sqrt{2}``: Unicode's NFKC form alone
would make 102 and 1/2 of 10² and 31/2 of 3½. A unit (``18 dollars``, ``9 (apples)``,
``5 \text{ m/s}``, ``3个``, ``$18``) says what is counted or measured and is no part of the value.
Nothing is converted: 2 hours and 120 minutes are different answers.
"""

import re
import unicodedata
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

MAX_ANSWER_LENGTH = 500

_SIGNS = str.maketrans(
    {"−": "-", "º": "°", "˚": "°", "⁄": "/", "∕": "/", "∙": "·", "⋅": "·", "、": ","}
    | {"÷": r"\div ", "×": r"\times ", "·": r"\cdot ", "π": r"\pi ", "∞": r"\infty "}
    | {"≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∪": r"\cup ", "∩": r"\cap "}
)
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|\{([^{}]*)\}|(\d+(?:\.\d+)?|[A-Za-z]))")
_DEGREE = re.compile(r"\s*\^\s*(?:\\circ\b|\{\s*\\circ\s*\})|\s*\\degree\b")
_SPACE = re.compile(r"(?<!\\)\\[,;: ]|~|\\q?quad\b")
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"))
_WHOLE_TEXT = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*\S[^{}]*)\}")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?!\s*[\d/])")
_CHINESE_PERCENT = re.compile(r"百分之\s*(\d+(?:\.\d+)?)")
_FUNCTION = re.compile(r"(?<![\\A-Za-z])(?:sin|cos|tan|log|ln)(?![A-Za-z])")
_E_NOTATION = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?|\.\d+)[eE]([-+]?\d{1,4})(?![\w.^{])")
_MIXED = re.compile(r"(?<![\d.,/])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.,/])")
_SPLIT_NUMBER = re.compile(r"(?<![_\d])\d+\s+[\d.]")


def write_plainly(text: str) -> str:
    """Return a text in NFKC form, its signs as LaTeX commands, without delimiters and final stop.

    Doing it twice changes nothing more.
    """
    parts: list[str] = []
    text = text.replace("º", "°").replace("˚", "°")
    for form, letters in groupby(text, lambda sign: unicodedata.decomposition(sign).split(" ")[0]):
        run = "".join(letters)
        plain = unicodedata.normalize("NFKC", run)
        if form in ("<super>", "<sub>"):
            parts.append(f"{'^' if form == '<super>' else '_'}{{{plain}}}")
        elif form == "<fraction>":  # a sign such as ⅟ has no denominator
            whole = [unicodedata.normalize("NFKC", sign).split("⁄") for sign in run]
            parts += [rf"\frac{{{n}}}{{{d}}}" if d else f"{n}⁄" for n, d in whole]
        else:
            parts.append(plain)
    plain = unicodedata.normalize("NFKC", "".join(parts)).translate(_SIGNS)
    plain = _ROOT.sub(lambda match: rf"\sqrt{{{match[1] or match[2] or match[3]}}}", plain)
    plain = _CHINESE_PERCENT.sub(r"\1%", _DEGREE.sub("°", plain))
    plain = _SPACE.sub(" ", plain.replace("{,}", ",").replace(r"\!", ""))
    before = None
    while before != plain:
        before = plain
        plain = plain.strip().rstrip("。.").rstrip()
        for start, end in _DELIMITERS:
            inner = plain[len(start) : -len(end)]
            if plain == start + inner + end and inner.strip() and end not in inner:
                plain = inner
        plain = _WHOLE_TEXT.sub(r"\1", plain) if _WHOLE_TEXT.fullmatch(plain) else plain
    return _GROUPED.sub(lambda match: match.group().replace(" ", ""), plain)


def write_latex(text: str) -> str:
    r"""Return a plain text as LaTeX: ``3 \times 10^{8}`` for ``3e8``, ``\log`` for ``log``."""
    text = _FUNCTION.sub(r"\\\g<0> ", text)
    text = _E_NOTATION.sub(r"\1 \\times 10^{\2}", text).replace("°", r"^\circ ")

    def write_mixed(match: re.Match[str]) -> str:
        is_mixed = int(match[2]) < int(match[3])
        return rf"{match[1]}\frac{{{match[2]}}}{{{match[3]}}}" if is_mixed else match.group()

    return _MIXED.sub(write_mixed, text)


def has_split_number(answer: str) -> bool:
    """Return whether digits stand side by side with a space between them.

    A parser would multiply or add them; ``1 000`` is 1000 and ``3 1/2`` a mixed number.
    """
    return _SPLIT_NUMBER.search(write_latex(answer)) is not None


_LATEX_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)\s*(\d))")
# This and other large patterns are texts: they are compiled when something is read with them.
_NUMBER = r"""(?x)(?P<sign>[-+]?)\s*(?:
        (?:(?P<whole>\d+)\s+)?(?P<numerator>\d+)\s*/\s*(?P<denominator>\d+)
        | (?P<digits>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)
          (?:\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{\s*(?P<power>[-+]?\d{1,4})\s*\}|(?P<digit>\d))
             |[eE](?P<exponent>[-+]?\d{1,4}))?
    )\s*(?P<percent>\\?%)?"""


class Number(NamedTuple):
    """A plain number: an integer, a decimal, a fraction or a mixed number.

    ``value`` is exact, of a percentage the number before the sign; a decimal is written with a
    point, and may stand for a rounded value.
    """

    value: Fraction
    is_decimal: bool
    is_percentage: bool


def read_number(text: str) -> Number | None:
    """Return the plain number that a text is; None if it is anything else."""
    if len(text) > MAX_ANSWER_LENGTH:
        return None
    plain = _LATEX_FRACTION.sub(lambda part: f" {part[1] or part[3]}/{part[2] or part[4]}", text)
    match = re.fullmatch(_NUMBER, plain.strip())
    if match is None:
        return None
    if match["digits"] is not None:
        power = match["power"] or match["digit"] or match["exponent"] or "0"
        value = Fraction(match["digits"].replace(",", "")) * Fraction(10) ** int(power)
    else:
        numerator, denominator = int(match["numerator"]), int(match["denominator"])
        if denominator == 0 or (match["whole"] is not None and numerator >= denominator):
            return None
        value = int(match["whole"] or 0) + Fraction(numerator, denominator)
    value = -value if match["sign"] == "-" else value
    return Number(value, "." in (match["digits"] or ""), match["percent"] is not None)


def is_same_number(a: Number, b: Number) -> bool:
    """Return whether two numbers are equal: integers and fractions exactly.

    Decimals to six places, and to four digits, so that tiny ones are not all 0. A percentage equals
    the number before its sign and a hundredth of it, as math-verify has it.
    """
    pairs = [(a.value, b.value)]
    if a.is_percentage != b.is_percentage:
        pairs.append((a.value / 100, b.value) if a.is_percentage else (a.value, b.value / 100))
    is_rounded = a.is_decimal or b.is_decimal
    return any(
        x == y
        or (
            is_rounded and round(x, 6) == round(y, 6) and abs(x - y) * 10_000 <= max(abs(x), abs(y))
        )
        for x, y in pairs
    )


# One unit with its spellings in each line, the name that it is compared by first; money at the top.
_MONEY, _MEASURES = (
    [row.split() for row in part.splitlines()]
    for part in Path(__file__).with_name("units.txt").read_text(encoding="utf-8").split("\n\n")
)
_NAMES = {spelling: row[0] for row in (*_MONEY, *_MEASURES) for spelling in row}
_MONEY_NAMES = frozenset(row[0] for row in _MONEY)
_SPELLINGS = {
    **{"mph": "mile / hour", "kmh": "km / hour", "kph": "km / hour"},
    **{"㎠": "cm^2", "每": " / ", "平方": " square ", "立方": " cubic "},
}
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
FILLER = re.compile("of|the|an?|in|for|to|left|more|total|each|altogether")
"""Words that say nothing about what is counted."""
_COUNTERS = "个只条张本支枝位名件台辆棵朵块份袋盒箱瓶头匹把根颗粒套双对间座家篇首"
_CHINESE = "\u4e00-\u9fff"
_NAME = f"/|[a-zµ]+(?:\\^?-?\\d)?|[{_CHINESE}]+(?:\\^?\\d)?|[^\\s\\w\\\\()*·-]"


def _drop_plural(word: str) -> str:
    if word in _NAMES or len(word) < 3 or not word.endswith("s") or word.endswith("ss"):
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(("ches", "shes", "xes", "sses", "zes")) else word[:-1]


def is_known(word: str) -> bool:
    """Return whether a word in lower case, with or without a plural ending, is in the tables."""
    return _drop_plural(word) in _NAMES or word in _POWERS or word in _SPELLINGS


def _is_chinese(word: str) -> bool:
    return "\u4e00" <= word[:1] <= "\u9fff"


def _list_names(unit: str) -> tuple[set[str], set[str]]:
    """Return the words of a unit by their names here (``{dollar, /hour}``), and the known ones."""
    text = unit.lower().replace(".", "").replace("{", "").replace("}", "")
    for short, whole in _SPELLINGS.items():
        text = text.replace(short, whole)
    words = re.findall(_NAME, text)
    names: set[str] = set()
    prefix = power = ""
    for word in words:
        if word in ("per", "/"):
            prefix = "/"
        elif word in _POWERS:
            power = _POWERS[word]
        elif len(words) == 1 or not FILLER.fullmatch(word):
            base = word.rstrip("0123456789").rstrip("^-") or word
            written = word[len(base) :].lstrip("^")
            name = _drop_plural(base)
            if name in _NAMES:
                name = _NAMES[name]
            elif _is_chinese(base):  # what stands behind a counter; 块钱一个 begins with a unit
                name = base[1:] if base[0] in _COUNTERS else base
                known = (name[:length] for length in (len(name), 3, 2) if name[:length] in _NAMES)
                name = _NAMES.get(next(known, ""), name)
            if name:  # nothing is said by a mere counter
                names.add(prefix + name + (power or (f"^{written}" if written else "")))
            prefix = power = ""
    return names, {name for name in names if name.strip("/^23") in _NAMES}


def is_measure(unit: str) -> bool:
    """Return whether a unit measures something or is money, rather than counting things."""
    return bool(_list_names(unit)[1])


def has_other_unit(a: str, b: str) -> bool:
    """Return whether two units, as far as they are stated, are different ones.

    Known units must be the same; of a price, ``per hour`` may be left out, and of a temperature
    ``Celsius``. Other things must have a word in common. Things that are unknown here and named in
    two languages cannot be told apart.
    """
    (words_a, known_a), (words_b, known_b) = _list_names(a), _list_names(b)
    if not words_a or not words_b:
        return False
    if known_a and known_b:
        short, long = sorted((known_a, known_b), key=len)
        is_rate = any(word.startswith("/") for word in long - short)
        return not short <= long or (is_rate and short.isdisjoint(_MONEY_NAMES))
    is_chinese_a, is_chinese_b = (
        any(_is_chinese(word.lstrip("/")) for word in words) for words in (words_a, words_b)
    )
    if is_chinese_a != is_chinese_b and not known_a and not known_b:
        return False
    is_part = any(
        x in y or y in x for x in filter(_is_chinese, words_a) for y in filter(_is_chinese, words_b)
    )
    return words_a.isdisjoint(words_b) and not is_part


_PERCENT = ("percentage", "percent", "per cent", "pct", r"\%", "%")
_MULTIPLES = {
    **{"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12},
    **{"万亿": 12, "百万": 6, "千万": 7, "十万": 5, "亿": 8, "万": 4, "千": 3, "百": 2},
}
_NO_MULTIPLE = "千[克米瓦卡焦帕伏]|百[合货分]"
_NOT_UNIT = re.compile(
    "and|or|to|not|is|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|mod|choose|inf|infinity|pi"
)
_NUMBER_AND_A_HALF = re.compile("^个?半|半$|分之|^多|^余")
_MONEY_FIRST = (
    r"(?s)(?P<sign>[-+]?)\s*(?P<unit>US\$|\\?\$|[€£¥₹]|(?:USD|RMB|CNY|Rs\.?)\b)"
    r"\s*(?P<rest>[-+]?(?:\d|\.\d|\\[dtc]?frac).*)"
)
_WORD = rf"(?:[A-Za-zµ°㎠$%€£¥₹¢{_CHINESE}]|\\[$%])+(?:\^\{{?-?\d\}}?|[23](?!\d))?"
_UNIT = rf"\(?\s*{_WORD}(?:[\s./*·-]+{_WORD})*\.?\s*\)?"
_TAIL = rf"(?:(?<=[\d)}}\]!])|(?<=\\pi))\s*(?=[(A-Za-zµ°㎠$€£¥₹¢%\\{_CHINESE}])"
_TEXT = r"\\(?:text(?:rm|bf|it|normal)?|mathrm|mbox)\s*\{([^{}]*)\}"
_TEXT_UNIT = rf"{_TEXT}(?:\^\{{?-?\d\}}?)?"
_TEXT_TAIL = rf"\s*{_TEXT_UNIT}(?:[\s/]*{_TEXT_UNIT})*[\s/]*$"


def split_unit(text: str) -> tuple[str, str]:
    r"""Return the value and the unit of an answer; the unit is empty where none is stated.

    Number words belong to the value (``3 million``, ``3万``), and so does percent. Words are a
    unit behind a number, and ``\text{}`` is one at the end; a single letter is one behind a number
    and a space only, because ``5m`` may be a product.
    """
    money = re.fullmatch(_MONEY_FIRST, text)
    if money:
        value, unit = split_unit(money["sign"] + money["rest"])
        return value, f"{money['unit']} {unit}".strip()
    value, unit, end = text, "", ""
    tail = re.search(_TEXT_TAIL, text)
    if tail is not None:
        before = text[: tail.start()].rstrip()
        said = re.sub(_TEXT, lambda inner: f" {inner[1].strip()}", tail.group()).strip()
        if before and before[-1] not in "+-*/=<>,;:([{^_&\\" and re.fullmatch(_UNIT, said):
            value, end = before, said
    for place in re.finditer(_TAIL, value):
        before, behind = value[: place.start()], value[place.end() :]
        is_glued = place.start() == place.end() and behind[0] != "("
        if re.fullmatch(_UNIT, behind) and _is_unit(behind, value=before, is_glued=is_glued):
            value, unit = before, behind.strip("() ")
            break
    unit = f"{unit} {end}".strip()
    if unit.lower().startswith(_PERCENT):
        return rf"{value}\%", ""
    for word, power in _MULTIPLES.items():
        if unit.lower().startswith(word) and not re.match(_NO_MULTIPLE, unit):
            return rf"{value} \times 10^{{{power}}}", unit[len(word) :].strip()
    return value, unit


def _is_unit(unit: str, *, value: str, is_glued: bool) -> bool:
    words = re.findall(rf"[a-zµ]+|[{_CHINESE}]+|[^\s\w^{{}}()./*·-]", unit.lower())
    first = next((word for word in words if not FILLER.fullmatch(word)), words[0])
    if any(_NOT_UNIT.fullmatch(word) for word in words) or _NUMBER_AND_A_HALF.search(first):
        return False
    if _is_chinese(first) or not first.isalpha():
        return True
    if len(first) == 1:
        return is_known(first) and not is_glued and read_number(value) is not None
    return is_known(first) or (not is_glued and len(first) > 2)
