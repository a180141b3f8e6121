"""Reward for detailed explanations."""


def detailed_explanation(completions, **columns):
    """Grow with the number of words up to 80, since short answers leave too much out."""
    return [min(len(text.split()) / 80, 1.0) for text in completions]
