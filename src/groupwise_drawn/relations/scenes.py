"""Scenes of two things, planned in pairs: one is a caption's truth, its partner makes it false.

The two things of a pair exchange their places (left of, right of, above, below) or the order in
which they are drawn (in front of, behind), and nothing else differs. So neither the caption nor the
places alone tell whether a caption is true: it takes both things, found by name.
"""

import random
from dataclasses import dataclass, replace

from PIL import Image, ImageChops

from groupwise.core import DataError, derive_seed
from groupwise_drawn.relations.shapes import draw_silhouette
from groupwise_drawn.relations.vocabulary import (
    COLORS,
    RELATIONS,
    Color,
    Kind,
    Language,
    Relation,
    Split,
    list_kind_pairs,
    name_thing,
    write_claim,
)

__all__ = ["MIN_SIDE", "Scene", "Thing", "plan_pair"]

MIN_SIDE = 64
"""Pixels; in smaller pictures things cannot be told apart."""
_SIZES = (0.2, 0.32)
"""Smallest and largest side of a thing, as a share of the picture's."""
_GAP = 0.03
_NAMED_BY_COLOR = 0.5
_LEAST_COVERED, _LEAST_VISIBLE = 0.15, 0.4
_MOST_STRAY = 0.7
"""Of the distance along the axis that the caption is about."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A drawn thing.

    Attributes:
        kind: what it is.
        color: what it is drawn in.
        is_named_by_color: whether captions name the colour, too.
        box: x1, y1, x2, y2 in pixels; x2 and y2 are the first column and row beyond. It bounds the
            whole thing, whatever is drawn in front of it.
    """

    kind: Kind
    color: Color
    is_named_by_color: bool
    box: tuple[int, int, int, int]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.box[2] - self.box[0], self.box[3] - self.box[1]

    @property
    def middle(self) -> tuple[int, int]:
        """The middle of the box, rounded down."""
        width, height = self.size
        return self.box[0] + width // 2, self.box[1] + height // 2

    def move(self, middle: tuple[int, int]) -> "Thing":
        """Return the thing at another place."""
        (x, y), (width, height) = middle, self.size
        x1, y1 = x - width // 2, y - height // 2
        return replace(self, box=(x1, y1, x1 + width, y1 + height))

    def name(self, language: Language) -> str:
        """Return what captions call it."""
        return name_thing(self.kind, self.color if self.is_named_by_color else None, language)


@dataclass(frozen=True, slots=True)
class Scene:
    """Two things and what is claimed of them.

    Attributes:
        relation: that the caption claims, of ``subject`` to ``other``.
        subject: of the caption.
        other: the other thing of the caption.
        is_subject_in_front: whether the subject is drawn last.
        side: width and height of the picture in pixels.
        seed: of background and textures; partners share it.
    """

    relation: Relation
    subject: Thing
    other: Thing
    is_subject_in_front: bool
    side: int
    seed: int

    @property
    def label(self) -> bool:
        """Whether the caption is true."""
        (x, y), (other_x, other_y) = self.subject.middle, self.other.middle
        match self.relation:
            case "left of":
                return x < other_x
            case "right of":
                return x > other_x
            case "above":
                return y < other_y
            case "below":
                return y > other_y
            case "in front of":
                return self.is_subject_in_front
            case "behind":
                return not self.is_subject_in_front

    @property
    def layers(self) -> tuple[Thing, Thing]:
        """The things in the order in which they are drawn: the one behind first."""
        if self.is_subject_in_front:
            return self.other, self.subject
        return self.subject, self.other

    def write_caption(self, language: Language) -> str:
        """Return the caption."""
        subject, other = self.subject.name(language), self.other.name(language)
        return write_claim(subject, self.relation, other, language)

    def exchange(self) -> "Scene":
        """Return the partner, in which the same caption has the other truth."""
        if self.relation in ("in front of", "behind"):
            return replace(self, is_subject_in_front=not self.is_subject_in_front)
        subject, other = self.subject, self.other
        return replace(self, subject=subject.move(other.middle), other=other.move(subject.middle))


