"""Measuring policies: predictions, metrics with intervals, paired comparison, baselines, report.

Reads predictions and files; trains nothing but the baselines.
"""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
