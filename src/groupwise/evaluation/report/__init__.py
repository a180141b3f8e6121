"""The report of a run: data read from its files, then HTML and Markdown rendered from it.

Every number comes from a file of the run folder; nothing is typed and nothing is trained.
"""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
