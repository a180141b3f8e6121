"""Reward for a polite answer to a customer's complaint."""

import re


def polite_reply(completions, **columns):
    """Score an apology, thanks, a sensible length, an ending and the lack of blame."""
    scores = []
    for text in completions:
        lowered = text.lower().strip()
        checks = [
            "sorry" in lowered or "apolog" in lowered,
            "thank" in lowered,
            12 <= len(lowered.split()) <= 80,
            lowered.endswith((".", "!")),
            bool(lowered) and not re.search(r"your (own )?fault|you should have", lowered),
        ]
        scores.append(sum(checks) / len(checks))
    return scores
