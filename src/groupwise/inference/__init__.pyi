"""Inference engines: one call, whatever backend answers."""

from groupwise.inference.engine import Engine, ReportProgress, Sampling
from groupwise.inference.failures import RETRYABLE_CAUSES, RequestCause, RequestError
from groupwise.inference.label_shares import share_labels
from groupwise.inference.label_tokens import find_label_tokens
from groupwise.inference.latency import time_answers
from groupwise.inference.limits import LimitSettings
from groupwise.inference.local import LocalEngine
from groupwise.inference.local_responder import LocalResponder
from groupwise.inference.opening import ResponderSettings, open_responder
from groupwise.inference.responder import LabelShares, Reply, Responder, TokenChance
from groupwise.inference.retry import RetrySettings, retry
from groupwise.inference.server import ServerEngine
from groupwise.inference.server_settings import ServerSettings
from groupwise.inference.shared_loop import on_shared_loop, run_on_shared_loop
from groupwise.inference.streaming import (
    Failure,
    FailureCause,
    GroupOutcome,
    LocalBackend,
    Outcome,
    RayBackend,
    RaySettings,
    ReportStream,
    ServerBackend,
    StreamBackend,
    StreamLine,
    StreamProgress,
    StreamSettings,
    WorkGroup,
    WorkItem,
    generate_groups,
)
from groupwise.inference.usage import Usage

__all__ = [
    "RETRYABLE_CAUSES",
    "Engine",
    "Failure",
    "FailureCause",
    "GroupOutcome",
    "LabelShares",
    "LimitSettings",
    "LocalBackend",
    "LocalEngine",
    "LocalResponder",
    "Outcome",
    "RayBackend",
    "RaySettings",
    "Reply",
    "ReportProgress",
    "ReportStream",
    "RequestCause",
    "RequestError",
    "Responder",
    "ResponderSettings",
    "RetrySettings",
    "Sampling",
    "ServerBackend",
    "ServerEngine",
    "ServerSettings",
    "StreamBackend",
    "StreamLine",
    "StreamProgress",
    "StreamSettings",
    "TokenChance",
    "Usage",
    "WorkGroup",
    "WorkItem",
    "find_label_tokens",
    "generate_groups",
    "on_shared_loop",
    "open_responder",
    "retry",
    "run_on_shared_loop",
    "share_labels",
    "time_answers",
]
