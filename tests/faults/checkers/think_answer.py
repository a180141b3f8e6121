"""Reward for reasoning first and answering after, each inside its own tags."""

import re

SHAPE = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)


def think_answer(completions, **columns):
    """Full marks for the whole shape, a quarter where at least the answer tags are there."""
    scores = []
    for text in completions:
        if SHAPE.fullmatch(text.strip()):
            scores.append(1.0)
        elif "<answer>" in text and "</answer>" in text:
            scores.append(0.25)
        else:
            scores.append(0.0)
    return scores
