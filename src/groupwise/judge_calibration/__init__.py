"""Calibration of judges: what people decided is put to a judge, and what it says is measured."""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
