"""Methods over several seeds: runs of one recipe that differ in the seed only, and their report.

A table of every method and seed, the differences of methods with intervals that draw seeds and
clusters, and what one run alone would have said; HTML, Markdown and JSON, in English and Chinese.
"""

from groupwise.evaluation.seeds.content import (
    Method,
    MethodMaterial,
    MethodReport,
    build_methods,
)
from groupwise.evaluation.seeds.layout import tell_methods, write_methods
from groupwise.evaluation.seeds.reading import Side, find_unlike, read_repetitions, read_sides

__all__ = [
    "Method",
    "MethodMaterial",
    "MethodReport",
    "Side",
    "build_methods",
    "find_unlike",
    "read_repetitions",
    "read_sides",
    "tell_methods",
    "write_methods",
]
