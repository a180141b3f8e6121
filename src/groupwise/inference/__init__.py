"""Inference engines: one call, whatever backend answers."""

from groupwise.inference.engine import Engine, ReportProgress, Sampling
from groupwise.inference.failures import RETRYABLE_CAUSES, RequestCause, RequestError
from groupwise.inference.label_tokens import find_label_tokens
from groupwise.inference.local import LocalEngine
from groupwise.inference.responder import LabelShares, Reply, Responder, TokenChance
from groupwise.inference.shared_loop import on_shared_loop, run_on_shared_loop
from groupwise.inference.usage import Usage

__all__ = [
    "RETRYABLE_CAUSES",
    "Engine",
    "LabelShares",
    "LocalEngine",
    "Reply",
    "ReportProgress",
    "RequestCause",
    "RequestError",
    "Responder",
    "Sampling",
    "TokenChance",
    "Usage",
    "find_label_tokens",
    "on_shared_loop",
    "run_on_shared_loop",
]
