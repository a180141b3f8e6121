"""What one photo shows: chosen by its state, put into words, painted. The three always agree."""

import random
from dataclasses import dataclass
from functools import partial

from PIL import Image

from groupwise_drawn.cabinets.camera import take_photo
from groupwise_drawn.cabinets.deflector import paint_deflector
from groupwise_drawn.cabinets.descriptions import SeenObject, write_objects
from groupwise_drawn.cabinets.stage import Stage
from groupwise_drawn.cabinets.surroundings import IRRELEVANT_PAINTERS, draw_cardboard, paint_closed
from groupwise_drawn.cabinets.unit import paint_unit
from groupwise_drawn.cabinets.vocabulary import (
    COLOR_WORDS,
    KEY_THINGS,
    CabinetColor,
    KeyThing,
    State,
    WireColor,
)
from groupwise_drawn.cabinets.wiring import paint_cables, paint_wire

__all__ = ["View", "choose_view", "describe_view", "paint_view"]

CABINETS: tuple[CabinetColor, ...] = ("white", "black", "blue")
WIRES: dict[CabinetColor, tuple[WireColor, ...]] = {
    "white": ("red", "blue", "black"),
    "black": ("red", "blue"),
    "blue": ("red", "black"),
}
"""Colours of a wire that can be told from the cabinet behind it."""
UNCLEAR = ("covered", "closed", "other")
UNCLEAR_WEIGHTS = (40, 25, 35)
_CLOSED = "closed"
_LOCK = SeenObject("门锁")
_CARDBOARD = SeenObject("纸板", ("遮挡视线",))
_BESIDE = {"wire": [SeenObject("接地排", ("铜质",))], "deflector": [SeenObject("风扇框")]}
_LARGEST_DOUBLED = 1200


@dataclass(frozen=True, slots=True)
class View:
    """What a photo shows.

    Attributes:
        kind: kind of the key thing that is seen, ``closed``, ``floor``, ``door`` or ``sky``.
        variant: ``right`` or the name of a fault; empty where no key thing is looked at.
        thing: the key thing, or None.
        covered: cardboard is in front of it.
        cabinet: colour of the cabinet.
        wire: colour of a wire of the wrong colour.
        num_bundles: of tied cables.
    """

    kind: str
    variant: str
    thing: KeyThing | None
    covered: bool
    cabinet: CabinetColor
    wire: WireColor
    num_bundles: int


def choose_view(mission: str, state: State, rng: random.Random) -> View:
    """Choose what a photo of that state shows in a group of that mission.

    Where the key thing is unclear, it is covered, the cabinet is closed, or the photo shows the
    key thing of another mission, in order.
    """
    cabinet = rng.choice(CABINETS)
    make = partial(
        View, cabinet=cabinet, wire=rng.choice(WIRES[cabinet]), num_bundles=rng.choice((1, 2))
    )
    thing = KEY_THINGS[mission]
    fault = rng.choice(tuple(thing.wrong))
    if state == "irrelevant":
        return make(rng.choice(tuple(IRRELEVANT_PAINTERS)), "", None, False)
    if state == "right":
        return make(thing.kind, "right", thing, False)
    if state == "wrong":
        return make(thing.kind, fault, thing, False)
    cause = rng.choices(UNCLEAR, UNCLEAR_WEIGHTS)[0]
    if cause == "covered":
        return make(thing.kind, "right", thing, True)  # a fault might look out behind the cover
    if cause == "closed":
        return make(_CLOSED, "", None, False)
    other = rng.choice([one for name, one in KEY_THINGS.items() if name != mission])
    return make(other.kind, "right", other, False)


def describe_view(view: View) -> str:
    """Return the true line about a view; what cannot be made out is not named."""
    cabinet = SeenObject("机柜", (COLOR_WORDS[view.cabinet],))
    if view.kind == _CLOSED:
        return write_objects([SeenObject("机柜", (*cabinet.attributes, "柜门关闭")), _LOCK])
    if view.thing is None:
        return write_objects([])
    beside = [] if view.covered and view.kind == "wire" else _BESIDE.get(view.kind, [])
    first = _CARDBOARD if view.covered else _see_thing(view, view.thing)
    return write_objects([first, *beside, cabinet])


def _see_thing(view: View, thing: KeyThing) -> SeenObject:
    is_right = view.variant == "right"
    words = thing.right if is_right else thing.wrong[view.variant]
    attributes = tuple(word.format(color=COLOR_WORDS[view.wire]) for word in words)
    return SeenObject(
        thing.name, attributes, view.num_bundles if view.kind == "cables" and is_right else 1
    )


def paint_view(
    view: View, *, rng: random.Random, size: tuple[int, int], variety: float
) -> Image.Image:
    """Return a photo of the view, ``size`` in pixels."""
    scale = 2 if max(size) <= _LARGEST_DOUBLED else 1
    stage = Stage.open((size[0] * scale, size[1] * scale), rng, view.cabinet, variety)
    if view.kind == _CLOSED:
        paint_closed(stage)
    elif view.thing is None:
        IRRELEVANT_PAINTERS[view.kind](stage)
    else:
        _paint_thing(view, view.thing, stage)
    return take_photo(stage.pen.image, rng=rng, size=size, variety=variety)


def _paint_thing(view: View, thing: KeyThing, stage: Stage) -> None:
    painters = {
        "unit": paint_unit,
        "wire": partial(paint_wire, color=view.wire),
        "cables": partial(paint_cables, num_bundles=view.num_bundles),
        "deflector": paint_deflector,
    }
    area = painters[thing.kind](stage, view.variant)
    if view.covered:
        draw_cardboard(stage, area)
