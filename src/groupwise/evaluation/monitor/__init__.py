"""Following a run: its steps, the series of its trainings, and alarms. Nothing is drawn here.

The command line and the report show what this package reads; neither computes an alarm.
"""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
