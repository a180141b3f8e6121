"""Inference engines: one call, whatever backend answers."""

from groupwise.inference.engine import Engine, ReportProgress, Sampling
from groupwise.inference.label_tokens import find_label_tokens
from groupwise.inference.local import LocalEngine

__all__ = ["Engine", "LocalEngine", "ReportProgress", "Sampling", "find_label_tokens"]