def plan_pair(number: int, *, seed: int, split: Split, side: int) -> tuple[Scene, Scene]:
    """Plan the pair with that number: one caption, true in one scene and false in the other.

    Relations take turns. Which kinds of things meet differs between the splits.
    """
    if side < MIN_SIDE:
        raise DataError("drawn scenes are too small", got=side, expected=f"at least {MIN_SIDE}")
    own_seed = derive_seed(seed, "pair", split, number)
    rng = random.Random(own_seed)
    relation = RELATIONS[number % len(RELATIONS)]
    subject, other = _pick_things(rng, split, side)
    if relation in ("in front of", "behind"):
        subject, other = _overlap(subject, other, rng, side)
    else:
        axis = 0 if relation in ("left of", "right of") else 1
        subject, other = _set_apart(subject, other, axis, rng, side)
    scene = Scene(relation, subject, other, rng.random() < 0.5, side, own_seed)
    return scene, scene.exchange()


def _pick_things(rng: random.Random, split: Split, side: int) -> tuple[Thing, Thing]:
    """Return two things of different kinds and colours, not yet placed."""
    kinds = rng.sample(rng.choice(list_kind_pairs(split)), 2)
    colors = rng.sample(list(COLORS), 2)

    def make(kind: Kind, color: Color) -> Thing:
        width, height = (round(side * rng.uniform(*_SIZES)) for _ in range(2))
        return Thing(kind, color, rng.random() < _NAMED_BY_COLOR, (0, 0, width, height))

    return make(kinds[0], colors[0]), make(kinds[1], colors[1])


def _set_apart(
    subject: Thing, other: Thing, axis: int, rng: random.Random, side: int
) -> tuple[Thing, Thing]:
    """Place two things with a gap along an axis, less far apart along the other one.

    Each of them fits in either place.
    """
    ranges = _find_ranges(subject, other, side)
    least = (subject.size[axis] + other.size[axis] + 1) // 2 + max(1, round(_GAP * side))
    low, high = ranges[axis]
    start = rng.randint(low, high - least)
    end = rng.randint(start + least, high)
    low, high = ranges[1 - axis]
    stray = int((end - start) * _MOST_STRAY)
    beside = rng.randint(low, high)
    beside_too = min(high, max(low, beside + rng.randint(-stray, stray)))
    places = [(start, beside), (end, beside_too)]
    if axis == 1:
        places = [(x, y) for y, x in places]
    first, second = rng.sample(places, 2)
    return subject.move(first), other.move(second)


def _overlap(subject: Thing, other: Thing, rng: random.Random, side: int) -> tuple[Thing, Thing]:
    """Place two things so that either, when in front, covers a part of the other and not all."""
    ranges = _find_ranges(subject, other, side)
    reach = [(subject.size[axis] + other.size[axis]) // 2 for axis in range(2)]
    while True:  # a few places are tried until one will do
        x, y = (rng.randint(low, high) for low, high in ranges)
        dx, dy = (rng.randint(-far, far) for far in reach)
        moved, other_moved = subject.move((x, y)), other.move((x + dx, y + dy))
        if _is_inside(other_moved, side) and _is_partly_covered(moved, other_moved, side):
            return moved, other_moved


def _find_ranges(subject: Thing, other: Thing, side: int) -> list[tuple[int, int]]:
    """Return by axis where the middle of either thing may be."""
    longest = [max(thing.size[axis] for thing in (subject, other)) for axis in range(2)]
    return [(length // 2, side - (length + 1) // 2) for length in longest]


def _is_inside(thing: Thing, side: int) -> bool:
    return min(thing.box) >= 0 and max(thing.box) <= side


def _is_partly_covered(one: Thing, two: Thing, side: int) -> bool:
    masks = [Image.new("L", (side, side), 0) for _ in range(2)]
    for mask, thing in zip(masks, (one, two), strict=True):
        mask.paste(draw_silhouette(thing.kind, *thing.size).mask, thing.box)
    areas = [mask.histogram()[255] for mask in masks]
    shared = ImageChops.multiply(*masks).histogram()[255]
    return _LEAST_COVERED * min(areas) <= shared <= (1 - _LEAST_VISIBLE) * min(areas)
