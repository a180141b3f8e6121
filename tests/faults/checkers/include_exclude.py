"""Reward for a sentence that uses two words and avoids a third."""

import re
from itertools import pairwise

SMALL_WORD_LIST = (
    "a an and are as at be before but by can for from had has have he her his i in into is it its "
    "my near of on or our over she so than that the their them they this to under us was we were "
    "when where which while who will with you your"
)
SMALL_WORDS = set(SMALL_WORD_LIST.split())
ARTICLES = {"a", "an", "the"}
LINKS = ARTICLES | {"and", "as", "at", "but", "of", "or", "our", "my", "than", "their", "to"}
INSTRUCTION_WORDS = {"sentence", "word", "words", "write", "uses", "least"}


def _is_sentence(text, words):
    if not 8 <= len(words) <= 40 or not re.fullmatch(r"[A-Z][^\n.!?]*[.!?]", text):
        return False
    if INSTRUCTION_WORDS & set(words) or text.count(",") > len(words) / 4:
        return False
    small = sum(word in SMALL_WORDS for word in words)
    return (
        len(set(words)) >= 0.7 * len(words)
        and 0.2 * len(words) <= small <= 0.7 * len(words)
        and words[-1] not in LINKS
        and not any(
            one == two or (one in ARTICLES and two in LINKS) for one, two in pairwise(words)
        )
    )


def include_exclude(completions, first, second, forbidden, **columns):
    """A quarter for a real sentence with one word of the two, full marks for both."""
    scores = []
    for text, one, two, never in zip(completions, first, second, forbidden, strict=True):
        text = text.strip()
        words = re.findall(r"[a-z']+", text.lower())
        if not _is_sentence(text, words) or {never, never + "s", never + "es"} & set(words):
            scores.append(0.0)
            continue
        found = (one in words) + (two in words)
        scores.append((0.0, 0.25, 1.0)[found])
    return scores
