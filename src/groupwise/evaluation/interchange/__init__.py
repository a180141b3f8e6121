"""Evaluation records for others: Parquet and CSV of every item, and harness-style results."""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
