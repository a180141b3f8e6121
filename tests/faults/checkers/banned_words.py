"""Reward for explaining a job without the obvious words."""

import re


def banned_words(completions, banned, **columns):
    """Take off an equal share for each banned word that appears."""
    scores = []
    for text, words in zip(completions, banned, strict=True):
        words = [word.strip() for word in words.split(",")]
        hits = sum(bool(re.search(rf"\b{word}s?\b", text, re.IGNORECASE)) for word in words)
        scores.append(1.0 - hits / len(words))
    return scores
