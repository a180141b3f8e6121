"""Batch inference for any number of groups: batches across groups, outcomes per group."""

from groupwise.inference.streaming.groups import generate_groups
from groupwise.inference.streaming.local import LocalBackend
from groupwise.inference.streaming.progress import ReportStream, StreamLine, StreamProgress
from groupwise.inference.streaming.ray_data import RayBackend
from groupwise.inference.streaming.server import ServerBackend
from groupwise.inference.streaming.settings import RaySettings, StreamSettings
from groupwise.inference.streaming.work import (
    Failure,
    FailureCause,
    GroupOutcome,
    Outcome,
    StreamBackend,
    WorkGroup,
    WorkItem,
)

__all__ = [
    "Failure",
    "FailureCause",
    "GroupOutcome",
    "LocalBackend",
    "Outcome",
    "RayBackend",
    "RaySettings",
    "ReportStream",
    "ServerBackend",
    "StreamBackend",
    "StreamLine",
    "StreamProgress",
    "StreamSettings",
    "WorkGroup",
    "WorkItem",
    "generate_groups",
]
