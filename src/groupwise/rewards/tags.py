"""Tags around the parts of an answer: ``<think>…</think><answer>…</answer>`` and the like.

Each stands once, in the given order and with contents. White space may stand before, between and
after the tagged parts, and nothing else.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def check_tags(tags: Sequence[str]) -> None:
    """Refuse names that are no tags or cannot be told apart.

    Raises:
        ValueError: naming the first such.
    """
    for tag in tags:
        if not _NAME.fullmatch(tag):
            raise ValueError(f"{tag!r} cannot be a tag; expected letters, digits, - and _")
    if len(set(tags)) < len(tags):
        raise ValueError(f"a tag appears twice in {list(tags)}")


def find_tags(text: str, tags: Sequence[str]) -> tuple[dict[str, tuple[int, int]], str]:
    """Return where the stripped contents of each tag start and end in ``text``.

    Returns:
        (places, "") or ({}, why the text does not have this form).
    """
    problem = _find_problem(text, tags)
    if problem:
        return {}, problem
    places: dict[str, tuple[int, int]] = {}
    for tag in tags:
        inside = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        if not inside.strip():
            return {}, f"<{tag}> is empty"
        start = text.index(f"<{tag}>") + len(f"<{tag}>") + len(inside) - len(inside.lstrip())
        places[tag] = (start, start + len(inside.strip()))
    return places, ""


def write_tags(contents: Mapping[str, str]) -> str:
    """Return the text with these contents by tag."""
    return "".join(f"<{tag}>{content}</{tag}>" for tag, content in contents.items())


def _find_problem(text: str, tags: Sequence[str]) -> str:
    if not text.strip():
        return "empty answer"
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    for mark in marks:
        num_found = text.count(mark)
        if num_found == 0:
            return f"{mark} is missing"
        if num_found > 1:
            return f"{mark} appears {num_found} times"
    for mark, following in pairwise(marks):
        if text.index(following) < text.index(mark):
            return f"{following} is before {mark}"
    return _find_stray_text(text, tags)


def _find_stray_text(text: str, tags: Sequence[str]) -> str:
    rest = text
    for tag in tags:
        before, _, inside = rest.partition(f"<{tag}>")
        if before.strip():
            return f"there is text before <{tag}>"
        rest = inside.partition(f"</{tag}>")[2]
    return f"there is text after </{tags[-1]}>" if rest.strip() else ""
