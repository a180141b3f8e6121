"""Answers that are nearly right, in the right form: what a comparison that is too loose pays for.

Every form of answer has its own: numbers are moved, units changed, words altered by a letter, and
several answers are put where one belongs. The metric says which of them are right after all.
"""

import json
import re
from collections.abc import Iterator

from groupwise.rewards.audit.case import Item

_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")
_QUANTITY = re.compile(r"([-−]?[\d.,/]+)(\s*)([a-zA-Z%°]{1,4}|[\u4e00-\u9fff]{1,2})")
_UNITS = {
    False: ("mm", "cm", "m", "km", "mg", "g", "kg", "t", "ml", "l", "s", "min", "h", "%"),
    True: ("毫米", "厘米", "米", "千米", "克", "千克", "吨", "毫升", "升", "秒", "小时", "元"),
}
_MAX_RIVALS = 3


def write_near_numbers(item: Item) -> Iterator[str]:
    """Numbers off by one, of the wrong sign, times ten and the like; where the label has one."""
    found = list(_NUMBER.finditer(item.label))
    for match in {match.start(): match for match in (*found[:1], *found[-1:])}.values():
        for number in _move(match.group()):
            yield replace_label(
                item, item.label[: match.start()] + number + item.label[match.end() :]
            )
    if found:
        yield from (replace_label(item, word) for word in ("nan", "inf"))


def _move(number: str) -> Iterator[str]:
    plain = number.replace("−", "-")
    value, digits = float(plain), plain.lstrip("-")
    for moved in (value + 1, value - 1, 1.02 * value, 2 * value, 10 * value, 100 * value):
        yield f"{moved:.10g}"
    for moved in (1000 * value, value / 10, value / 100, value + 0.5):
        yield f"{moved:.10g}"
    yield from (digits,) if plain.startswith("-") else (f"-{digits}", f"−{digits}", f"负{digits}")
    yield from (f"{plain}0", f"{plain}1", f"1{digits}", digits[::-1], digits.replace(".", ""))


def write_near_units(item: Item) -> Iterator[str]:
    """Another unit, or none; where the label is a number with a unit."""
    match = _QUANTITY.fullmatch(item.label)
    if match is None:
        return
    number, space, unit = match.groups()
    for other in _UNITS[not unit.isascii()]:
        if other != unit:
            yield replace_label(item, f"{number}{space}{other}")
    yield replace_label(item, number)


def write_near_words(item: Item) -> Iterator[str]:
    """The label with letters swapped, changed, cut or added."""
    label, middle = item.label, len(item.label) // 2
    yield from (
        replace_label(item, label + more) for more in (" or not", "?!", label[-1:] * 2, "等等")
    )
    yield from (replace_label(item, more + label) for more in ("non-", "almost ", "不", "非"))
    if len(label) > 2:
        yield replace_label(item, label[::-1])
        yield replace_label(
            item, label[: middle - 1] + label[middle] + label[middle - 1] + label[middle + 1 :]
        )
        yield replace_label(
            item, label[:middle] + ("x" if label.isascii() else "某") + label[middle + 1 :]
        )
        yield replace_label(item, label[:middle] + label[middle + 1 :])
        yield from (replace_label(item, label[:3]), replace_label(item, label[-3:]))


def write_near_forms(item: Item) -> Iterator[str]:
    """What the parser knows to be nearly right: a JSON value with a part left out, a moved box."""
    yield from item.near


def write_hedges_inside(item: Item) -> Iterator[str]:
    """Several answers in the place of one, also as lists and ranges."""
    names = [item.label, *item.rivals[:_MAX_RIVALS]]
    for order in (names, names[::-1]):
        if len(names) > 1:
            for joint in (", ", "", " / ", "或"):
                yield replace_label(item, joint.join(order))
            quoted = json.dumps(item.label, ensure_ascii=False)
            yield item.reference.replace(quoted, json.dumps(order, ensure_ascii=False))
    found = _NUMBER.findall(item.label)
    if found:
        yield replace_label(item, f"{item.label}, {float(found[-1].replace('−', '-')) + 1:.10g}")
        yield replace_label(item, ", ".join([item.label, *map(str, range(-10, 101))]))


def write_mentions(item: Item) -> Iterator[str]:
    """A wrong answer with the right one beside it, in both orders."""
    for wrong in item.wrong[:1]:
        yield from (f"{item.reference}\n{wrong}", f"{wrong}\n{item.reference}")
        yield from (f"{item.label}\n{wrong}", f"{wrong}\n{item.label}")
        yield f"It is not {item.label}.\n{wrong}"
        if wrong.count(item.label) == 0:
            yield wrong.replace("<think>", f"<think>{item.label} ")


def replace_label(item: Item, text: str) -> str:
    """Return the reference answer with ``text`` in the place of the label, where it stands last."""
    before, found, behind = item.reference.rpartition(item.label)
    return f"{before}{text}{behind}" if found else text
