"""Values that no run can use, whatever they are for."""

import math
from collections.abc import Iterable, Mapping, Set
from pathlib import PurePath
from typing import cast

_MAX_WHOLE = 10**9
_MAX_NUMBER = 10**12


def find_unusable(value: object, *, may_be_huge: bool = False) -> str | None:
    """Return what is wrong with a setting, or with what is in it; None if a run can use it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _judge_number(value, may_be_huge=may_be_huge)
    if isinstance(value, str | PurePath):
        return _judge_text(str(value))
    inner = (find_unusable(one, may_be_huge=may_be_huge) for one in _list_inner(value))
    return next((problem for problem in inner if problem is not None), None)


def _judge_number(value: float, *, may_be_huge: bool) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "a number must be finite"
    limit = _MAX_WHOLE if isinstance(value, int) else _MAX_NUMBER
    is_huge = abs(value) > limit and not may_be_huge
    return f"a number must not be beyond {limit:,}" if is_huge else None


def _judge_text(text: str) -> str | None:
    if "\0" in text:
        return "a text must not hold a NUL"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a text must not hold half of a surrogate pair"
    return None


def _list_inner(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        found = cast("Mapping[object, object]", value)
        return [*found, *found.values()]
    return cast("Iterable[object]", value) if isinstance(value, list | tuple | Set) else ()
