"""Drawn scenes with questions that only a demonstration can answer.

A question asks for the colour of a drawn object in one of eight dialects. The words of the
dialects are drawn anew by the seed, so no model can know them: only a demonstration of the same
dialect and colour shows the word. Shape, background and wording do not matter, but they are part
of what a scene and its question look like: by a CLIP model's embeddings the most similar
demonstration is the right one in fewer than half of the cases. Some words were revised: scenes
recorded since then bear a stamp, as all queries do. Where a prompt shows the former word and the
revised one, the last counts.
"""

from groupwise_drawn.dialects.scenes import Scene, draw_scene, plan_scene
from groupwise_drawn.dialects.sets import DialectItem, read_dialects, write_dialects
from groupwise_drawn.dialects.vocabulary import (
    COLORS,
    DIALECTS,
    QUERY_SPLITS,
    SPLITS,
    WORDINGS,
    WORDS,
    Split,
)
from groupwise_drawn.dialects.words import Cell, Dictionary, draw_dictionary

__all__ = [
    "COLORS",
    "DIALECTS",
    "QUERY_SPLITS",
    "SPLITS",
    "WORDINGS",
    "WORDS",
    "Cell",
    "DialectItem",
    "Dictionary",
    "Scene",
    "Split",
    "draw_dictionary",
    "draw_scene",
    "plan_scene",
    "read_dialects",
    "write_dialects",
]
