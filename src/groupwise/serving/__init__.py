"""Serving: a predictor behind HTTP, with limits, batches and counters.

The server needs the extra ``serve``: ``pip install 'groupwise[serve]'``.
"""

from groupwise.serving.flips import FLIP_WINDOW_S, flag_flips
from groupwise.serving.predictor import (
    Answer,
    Predictor,
    Request,
    try_each,
)
from groupwise.serving.settings import ScreensSettings, ServeSettings
from groupwise.serving.source import Opened, Source

__all__ = [
    "FLIP_WINDOW_S",
    "Answer",
    "Opened",
    "Predictor",
    "Request",
    "ScreensSettings",
    "ServeSettings",
    "Source",
    "flag_flips",
    "try_each",
]
