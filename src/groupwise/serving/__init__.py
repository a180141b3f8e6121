"""Serving: a predictor of groups behind HTTP, with limits, batches and counters.

Needs the extra ``serve``: ``pip install 'groupwise[serve]'``.
"""

from groupwise.serving.groups import GroupPredictor, GroupRequest, GroupVerdict
from groupwise.serving.settings import ServeSettings

__all__ = ["GroupPredictor", "GroupRequest", "GroupVerdict", "ServeSettings"]
