"""Writes sets of drawn groups in the folder layout of inspection photos, with their true lines.

Deciding what a set is made of is ``planning``'s, drawing a photo ``views``'.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image

from groupwise.core import DataError, derive_seed, write_jsonl
from groupwise_drawn.cabinets.english import ENGLISH_MISSIONS, translate_description
from groupwise_drawn.cabinets.planning import GroupPlan, plan_group
from groupwise_drawn.cabinets.views import choose_view, describe_view, paint_view
from groupwise_drawn.cabinets.vocabulary import CABINET_MISSIONS, KEY_THINGS, State

__all__ = ["DESCRIPTIONS_NAME", "CabinetPhoto", "draw_cabinet", "write_cabinets"]

DESCRIPTIONS_NAME = "descriptions.jsonl"
SMALLEST = (112, 84)
JPEG_QUALITY = 90
_STATES: tuple[State, ...] = ("right", "wrong", "unclear", "irrelevant")
_FOLDERS = ("审核通过", "审核不通过")


@dataclass(frozen=True, slots=True)
class CabinetPhoto:
    """The truth about a drawn photo.

    Attributes:
        mission: of its group.
        state: of the mission's key thing on it.
        shows: what is seen: ``unit``, ``wire``, ``cables``, ``deflector``, ``closed``, ``floor``,
            ``door`` or ``sky``.
        variant: ``right``, the name of a fault, ``covered``, or empty where nothing is judged.
        description: the line about it, in the style of Stage A.
    """

    mission: str
    state: State
    shows: str
    variant: str
    description: str


def draw_cabinet(
    mission: str,
    *,
    rng: random.Random,
    state: State | None = None,
    size: tuple[int, int] = (224, 168),
    variety: float = 0.5,
) -> tuple[Image.Image, CabinetPhoto]:
    """Draw one photo of a group of the mission.

    Args:
        mission: one of ``CABINET_MISSIONS``.
        rng: decides everything; the same state of it gives the same photo.
        state: of the key thing; None: any.
        size: width and height in pixels, at least 112x84.
        variety: in [0, 1]: how much places, colours, view and light stray.

    Returns:
        An RGB picture and the truth about it.
    """
    check_drawing([mission], size, variety)
    if state is not None and state not in _STATES:
        raise DataError("unknown state", got=repr(state), expected=" or ".join(_STATES))
    state = state or rng.choice(_STATES)
    view = choose_view(mission, state, rng)
    image = paint_view(view, rng=rng, size=size, variety=variety)
    variant = "covered" if view.covered else view.variant
    return image, CabinetPhoto(mission, state, view.kind, variant, describe_view(view))


def write_cabinets(
    folder: Path,
    *,
    num_groups: int,
    seed: int,
    missions: Sequence[str] = CABINET_MISSIONS,
    pass_share: float = 0.5,
    size: tuple[int, int] = (224, 168),
    variety: float = 0.5,
    language: Literal["zh", "en"] = "zh",
    folders: tuple[str, str] = _FOLDERS,
) -> Path:
    """Write a set of groups and return its ``descriptions.jsonl``.

    Photos go to ``<mission>/{审核通过|审核不通过}/<group>/<group>-00k.jpg``. Each line of the
    descriptions has ``photo`` (relative to the folder), ``mission``, ``group_id``, ``label``
    (pass or fail), ``description``, ``state``, ``shows`` and ``variant``. They are written last
    and whole, so a folder with them is complete; the same arguments give the same bytes.

    Args:
        folder: made if it is missing; may hold photos of this set, but no others.
        num_groups: at least 1. N groups are the first N of any larger set of the same seed.
        seed: decides everything together with the group's number.
        missions: at least one of ``CABINET_MISSIONS``; each has as many groups as the others.
        pass_share: in [0, 1]: of the groups of each mission and number of photos.
        size: see ``draw_cabinet``.
        variety: see ``draw_cabinet``.
        language: of the missions' names and of the descriptions.
        folders: names of the folders of groups that pass and of those that fail.
    """
    check_drawing(missions, size, variety)
    check_set(num_groups, missions, pass_share)
    plans = [
        plan_group(index, seed=seed, missions=missions, pass_share=pass_share)
        for index in range(num_groups)
    ]
    index = folder / DESCRIPTIONS_NAME
    names = {plan: list_names(plan, language, folders) for plan in plans}
    check_folder(folder, {name for own in names.values() for name in own})
    index.unlink(missing_ok=True)
    rows = [
        row if language == "zh" else translate_row(row)
        for plan, own in names.items()
        for row in write_group(folder, plan, own, size=size, variety=variety)
    ]
    write_jsonl(index, rows)
    return index


def list_names(plan: GroupPlan, language: str, folders: tuple[str, str]) -> list[str]:
    """The photos of a group, relative to the set's folder."""
    mission = plan.mission if language == "zh" else ENGLISH_MISSIONS[plan.mission]
    group = f"{mission}/{folders[not plan.passes]}/{plan.group_id}"
    return [f"{group}/{plan.group_id}-{k:03d}.jpg" for k in range(1, len(plan.states) + 1)]


