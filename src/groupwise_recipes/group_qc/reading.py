"""Reading lessons for a preset: what do these lines say of the thing that the task is about?

A published model can read; a preset cannot, and an adapter on a few groups would not teach it.
No verdict is taught here: the lists are photos drawn at random, whatever groups they are of, and
the words alone answer.
"""

import random
from collections.abc import Sequence

from groupwise.core import Message, derive_seed, make_example
from groupwise.training import SftRow
from groupwise_recipes.group_qc.groups import TaughtPhoto
from groupwise_recipes.group_qc.missions import Mission, MissionTable
from groupwise_recipes.group_qc.prompts import PHOTO_KEY

UNKNOWN = "无法确认"
_NEGATIVE = ("未", "不")
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
    """Return the lessons of an epoch: negative remarks, confirmed things and neither in turn."""
    rng = random.Random(derive_seed(seed, "reading", epoch))
    lines: dict[str, list[str]] = {}
    for photo in photos:
        lines.setdefault(photo.mission, []).append(photo.description)
    things = {name: find_thing(missions[name], known) for name, known in lines.items()}
    rows: list[SftRow] = []
    for number in range(num_rows):
        name = rng.choice(sorted(lines))
        drawn = _draw_lines(lines[name], things[name], wanted=number % 3, rng=rng)
        rows.append(_make_row(name, missions[name], drawn, describe_thing(things[name], drawn)))
    return rows


def find_thing(mission: Mission, lines: Sequence[str]) -> str:
    """Return the thing that the mission's focus names first, of those that stand in the lines."""
    names = {
        part.partition("/")[0].partition("×")[0] for line in lines for part in line.split("，")
    }
    found = [name for name in names if name in mission.focus]
    return min(found, key=mission.focus.index, default="")


def describe_thing(thing: str, lines: Sequence[str]) -> str:
    """Return the first negative remark about a thing, else how it is, else that it is unclear."""
    parts = [part.partition("×")[0].split("/") for line in lines for part in line.split("，")]
    own = [attributes for name, *attributes in parts if name == thing]
    negative = [[word for word in words if _is_negative(word)] for words in own]
    confirmed = [words for words in own if words and UNKNOWN not in words]
    said = next((words for words in [*filter(None, negative), *confirmed]), None)
    return f"{thing}：{'、'.join(said)}" if said else UNKNOWN


def _draw_lines(known: Sequence[str], thing: str, *, wanted: int, rng: random.Random) -> list[str]:
    """Return photos' lines that say what is wanted, where a few tries find such."""
    drawn: list[str] = []
    for _ in range(_MAX_TRIES):
        drawn = rng.choices(known, k=rng.randint(1, _MAX_PHOTOS))
        said = describe_thing(thing, drawn)
        if wanted == (0 if said == UNKNOWN else 1 if _is_negative(said) else 2):
            break
    return drawn


def _is_negative(text: str) -> bool:
    return any(mark in text for mark in _NEGATIVE)


def _make_row(name: str, mission: Mission, lines: Sequence[str], answer: str) -> SftRow:
    listed = (f"{PHOTO_KEY}{number}: {line}" for number, line in enumerate(lines, start=1))
    text = "\n".join(
        [
            f"任务：{name}",
            f"要点：{'；'.join(mission.key_points)}",
            "问题：摘要怎样描述要点？",
            "摘要列表：",
            *listed,
        ]
    )
    return SftRow(make_example([Message("user", text)], group=name), answer)
