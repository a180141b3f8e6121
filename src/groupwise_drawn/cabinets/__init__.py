"""Drawn photos of equipment cabinets, in groups with a verdict and a true line about each photo.

``draw_cabinet`` draws one photo, ``write_cabinets`` a whole set in the folder layout of
inspections. Four missions: a unit the right way up, an earth wire, tidy cables, a wind deflector.
A group passes if its key thing is right on a photo and wrong on none (``judge_descriptions``).
The photos are for demonstrations and no substitute for real ones in an evaluation.
"""

from groupwise_drawn.cabinets.descriptions import (
    IRRELEVANT,
    SeenObject,
    read_objects,
    write_objects,
)
from groupwise_drawn.cabinets.rule import judge_descriptions
from groupwise_drawn.cabinets.sets import CabinetPhoto, draw_cabinet, write_cabinets
from groupwise_drawn.cabinets.vocabulary import CABINET_MISSIONS

__all__ = [
    "CABINET_MISSIONS",
    "IRRELEVANT",
    "CabinetPhoto",
    "SeenObject",
    "draw_cabinet",
    "judge_descriptions",
    "read_objects",
    "write_cabinets",
    "write_objects",
]
