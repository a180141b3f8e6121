"""Verdicts in tags: ``<true_false>True</true_false>``, read strictly or not at all."""

import re
from collections.abc import Sequence

from groupwise.core import JudgeError

_NAME = re.compile(r"[a-z][a-z_]*")


def read_tag(text: str, tag: str, labels: Sequence[str]) -> str | None:
    """Return the label between the one pair of tags in ``text``, or None.

    None unless the text has exactly one opening and one closing tag, in this order and spelled
    exactly, and between them one label, spelled as in ``labels`` (white space around it does not
    count). Anything else that begins like the tag, in any case, is a second one.

    Raises:
        JudgeError: if the tag is not lower-case letters and underscores.
    """
    if not _NAME.fullmatch(tag):
        raise JudgeError("this cannot be a tag", got=repr(tag), expected="a-z and underscores")
    begun = re.findall(rf"<\s*/?\s*{tag}", text, flags=re.IGNORECASE)
    found = re.search(rf"<{tag}>([^<>]*)</{tag}>", text)
    if len(begun) != 2 or found is None:
        return None
    label = found.group(1).strip()
    return label if label in labels else None
