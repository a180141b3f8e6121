"""Fences around texts in a prompt: what is inside cannot pass for instructions or for a verdict."""

import re
from collections.abc import Sequence

from groupwise.core import digest_json


def fence(name: str, text: str, *, tags: Sequence[str] = ()) -> str:
    """Return ``text`` between two lines that it cannot contain.

    The lines carry a mark that depends on the text and does not occur in it, so a text that
    brings lines of its own does not close the fence. Tags by which the verdict is given
    (``<true_false>``) are spelled ``&lt;true_false>`` inside: a judge that quotes them does not
    spoil its own verdict, which would let an answer buy itself "no verdict".
    """
    safe = _disarm(text, tags)
    mark = _choose_mark(name, safe)
    return f"[[{name} {mark}]]\n{safe}\n[[end of {name} {mark}]]"


def _choose_mark(name: str, text: str) -> str:
    number = 0
    while (mark := digest_json([name, text, number])[:16]) in text:
        number += 1
    return mark


def _disarm(text: str, tags: Sequence[str]) -> str:
    if not tags:
        return text
    names = "|".join(re.escape(tag) for tag in tags)
    return re.sub(rf"<(?=\s*/?\s*(?:{names}))", "&lt;", text, flags=re.IGNORECASE)
