"""Serving: a predictor behind HTTP, with limits, batches and counters.

The server needs the extra ``serve``: ``pip install 'groupwise[serve]'``.
"""

from groupwise.serving.predictor import Answer, Predictor, Request, try_each
from groupwise.serving.settings import ServeSettings

__all__ = ["Answer", "Predictor", "Request", "ServeSettings", "try_each"]
