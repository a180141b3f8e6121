"""Serving: a predictor behind HTTP, with limits, batches and counters.

The server needs the extra ``serve``: ``pip install 'groupwise[serve]'``.
"""

from groupwise.serving.predictor import (
    Answer,
    ChatAnswer,
    ChatQuestion,
    Predictor,
    Request,
    try_each,
)
from groupwise.serving.settings import ServeSettings

__all__ = [
    "Answer",
    "ChatAnswer",
    "ChatQuestion",
    "Predictor",
    "Request",
    "ServeSettings",
    "try_each",
]
