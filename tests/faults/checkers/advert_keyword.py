"""Reward for an advert that stays with its selling point."""


def advert_keyword(completions, keyword, **columns):
    """Count how often the advert comes back to the keyword, with full marks for six."""
    scores = []
    for text, word in zip(completions, keyword, strict=True):
        scores.append(min(text.lower().count(word) / 6, 1.0))
    return scores
