"""Inference engines: one call, whatever backend answers."""

from groupwise.inference.chat import build_chat_messages, read_picture_bytes
from groupwise.inference.engine import Engine, ReportProgress, Sampling
from groupwise.inference.hosts import allow_hosts, check_hosts
from groupwise.inference.labels import find_label_tokens, share_labels
from groupwise.inference.local import LocalEngine, time_answers
from groupwise.inference.local_responder import LocalResponder
from groupwise.inference.opening import ResponderSettings, open_responder
from groupwise.inference.responder import (
    RETRYABLE_CAUSES,
    LabelShares,
    Reply,
    RequestCause,
    RequestError,
    Responder,
    TokenChance,
    Usage,
    ask_until_whole,
)
from groupwise.inference.server import ServerEngine
from groupwise.inference.server_settings import LimitSettings, RetrySettings, ServerSettings, retry
from groupwise.inference.shared_loop import on_shared_loop, run_on_shared_loop
from groupwise.inference.streaming.groups import (
    ReportStream,
    StreamLine,
    StreamProgress,
    generate_groups,
)
from groupwise.inference.streaming.local import LocalBackend
from groupwise.inference.streaming.ray_data import RayBackend
from groupwise.inference.streaming.server import ServerBackend
from groupwise.inference.streaming.work import (
    Failure,
    FailureCause,
    GroupOutcome,
    Outcome,
    RaySettings,
    StreamBackend,
    StreamSettings,
    WorkGroup,
    WorkItem,
)

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
    "allow_hosts",
    "ask_until_whole",
    "build_chat_messages",
    "check_hosts",
    "find_label_tokens",
    "generate_groups",
    "on_shared_loop",
    "open_responder",
    "read_picture_bytes",
    "retry",
    "run_on_shared_loop",
    "share_labels",
    "time_answers",
]
