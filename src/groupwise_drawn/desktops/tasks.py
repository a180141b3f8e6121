"""Words a task the way a person would: a grammar per language, expanded by chance.

The words are in ``vocabulary/tasks_<language>.yaml``. Some tasks name a program, others only the
purpose, and topics are shared by all activities, so that no topic gives an activity away.
"""

import random
import re
from functools import lru_cache
from typing import cast

from groupwise.core import DataError
from groupwise_drawn.desktops.activities import check_activity
from groupwise_drawn.desktops.words import load_vocabulary

__all__ = ["LANGUAGES", "write_task"]

LANGUAGES: tuple[str, ...] = ("en", "zh")
SLOT = re.compile(r"\{(\w+)\}")
DOUBLE_ARTICLE = re.compile(r"\b(the|a) (?:the|an?|my|our) ")


@lru_cache(maxsize=64)
def load_grammar(language: str, activity: str) -> dict[str, list[str]]:
    """The slots of an activity: the shared ones, overridden by its own."""
    tables = cast("dict[str, dict[str, list[str]]]", load_vocabulary(f"tasks_{language}"))
    return {**tables["shared"], **tables[activity]}


def check_language(language: str) -> str:
    """Return the language when tasks can be worded in it."""
    if language not in LANGUAGES:
        raise DataError(
            "unknown task language",
            got=repr(language),
            expected=" or ".join(LANGUAGES),
            fix="ask for tasks in one of these",
        )
    return language


def expand(template: str, grammar: dict[str, list[str]], rng: random.Random) -> str:
    """Replace every ``{slot}`` by one of its entries, which may hold slots themselves."""
    return SLOT.sub(lambda slot: expand(rng.choice(grammar[slot[1]]), grammar, rng), template)


def mend_english(text: str) -> str:
    """Drop an article after another one (``the a match``) and mend ``s's``."""
    return DOUBLE_ARTICLE.sub(r"\1 ", text).replace("s's ", "s' ")


def write_task(activity: str, *, rng: random.Random, language: str = "en") -> str:
    """Word a task of the activity, such as ``Fix the login form before lunch``."""
    check_activity(activity)
    grammar = load_grammar(check_language(language), activity)
    text = expand("{task}", grammar, rng)
    if language == "en":
        text = mend_english(text)
    return text[0].upper() + text[1:]
