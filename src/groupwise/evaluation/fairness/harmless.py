"""What may differ between runs without harm, and why. What is not listed here is not harmless."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from packaging.version import InvalidVersion, Version

HARMLESS_FACTS = (
    ("hardware/*", "hardware"),
    ("time/*", "time"),
    ("command/*", "command"),
    ("config/*.log_every_steps", "logging"),
    ("config/*.save_every_steps", "logging"),
    ("config/*.report_to", "logging"),
    ("config/*.heldout_every_steps", "logging"),
    ("config/evaluation.num_heldout_items", "logging"),
    ("config/evaluation.num_latency_items", "logging"),
    ("config/evaluation.batch_size", "batch"),
    ("config/*.gradient_checkpointing", "speed"),
    ("config/*.speed.*", "speed"),
    ("config/*.vllm.base_url", "server"),
    ("config/*.vllm.weights_port", "server"),
    ("config/*.vllm.server_timeout_s", "server"),
    ("config/*.vllm.gpu_memory_share", "server"),
    ("config/model.shape", "estimate"),
    ("config/model.shape.*", "estimate"),
    ("config/judge.cache", "cache"),
    ("config/judge.cache_mib", "cache"),
    ("judge/*.cache_hit_rate", "cache"),
)
"""Patterns of ``aspect/key`` with the reason; every pattern is a line of the decision record."""

CONTENT_OF = {
    "config/data.root": "data",
    "config/model.base": "base_weights",
    "inputs/model.base": "base_weights",
    "config/evaluation.num_items": "items",
}
"""Settings that say where something comes from, and the aspect that says what it is."""

_CLOSE_RATE = 0.01


def find_harmless(name: str) -> str | None:
    """Return why ``aspect/key`` may have any values, or None."""
    return next((why for pattern, why in HARMLESS_FACTS if fnmatchcase(name, pattern)), None)


def are_harmless_values(name: str, values: Sequence[Any]) -> str | None:
    """Return why ``aspect/key`` may have these values, which every run has recorded, or None."""
    if name.startswith("packages/") and _are_builds_of_one_release(values, name):
        return "build"
    if name.endswith(".no_verdict_rate") and _are_close(values):
        return "close_rate"
    return None


def _are_builds_of_one_release(values: Sequence[Any], name: str) -> bool:
    try:
        found = [Version(value) for value in values]
    except (InvalidVersion, TypeError):
        return False
    if name == "packages/python":
        return len({version.release[:2] for version in found}) == 1
    return len({version.public for version in found}) == 1


def _are_close(values: Sequence[Any]) -> bool:
    rates = [value for value in values if isinstance(value, int | float)]
    return len(rates) == len(values) and max(rates) - min(rates) <= _CLOSE_RATE
