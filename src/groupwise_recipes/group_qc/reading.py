"""Reading lessons for a preset: do these lines speak well or ill of what the task is about?

A published model can read; a preset cannot, and an adapter on a few groups would not teach it.
The form is Stage B's, but no verdict is asked for or given: the lists are photos drawn at random,
whatever groups they are of, and the lines alone answer. What passes is left to Stage B.
"""

import random
from collections.abc import Sequence

from groupwise.core import derive_seed, make_example
from groupwise.training import SftRow
from groupwise_recipes.group_qc.groups import TaughtPhoto
from groupwise_recipes.group_qc.missions import Mission, MissionTable
from groupwise_recipes.group_qc.prompts import PHOTO_KEY, ask_of_summaries

UNKNOWN, NEGATIVE, POSITIVE = TONES = ("无法确认", "负面", "正面")
_NEGATIVE_MARKS = ("未", "不")
_MAX_PHOTOS = 5
_MAX_TRIES = 20


def make_reading_rows(
    photos: Sequence[TaughtPhoto],
    missions: MissionTable,
    *,
    num_rows: int,
    seed: int,
    epoch: int,
) -> list[SftRow]:
    """Return the lessons of an epoch: things that are unclear, bad and good, in turn."""
    rng = random.Random(derive_seed(seed, "reading", epoch))
    lines: dict[str, list[str]] = {}
    for photo in photos:
        lines.setdefault(photo.mission, []).append(photo.description)
    things = {name: find_thing(missions[name], known) for name, known in lines.items()}
    rows: list[SftRow] = []
    for number in range(num_rows):
        name = rng.choice(sorted(lines))
        wanted = TONES[number % len(TONES)]
        drawn = _draw_lines(lines[name], things[name], wanted=wanted, rng=rng)
        rows.append(_make_row(name, missions[name], drawn, things[name]))
    return rows


def find_thing(mission: Mission, lines: Sequence[str]) -> str:
    """Return the thing that the mission's focus names first, of those that stand in the lines."""
    names = {
        part.partition("/")[0].partition("×")[0] for line in lines for part in line.split("，")
    }
    found = [name for name in names if name in mission.focus]
    return min(found, key=mission.focus.index, default="")


def describe_thing(thing: str, lines: Sequence[str]) -> tuple[str, str]:
    """Return how lines speak of a thing and their words: the first bad ones, else the first good.

    A thing that is not named, or only as unclear, is unclear.
    """
    parts = [part.partition("×")[0].split("/") for line in lines for part in line.split("，")]
    own = [words for name, *words in parts if name == thing]
    bad = [[word for word in words if _is_negative(word)] for words in own]
    for words in filter(None, bad):
        return NEGATIVE, f"{thing}：{'、'.join(words)}"
    for words in own:
        if words and UNKNOWN not in words:
            return POSITIVE, f"{thing}：{'、'.join(words)}"
    return UNKNOWN, "有要点无法确认"


def _draw_lines(known: Sequence[str], thing: str, *, wanted: str, rng: random.Random) -> list[str]:
    """Return photos' lines that speak as wanted, where a few tries find such."""
    drawn: list[str] = []
    for _ in range(_MAX_TRIES):
        drawn = rng.choices(known, k=rng.randint(1, _MAX_PHOTOS))
        if describe_thing(thing, drawn)[0] == wanted:
            break
    return drawn


def _is_negative(text: str) -> bool:
    return any(mark in text for mark in _NEGATIVE_MARKS)


def _make_row(name: str, mission: Mission, lines: Sequence[str], thing: str) -> SftRow:
    listed = {f"{PHOTO_KEY}{number}": line for number, line in enumerate(lines, start=1)}
    messages = ask_of_summaries(name, mission.key_points, listed, words=TONES)
    tone, reason = describe_thing(thing, lines)
    return SftRow(make_example(messages, cluster=name), f"{tone}\n理由：{reason}")
