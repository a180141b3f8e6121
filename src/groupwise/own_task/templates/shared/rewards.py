"""Rewards of your own. Each takes an example and a completion and returns a number in [0, 1].

Return None where an answer cannot be scored. A second argument called `answer` gets what was read
of the completion: `answer.label`. TRL's shape, f(completions, **columns), works too.
Modules beside this file may be imported; a change in them or here trains again.
"""


def brevity(example, completion):
    """Return more for fewer words: 1 up to 12 words, 0 from 36."""
    num_words = len(completion.text.split())
    return min(1.0, max(0.0, (36 - num_words) / 24))
