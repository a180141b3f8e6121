"""Drawn problems of mathematics, code and question answering: a mix that needs no data."""

from groupwise_drawn.problems.drawing import draw_problems
from groupwise_drawn.problems.pen import SPLITS, Split

__all__ = ["SPLITS", "Split", "draw_problems"]
