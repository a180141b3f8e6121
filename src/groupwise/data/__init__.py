"""Data: screenshots, pairs, splits, and the audit that says what to trust."""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
