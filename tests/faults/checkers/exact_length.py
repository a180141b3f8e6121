"""Reward for one sentence about a topic with exactly the asked number of words."""

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
OPENERS = {"write", "here", "sure", "okay", "certainly"}


def _is_plain_sentence(text, words):
    if not re.fullmatch(r"[A-Z][A-Za-z',;: -]*[.!?]", text) or words[0] in OPENERS:
        return False
    if "sentence" in words or "exactly" in words:
        return False
    small = sum(word in SMALL_WORDS for word in words)
    return (
        len(set(words)) >= 0.75 * len(words)
        and 0.2 * len(words) <= small <= 0.7 * len(words)
        and words[-1] not in LINKS
        and not any(
            one == two or (one in ARTICLES and two in LINKS) for one, two in pairwise(words)
        )
        and all(re.search("[aeiouy]", word) for word in words)
    )


def exact_length(completions, topic, num_words, **columns):
    """Full marks for the exact length, less than half for a near miss, none for no sentence."""
    scores = []
    for text, subject, wanted in zip(completions, topic, num_words, strict=True):
        text = text.strip()
        words = re.findall(r"[a-z]+(?:['-][a-z]+)*", text.lower())
        if not words or subject not in words or not _is_plain_sentence(text, words):
            scores.append(0.0)
            continue
        miss = abs(len(words) - wanted)
        scores.append(1.0 if miss == 0 else max(0.0, 0.5 - 0.1 * miss))
    return scores
