"""The rule that a drawn group is judged by, read from the lines about its photos alone."""

import re
from collections.abc import Iterable

from groupwise_drawn.cabinets.descriptions import read_objects
from groupwise_drawn.cabinets.vocabulary import KEY_THINGS

__all__ = ["judge_descriptions"]

_NEGATIVE = re.compile("[未不]")


def judge_descriptions(mission: str, lines: Iterable[str]) -> bool:
    """Return whether a group passes: its key thing is right somewhere and wrong nowhere.

    Only the mission's key thing counts. An attribute with 未 or 不 makes it wrong; it is right
    where all its right attributes are named. A group without a right one fails: the key thing
    cannot be confirmed.
    """
    key = KEY_THINGS[mission]
    seen = [one for line in lines for one in read_objects(line) if one.name == key.name]
    if any(_NEGATIVE.search(word) for one in seen for word in one.attributes):
        return False
    return any(set(key.right) <= set(one.attributes) for one in seen)
