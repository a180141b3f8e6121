"""What may differ between runs without harm, and why. What is not listed here is not harmless."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from packaging.version import InvalidVersion, Version

HARMLESS_FACTS = (
    ("hardware/*", "hardware"),
    ("time/*", "time"),
    ("command/*", "command"),
    ("judge/*.cache_hit_rate", "cache"),
)
"""Patterns of ``aspect/key`` with the reason; of settings their fields say it themselves."""

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