def translate_row(row: dict[str, str]) -> dict[str, str]:
    """Return a row of the descriptions in English."""
    mission, description = ENGLISH_MISSIONS[row["mission"]], row["description"]
    return {**row, "mission": mission, "description": translate_description(description)}


def write_group(
    folder: Path, plan: GroupPlan, names: Sequence[str], *, size: tuple[int, int], variety: float
) -> Iterator[dict[str, str]]:
    """Draw and write the photos of one group; yields their rows of the descriptions."""
    for name, state in zip(names, plan.states, strict=True):
        rng = random.Random(derive_seed(plan.seed, name))
        image, truth = draw_cabinet(plan.mission, rng=rng, state=state, size=size, variety=variety)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=JPEG_QUALITY)
        yield {
            "photo": name,
            "mission": plan.mission,
            "group_id": plan.group_id,
            "label": "pass" if plan.passes else "fail",
            "description": truth.description,
            "state": truth.state,
            "shows": truth.shows,
            "variant": truth.variant,
        }


def check_drawing(missions: Sequence[str], size: tuple[int, int], variety: float) -> None:
    """Refuse unknown missions, sizes below ``SMALLEST`` and variety outside [0, 1]."""
    for mission in missions:
        if mission not in KEY_THINGS:
            expected = "one of " + ", ".join(CABINET_MISSIONS)
            raise DataError(
                "no cabinet can be drawn for this mission", got=mission, expected=expected
            )
    if size[0] < SMALLEST[0] or size[1] < SMALLEST[1]:
        raise DataError(
            "photo size is too small",
            got=f"{size[0]}x{size[1]}",
            expected=f"at least {SMALLEST[0]}x{SMALLEST[1]} pixels",
        )
    if not 0.0 <= variety <= 1.0:
        raise DataError("variety is out of range", got=variety, expected="a number from 0 to 1")


def check_set(num_groups: int, missions: Sequence[str], pass_share: float) -> None:
    """Refuse empty sets, missions that are named twice, and shares outside [0, 1]."""
    if num_groups < 1:
        raise DataError("num_groups is too small", got=num_groups, expected="at least 1")
    if not missions or len(set(missions)) < len(missions):
        raise DataError("missions must be different ones", got=list(missions))
    if not 0.0 <= pass_share <= 1.0:
        raise DataError("pass_share is out of range", got=pass_share, expected="from 0 to 1")


def check_folder(folder: Path, names: set[str]) -> None:
    """Refuse a folder with files that are not of the set: they would be taken for its photos."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    strange = sorted(set(found) - names - {DESCRIPTIONS_NAME})
    if strange:
        raise DataError(
            f"{folder} holds files that are not of this set",
            got=f"{len(strange)}, such as {strange[0]}",
            expected="an empty folder, or the same set begun before",
            fix="give another folder",
        )
