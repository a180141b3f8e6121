r"""The unit behind a number: ``18 dollars``, ``9 (apples)``, ``5 \text{ m/s}``, ``3个``, ``$18``.

A unit says what is counted or measured and is no part of the value. Nothing is converted: 2 hours
and 120 minutes are different answers.
"""

import re
from collections.abc import Set

from groupwise.rewards.math_notation import read_number

_MONEY_TABLE = """
dollar $ us$ usd buck 美元 美金
cent ¢ 美分
euro € eur 欧元
pound £ gbp lb 英镑 磅
yuan ¥ rmb cny 元 块 元钱 块钱 人民币
jiao 角 毛
yen jpy 日元 円
rupee ₹ rs inr 卢比
"""
_MEASURE_TABLE = """
mm millimeter millimetre 毫米
cm centimeter centimetre 厘米 公分
dm decimeter decimetre 分米
meter m metre 米
km kilometer kilometre 千米 公里
inch in 英寸
foot ft feet 英尺
yard yd 码
mile mi 英里
mg milligram 毫克
gram g 克
kg kilogram kilo 千克 公斤
ton tonne 吨
ounce oz 盎司
jin 斤
ml milliliter millilitre 毫升
liter l litre 升
gallon gal 加仑
quart qt
pint pt
cup 杯 杯子
second s sec 秒 秒钟
minute min 分钟
hour h hr 小时
day 天 日
week wk 周 星期
month mo 月 个月
year yr 年 岁
am 上午
pm 下午
degree ° deg 度
celsius c 摄氏度
fahrenheit f 华氏度
radian rad 弧度
hectare ha 公顷
acre 英亩
newton n 牛
joule j 焦
watt w 瓦
volt v 伏
hertz hz 赫兹
time 次 倍
dozen 打
child children
person people 人
man men
woman women
mouse mice
leaf leaves
"""
_SPELLINGS = (
    *(("mph", "mile / hour"), ("kmh", "km / hour"), ("kph", "km / hour")),
    *(("㎠", "cm^2"), ("每", " / "), ("平方", " square "), ("立方", " cubic ")),
)
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3"}
_FILLER = re.compile("of|the|an?|in|for|to|left|more|total|each|altogether")
_COUNTERS = "个只条张本支枝位名件台辆棵朵块份袋盒箱瓶头匹把根颗粒套双对间座家篇首"
_NAME = re.compile("/|[a-zµ]+(?:\\^?-?\\d)?|[\u4e00-\u9fff]+(?:\\^?\\d)?|[^\\s\\w\\\\()*·-]")


def _read_table(table: str) -> dict[str, str]:
    rows = [line.split() for line in table.strip().splitlines()]
    return {spelling: row[0] for row in rows for spelling in row}


_MONEY_NAMES = frozenset(_read_table(_MONEY_TABLE).values())
_NAMES = _read_table(_MONEY_TABLE) | _read_table(_MEASURE_TABLE)


def is_known(word: str) -> bool:
    """Say whether a word in lower case, with or without a plural ending, is in the tables."""
    return _drop_plural(word) in _NAMES or word in _POWERS or word in dict(_SPELLINGS)


def is_measure(unit: str) -> bool:
    """Say whether a unit measures something or is money, rather than counting things."""
    return any(_is_named(word) for word in list_names(unit))


def is_filler(word: str) -> bool:
    """Say whether a word says nothing about what is counted."""
    return _FILLER.fullmatch(word) is not None


def is_chinese(word: str) -> bool:
    """Say whether a word begins with a Chinese character."""
    return "\u4e00" <= word[:1] <= "\u9fff"


def has_other_unit(a: str, b: str) -> bool:
    """Say whether two units, as far as they are stated, are different ones.

    Known units must be the same; of a price, ``per hour`` may be left out, and of a temperature
    ``Celsius``. Other things must have a word in common. Things that are unknown here and named in
    two languages cannot be told apart.
    """
    words_a, words_b = list_names(a), list_names(b)
    known_a, known_b = ({word for word in words if _is_named(word)} for words in (words_a, words_b))
    if not words_a or not words_b:
        return False
    if known_a and known_b:
        return not _may_stand_for(*sorted((known_a, known_b), key=len))
    is_foreign = _is_any_chinese(words_a) != _is_any_chinese(words_b)
    if is_foreign and not known_a and not known_b:
        return False
    return not any(_is_same_thing(x, y) for x in words_a for y in words_b)


def list_names(unit: str) -> set[str]:
    """Return the words of a unit by their names here: ``{dollar, /hour}``, ``{cm^2}``."""
    text = unit.lower().replace(".", "").replace("{", "").replace("}", "")
    for short, whole in _SPELLINGS:
        text = text.replace(short, whole)
    words = _NAME.findall(text)
    names: set[str] = set()
    prefix = power = ""
    for word in words:
        if word in ("per", "/"):
            prefix = "/"
        elif word in _POWERS:
            power = _POWERS[word]
        elif len(words) == 1 or not is_filler(word):
            names |= {prefix + name for name in _name(word, power)}
            prefix = power = ""
    return names


def _is_named(name: str) -> bool:
    return name.strip("/^23") in _NAMES


def _name(word: str, power: str) -> list[str]:
    """Return the name of a word with its power; none if it is only a Chinese counter."""
    base = word.rstrip("0123456789").rstrip("^-") or word
    written = word[len(base) :].lstrip("^")
    name = _name_chinese(base) if is_chinese(base) else _NAMES.get(_drop_plural(base))
    power = power or (f"^{written}" if written else "")
    return [(_drop_plural(base) if name is None else name) + power] if name != "" else []


def _name_chinese(word: str) -> str:
    """Return a known name, what stands behind a counter, or nothing for a mere counter."""
    if word in _NAMES:
        return _NAMES[word]
    rest = word[1:] if word[0] in _COUNTERS else word
    if rest in _NAMES:
        return _NAMES[rest]
    known = [length for length in (3, 2) if rest[:length] in _NAMES and len(rest) > length]
    return _NAMES[rest[: known[0]]] if known else rest


def _drop_plural(word: str) -> str:
    if word in _NAMES or len(word) < 3 or not word.endswith("s") or word.endswith("ss"):
        return word
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(("ches", "shes", "xes", "sses", "zes")) else word[:-1]


def _may_stand_for(short: Set[str], long: Set[str]) -> bool:
    is_rate = any(word.startswith("/") for word in long - short)
    return short <= long and (not is_rate or not short.isdisjoint(_MONEY_NAMES))


def _is_any_chinese(words: Set[str]) -> bool:
    return any(is_chinese(word.lstrip("/")) for word in words)


def _is_same_thing(a: str, b: str) -> bool:
    return a == b or (is_chinese(a) and is_chinese(b) and (a in b or b in a))


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
