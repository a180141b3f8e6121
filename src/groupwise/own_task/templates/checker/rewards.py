"""What an answer has to be, checked by code: no reference answer is needed.

Each function takes an example, whose columns are in `example.fields`, and a completion, and returns
a number in [0, 1] (True and False count as 1 and 0), or None where it cannot tell.
"""

import re

MAX_WORDS = 15


def list_checks(example, completion):
    """Return whether an answer passes each check."""
    text = completion.text.strip()
    words = re.findall(r"[a-z']+", text.lower())
    asked = example.fields
    return {
        "names the topic": asked["topic"].split()[-1] in words,
        "has the first word": asked["first"] in words,
        "has the second word": asked["second"] in words,
        "is short": 4 <= len(words) <= MAX_WORDS,
        "is one sentence": re.fullmatch(r"[^.!?\n]+[.!?]", text) is not None,
        # A policy wrote `The sentence uses the words "red" and "iron" to describe a tower.`
        "speaks of the topic": bool(words)
        and not re.search(r'["“”]|sentence|\bwords?\b', text.lower()),
    }


def checks(example, completion):
    """Return the share of the checks that an answer passes: a reward that grows step by step."""
    found = list_checks(example, completion).values()
    return sum(found) / len(found)


def passes(example, completion):
    """Return whether an answer passes every check: what is measured in the end."""
    return all(list_checks(example, completion).values())


def new_words(example, completion):
    """Return the share of the words that are said once: no reward, it shows what is forgotten."""
    words = re.findall(r"[a-z']+", completion.text.lower())
    return len(set(words)) / len(words) if words else None
