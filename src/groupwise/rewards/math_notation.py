r"""How mathematics is written: other notations in that of LaTeX, and plain numbers read exactly.

``10²`` is ``10^{2}``, ``½`` is ``\frac{1}{2}``, ``√2`` is ``\sqrt{2}``: Unicode's NFKC form alone
would make 102 and 1/2 of 10² and 31/2 of 3½.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

MAX_ANSWER_LENGTH = 500

_SIGNS = str.maketrans(
    {"−": "-", "º": "°", "˚": "°", "⁄": "/", "∕": "/", "∙": "·", "⋅": "·", "、": ","}
    | {"÷": r"\div ", "×": r"\times ", "·": r"\cdot ", "π": r"\pi ", "∞": r"\infty "}
    | {"≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∪": r"\cup ", "∩": r"\cap "}
)
_BEFORE = str.maketrans({"º": "°", "˚": "°"})
_FORMS = {"<super>": "^{%s}", "<sub>": "_{%s}"}
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|\{([^{}]*)\}|(\d+(?:\.\d+)?|[A-Za-z]))")
_DEGREE = re.compile(r"\s*\^\s*(?:\\circ\b|\{\s*\\circ\s*\})|\s*\\degree\b")
_SPACE = re.compile(r"(?<!\\)\\[,;: ]|~|\\q?quad\b")
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"))
_WHOLE_TEXT = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*\S[^{}]*)\}")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?!\s*[\d/])")

_PER_CENT = re.compile(r"百分之\s*(\d+(?:\.\d+)?)")

_FUNCTION = re.compile(r"(?<![\\A-Za-z])(?:sin|cos|tan|log|ln)(?![A-Za-z])")
_E_NOTATION = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?|\.\d+)[eE]([-+]?\d{1,4})(?![\w.^{])")
_MIXED = re.compile(r"(?<![\d.,/])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.,/])")
_LATEX_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(\d)\s*(\d))")
_NUMBER = re.compile(
    r"""(?P<sign>[-+]?)\s*(?:
        (?:(?P<whole>\d+)\s+)?(?P<numerator>\d+)\s*/\s*(?P<denominator>\d+)
        | (?P<digits>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)
          (?:\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{\s*(?P<power>[-+]?\d{1,4})\s*\}|(?P<digit>\d))
             |[eE](?P<exponent>[-+]?\d{1,4}))?
    )\s*(?P<percent>\\?%)?""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Number:
    """A plain number: an integer, a decimal, a fraction or a mixed number.

    Attributes:
        value: exactly; of a percentage, the number before the sign.
        is_decimal: it is written with a point, and may stand for a rounded value.
        is_percentage: a percent sign follows.
    """

    value: Fraction
    is_decimal: bool = False
    is_percentage: bool = False


def write_plainly(text: str) -> str:
    """Return a text in NFKC form, its signs as LaTeX commands, without delimiters and final stop.

    Doing it twice changes nothing more.
    """
    plain = _expand_forms(text.translate(_BEFORE)).translate(_SIGNS)
    plain = _ROOT.sub(lambda match: rf"\sqrt{{{match[1] or match[2] or match[3]}}}", plain)
    plain = _PER_CENT.sub(r"\1%", _DEGREE.sub("°", plain)).replace("{,}", ",").replace(r"\!", "")
    plain = _strip_delimiters(_SPACE.sub(" ", plain))
    return _GROUPED.sub(lambda match: match.group().replace(" ", ""), plain)


def write_latex(text: str) -> str:
    r"""Return a plain text as LaTeX: ``3 \times 10^{8}`` for ``3e8``, ``\log`` for ``log``."""
    text = _FUNCTION.sub(r"\\\g<0> ", text)
    text = _E_NOTATION.sub(r"\1 \\times 10^{\2}", text).replace("°", r"^\circ ")
    return _MIXED.sub(_write_mixed, text)


def read_number(text: str) -> Number | None:
    """Return the plain number that a text is; None if it is anything else."""
    if len(text) > MAX_ANSWER_LENGTH:
        return None
    match = _NUMBER.fullmatch(_LATEX_FRACTION.sub(_write_fraction, text).strip())
    if match is None:
        return None
    value = _read_fraction(match) if match["digits"] is None else _read_decimal(match)
    if value is None:
        return None
    return Number(
        -value if match["sign"] == "-" else value,
        is_decimal="." in (match["digits"] or ""),
        is_percentage=match["percent"] is not None,
    )


def is_same_number(a: Number, b: Number) -> bool:
    """Say whether two numbers are equal.

    Integers and fractions are compared exactly; decimals to six places, and to four digits. A
    percentage equals the number before its sign and a hundredth of it, as math-verify has it.
    """
    values = [(a.value, b.value)]
    if a.is_percentage != b.is_percentage:
        values.append((a.value / 100, b.value) if a.is_percentage else (a.value, b.value / 100))
    is_rounded = a.is_decimal or b.is_decimal
    return any(x == y or (is_rounded and _is_close(x, y)) for x, y in values)


def _is_close(a: Fraction, b: Fraction) -> bool:
    """Say whether two values agree to six places; tiny ones do so only if they agree at all."""
    return round(a, 6) == round(b, 6) and abs(a - b) * 10_000 <= max(abs(a), abs(b))


def _read_fraction(match: re.Match[str]) -> Fraction | None:
    denominator = int(match["denominator"])
    if denominator == 0:
        return None
    part = Fraction(int(match["numerator"]), denominator)
    if match["whole"] is None:
        return part
    return part + int(match["whole"]) if part < 1 else None


def _read_decimal(match: re.Match[str]) -> Fraction:
    power = match["power"] or match["digit"] or match["exponent"] or "0"
    return Fraction(match["digits"].replace(",", "")) * Fraction(10) ** int(power)


def _write_fraction(match: re.Match[str]) -> str:
    return f" {match[1] or match[3]}/{match[2] or match[4]}"


def _write_mixed(match: re.Match[str]) -> str:
    whole, numerator, denominator = match.groups()
    if int(numerator) >= int(denominator):
        return match.group()
    return rf"{whole}\frac{{{numerator}}}{{{denominator}}}"


def _expand_forms(text: str) -> str:
    """Return a text in NFKC form with raised, lowered and fraction signs as LaTeX."""
    parts: list[str] = []
    for form, letters in groupby(text, key=_find_form):
        run = "".join(letters)
        if form in _FORMS:
            parts.append(_FORMS[form] % unicodedata.normalize("NFKC", run))
        elif form == "<fraction>":
            parts += [_spell_fraction(sign) for sign in run]
        else:
            parts.append(unicodedata.normalize("NFKC", run))
    return unicodedata.normalize("NFKC", "".join(parts))


def _find_form(letter: str) -> str:
    return unicodedata.decomposition(letter).partition(" ")[0]


def _spell_fraction(sign: str) -> str:
    numerator, _, denominator = unicodedata.normalize("NFKC", sign).partition("⁄")
    return rf"\frac{{{numerator}}}{{{denominator}}}" if denominator else sign


def _strip_delimiters(text: str) -> str:
    r"""Return a text without what encloses it: space, ``$``, stars, ``\text``, a final stop."""
    before = None
    while before != text:
        before = text
        text = text.strip().rstrip("。.").rstrip()
        for start, end in _DELIMITERS:
            inner = text[len(start) : -len(end)]
            if text == start + inner + end and inner.strip() and end not in inner:
                text = inner
        text = _WHOLE_TEXT.sub(r"\1", text) if _WHOLE_TEXT.fullmatch(text) else text
    return text
