"""Reward for a lipogram: a sentence on a topic that never uses one letter."""

import re
from itertools import pairwise

SMALL_WORD_LIST = (
    "a about across after all along among an and any are around as at be been before behind but by "
    "can could do down every few for from had has have he her him his how i if in into is it its "
    "let like many more most much my near no not of off old on once one or our out over own she so "
    "some such than that the their them then they this through till to under up us very was we "
    "were what when where which while who will with would you your"
)
SMALL_WORDS = set(SMALL_WORD_LIST.split())
ARTICLES = {"a", "an", "the"}
LINKS = ARTICLES | {"and", "as", "at", "but", "of", "or", "our", "my", "than", "their", "to"}


def _is_sentence(text, words):
    if not re.fullmatch(r"[A-Z][A-Za-z',;: -]*[.!?]", text) or not 7 <= len(words) <= 40:
        return False
    if text.count(",") > len(words) / 4:
        return False
    small = sum(word in SMALL_WORDS for word in words)
    return (
        len(set(words)) >= 0.7 * len(words)
        and 0.2 * len(words) <= small <= 0.7 * len(words)
        and sum(map(len, words)) >= 2.8 * len(words)
        and max(map(len, words)) <= 16
        and words[-1] not in LINKS
        and not any(
            one == two or (one in ARTICLES and two in LINKS) for one, two in pairwise(words)
        )
        and all(re.search("[aeiouy]", word) for word in words)
    )


def missing_letter(completions, topic, letter, **columns):
    """Full marks without the letter, 0.3 for a sentence in which it slips in once."""
    scores = []
    for text, subject, avoided in zip(completions, topic, letter, strict=True):
        text = text.strip()
        words = re.findall(r"[a-z']+", text.lower())
        if subject not in words or not _is_sentence(text, words):
            scores.append(0.0)
            continue
        slips = text.lower().count(avoided)
        scores.append(1.0 if slips == 0 else 0.3 if slips == 1 else 0.0)
    return scores
