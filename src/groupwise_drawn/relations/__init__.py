"""Drawn scenes of two things with boxes, captions that are true or false, and depth pictures.

Scenes come in pairs: the same things and the same caption, once true and once false, so that the
caption alone says nothing and a pair is passed by chance in one of four cases. Flat scenes stand
for synthetic data, textured ones with clutter for real data. Relations take turns; kinds of things
that meet in one split never meet in another.
"""

from groupwise_drawn.relations.pictures import draw_depth, draw_picture, paint_things
from groupwise_drawn.relations.scenes import Scene, Thing
from groupwise_drawn.relations.sets import (
    RelationItem,
    plan_pairs,
    read_relations,
    write_relations,
)
from groupwise_drawn.relations.vocabulary import (
    INVERSES,
    KINDS,
    LANGUAGES,
    RELATIONS,
    SPLITS,
    STYLES,
    Language,
    Relation,
    Split,
    Style,
    list_kind_pairs,
    name_thing,
    write_claim,
)

__all__ = [
    "INVERSES",
    "KINDS",
    "LANGUAGES",
    "RELATIONS",
    "SPLITS",
    "STYLES",
    "Language",
    "Relation",
    "RelationItem",
    "Scene",
    "Split",
    "Style",
    "Thing",
    "draw_depth",
    "draw_picture",
    "list_kind_pairs",
    "name_thing",
    "paint_things",
    "plan_pairs",
    "read_relations",
    "write_claim",
    "write_relations",
]
