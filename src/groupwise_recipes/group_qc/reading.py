"""Reading lessons for Stage A: do these lines speak well or ill of what the task is about?

A published model can read; a tiny random-init one cannot, and an adapter on a few photo groups
would not teach it. The form is Stage B's, but no verdict is asked for or given: the lists are
photos drawn at random, whatever groups they are of, and the lines alone answer. What passes is left
to Stage B.
"""

import random
from collections.abc import Sequence

from groupwise.core import derive_seed, make_example
from groupwise.training import SftRow
from groupwise_recipes.group_qc.groups import TaughtPhoto
from groupwise_recipes.group_qc.missions import Mission
from groupwise_recipes.group_qc.prompts import Questions
from groupwise_recipes.group_qc.summaries import number_summaries
from groupwise_recipes.group_qc.words import Words

_MAX_PHOTOS = 5
_MAX_TRIES = 20


def make_reading_rows(
    photos: Sequence[TaughtPhoto], questions: Questions, *, num_rows: int, seed: int, epoch: int
) -> list[SftRow]:
    """Return the lessons of an epoch: things that are unclear, bad and good, in turn."""
    rng = random.Random(derive_seed(seed, "reading", epoch))
    words = questions.words
    lines: dict[str, list[str]] = {}
    for photo in photos:
        lines.setdefault(photo.mission, []).append(photo.description)
    things = {
        name: find_thing(questions.missions[name], known, words) for name, known in lines.items()
    }
    rows: list[SftRow] = []
    for number in range(num_rows):
        name = rng.choice(sorted(lines))
        wanted = words.tones[number % len(words.tones)]
        drawn = _draw_lines(lines[name], things[name], words, wanted=wanted, rng=rng)
        rows.append(_make_row(name, drawn, things[name], questions))
    return rows


def find_thing(mission: Mission, lines: Sequence[str], words: Words) -> str:
    """Return the thing that the mission's focus names first, of those that stand in the lines."""
    names = {
        part.partition("/")[0].partition("×")[0]
        for line in lines
        for part in line.split(words.comma)
    }
    found = [name for name in names if name in mission.focus]
    return min(found, key=mission.focus.index, default="")


def describe_thing(thing: str, lines: Sequence[str], words: Words) -> tuple[str, str]:
    """Return how lines speak of a thing and their words: the first bad ones, else the first good.

    A thing that is not named, or only as unclear, is unclear.
    """
    unknown, negative, positive = words.tones
    parts = [
        part.partition("×")[0].split("/") for line in lines for part in line.split(words.comma)
    ]
    own = [said for name, *said in parts if name == thing]
    bad = [[one for one in said if one != unknown and words.is_negative(one)] for said in own]
    good = [said for said in own if said and unknown not in said]
    for tone, found in ((negative, [*filter(None, bad)]), (positive, good)):
        if found:
            return tone, f"{thing}{words.colon}{words.pause.join(found[0])}"
    return unknown, words.unclear


def _draw_lines(
    known: Sequence[str], thing: str, words: Words, *, wanted: str, rng: random.Random
) -> list[str]:
    """Return photos' lines that speak as wanted, where a few tries find such."""
    drawn: list[str] = []
    for _ in range(_MAX_TRIES):
        drawn = rng.choices(known, k=rng.randint(1, _MAX_PHOTOS))
        if describe_thing(thing, drawn, words)[0] == wanted:
            break
    return drawn


def _make_row(name: str, lines: Sequence[str], thing: str, questions: Questions) -> SftRow:
    words = questions.words
    listed = number_summaries(lines, words)
    messages = questions.ask_of_summaries(name, listed, answers=words.tones)
    tone, reason = describe_thing(thing, lines, words)
    return SftRow(make_example(messages, cluster=name), f"{tone}\n{words.reason}{reason}")
