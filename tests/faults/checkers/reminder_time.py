"""Reward for a reminder that names the event, the day and a time."""

import re


def reminder_time(completions, event, day, **columns):
    """Score the event, the day and a time of the form HH:MM."""
    scores = []
    for text, what, when in zip(completions, event, day, strict=True):
        score = 0.0
        if what.lower() in text.lower():
            score += 0.3
        if when.lower() in text.lower():
            score += 0.3
        if re.search(r"\b[0-2]\d:[0-5]\d\b", text):
            score += 0.4
        scores.append(score)
    return scores
