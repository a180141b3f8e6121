"""The comparison report: systems × cells, from run folders or reported results.

Warnings first, then what the numbers say, a recommendation with its evidence or the reasons for
none, and tables and plots; HTML, Markdown and JSON from one data model, in English and Chinese.
"""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
