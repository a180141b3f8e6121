"""Reading lessons for a preset: questions about lists of descriptions that the words answer.

A published model can read; a preset cannot, and an adapter on a few groups would not teach it.
No verdict is taught here: the lists are photos drawn at random, whatever groups they are of.
"""

import random
from collections.abc import Sequence

from groupwise.core import Message, derive_seed, make_example
from groupwise.training import SftRow
from groupwise_recipes.group_qc.groups import TaughtPhoto
from groupwise_recipes.group_qc.prompts import PHOTO_KEY

_NOTHING = "无"
_NEGATIVE = ("未", "不")
_MAX_PHOTOS = 5


def make_reading_rows(
    photos: Sequence[TaughtPhoto], *, num_rows: int, seed: int, epoch: int
) -> list[SftRow]:
    """Return questions for an epoch: the negative remark, or what is said of a thing."""
    rng = random.Random(derive_seed(seed, "reading", epoch))
    by_mission: dict[str, list[str]] = {}
    for photo in photos:
        by_mission.setdefault(photo.mission, []).append(photo.description)
    missions = sorted(by_mission)
    rows: list[SftRow] = []
    for _ in range(num_rows):
        mission = rng.choice(missions)
        lines = rng.choices(by_mission[mission], k=rng.randint(1, _MAX_PHOTOS))
        rows.append(_make_row(mission, lines, by_mission[mission], rng))
    return rows


def _make_row(
    mission: str, lines: Sequence[str], known: Sequence[str], rng: random.Random
) -> SftRow:
    parts = [part for line in lines for part in line.split("，")]
    if rng.random() < 0.5:
        question = "负面描述？"
        found = [part for part in parts if any(mark in part for mark in _NEGATIVE)]
    else:
        name = rng.choice(rng.choice(known).split("，")).partition("/")[0].partition("×")[0]
        question = f"{name}？"
        found = [part for part in parts if part.startswith(name)]
    answer = found[0].partition("×")[0] if found else _NOTHING
    listed = "\n".join(f"{PHOTO_KEY}{n}: {line}" for n, line in enumerate(lines, start=1))
    text = f"任务：{mission}\n摘要列表：\n{listed}\n{question}"
    return SftRow(make_example([Message("user", text)], group=mission), answer)
