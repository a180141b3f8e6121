"""Reward for a poem with a judgement of its own quality."""

import re


def judged_poem(completions, **columns):
    """Read the mark out of ten that the poet gives in the closing line."""
    scores = []
    for text in completions:
        match = re.search(r"score:\s*(\d\d?)\s*/\s*10", text, re.IGNORECASE)
        scores.append(min(int(match.group(1)) / 10, 1.0) if match else 0.0)
    return scores
