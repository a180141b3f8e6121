"""The page kernel: what run reports, comparisons and judge reports are made of.

A page is data (``blocks``) in the words of one language (``words``); ``rendering`` writes it as
one HTML file and as Markdown with its plots.
"""

from groupwise.core import import_late as _import_late

__getattr__, __dir__, __all__ = _import_late(__name__, __file__)
