r"""The unit behind a number: ``18 dollars``, ``9 (apples)``, ``5 \text{ m/s}``, ``3个``, ``$18``.

A unit says what is counted or measured and is no part of the value.
"""

import re

from groupwise.rewards.math_notation import read_number
from groupwise.rewards.unit_names import is_chinese, is_filler, is_known

_PER_CENT = ("percentage", "percent", "per cent", "pct", r"\%", "%")
_MULTIPLES = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12} | {
    "万亿": 12,
    "百万": 6,
    "千万": 7,
    "十万": 5,
    "亿": 8,
    "万": 4,
    "千": 3,
    "百": 2,
}
_NO_MULTIPLE = re.compile("千[克米瓦卡焦帕伏]|百[合货分]")
_NOT_UNIT = re.compile(
    "and|or|to|not|is|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|mod|choose|inf|infinity|pi"
)
_NUMBER_AND_A_HALF = re.compile("^个?半|半$|分之|^多|^余")

_CHINESE = "\u4e00-\u9fff"
_MONEY = re.compile(
    r"(?P<sign>[-+]?)\s*(?P<unit>US\$|\\?\$|[€£¥₹]|(?:USD|RMB|CNY|Rs\.?)\b)"
    r"\s*(?P<rest>[-+]?(?:\d|\.\d|\\[dtc]?frac).*)",
    re.DOTALL,
)
_WORD = rf"(?:[A-Za-zµ°㎠$%€£¥₹¢{_CHINESE}]|\\[$%])+(?:\^\{{?-?\d\}}?|[23](?!\d))?"
_UNIT = re.compile(rf"\(?\s*{_WORD}(?:[\s./*·-]+{_WORD})*\.?\s*\)?")
_TAIL = re.compile(rf"(?:(?<=[\d)}}\]!])|(?<=\\pi))\s*(?=[(A-Za-zµ°㎠$€£¥₹¢%\\{_CHINESE}])")
_TEXT = re.compile(r"\\(?:text(?:rm|bf|it|normal)?|mathrm|mbox)\s*\{([^{}]*)\}")
_TEXT_UNIT = rf"{_TEXT.pattern}(?:\^\{{?-?\d\}}?)?"
_TEXT_TAIL = re.compile(rf"\s*{_TEXT_UNIT}(?:[\s/]*{_TEXT_UNIT})*[\s/]*$")
_GLUED = re.compile(r"([-+]?[\d.,/]+)([mghslL])")


def split_unit(text: str) -> tuple[str, str]:
    r"""Return the value and the unit of an answer; the unit is empty where none is stated.

    Number words belong to the value (``3 million``, ``3万``), and so does percent. Words are a
    unit behind a number, and ``\text{}`` is one at the end; a single letter is one behind a number
    and a space only, because ``5m`` may be a product.
    """
    money = _MONEY.fullmatch(text)
    if money:
        value, unit = split_unit(money["sign"] + money["rest"])
        return value, f"{money['unit']} {unit}".strip()
    value, end = _split_text(text)
    value, unit = _split_words(value)
    return _move_multiple(value, f"{unit} {end}".strip())


def split_glued_letter(text: str) -> tuple[str, str] | None:
    """Return the value and the unit of a number with a letter such as ``5m``; None otherwise."""
    match = _GLUED.fullmatch(text)
    return (match[1], match[2]) if match else None


def _split_text(text: str) -> tuple[str, str]:
    match = _TEXT_TAIL.search(text)
    if match is None:
        return text, ""
    value = text[: match.start()].rstrip()
    unit = _TEXT.sub(lambda inner: f" {inner[1].strip()}", match.group()).strip()
    is_whole = bool(value) and value[-1] not in "+-*/=<>,;:([{^_&\\"
    return (value, unit) if is_whole and _UNIT.fullmatch(unit) else (text, "")


def _split_words(text: str) -> tuple[str, str]:
    for place in _TAIL.finditer(text):
        value, unit = text[: place.start()], text[place.end() :]
        is_glued = place.start() == place.end() and unit[0] != "("
        if _UNIT.fullmatch(unit) and _is_unit(unit, value=value, is_glued=is_glued):
            return value, unit.strip("() ")
    return text, ""


def _is_unit(unit: str, *, value: str, is_glued: bool) -> bool:
    words = re.findall(rf"[a-zµ]+|[{_CHINESE}]+|[^\s\w^{{}}()./*·-]", unit.lower())
    first = next((word for word in words if not is_filler(word)), words[0])
    if any(_NOT_UNIT.fullmatch(word) for word in words) or _NUMBER_AND_A_HALF.search(first):
        return False
    if is_chinese(first) or not first.isalpha():
        return True
    if len(first) == 1:
        return is_known(first) and not is_glued and read_number(value) is not None
    return is_known(first) or (not is_glued and len(first) > 2)


def _move_multiple(value: str, unit: str) -> tuple[str, str]:
    """Move a number word or percent from the unit to the value."""
    for word in _PER_CENT:
        if unit.lower().startswith(word):
            return rf"{value}\%", ""
    for word, power in _MULTIPLES.items():
        if unit.lower().startswith(word) and not _NO_MULTIPLE.match(unit):
            return rf"{value} \times 10^{{{power}}}", unit[len(word) :].strip()
    return value, unit
