"""Methods over several seeds: runs of one recipe that differ in the seed only, and their report.

A table of every method and seed, the differences of methods with intervals that draw seeds and
clusters, and what one run alone would have said; HTML, Markdown and JSON, in English and Chinese.
"""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
