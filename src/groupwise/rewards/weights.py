"""Weights of rewards: shares that add up to 1, and what is left of them without some parts."""

import math
from collections.abc import Iterable, Mapping

from groupwise.core import RewardError


def share_out(weights: Mapping[str, float]) -> dict[str, float]:
    """Return weights that add up to 1, also where the given ones would overflow."""
    largest = max(weights.values())
    scaled = {name: weight / largest for name, weight in weights.items()}
    total = math.fsum(scaled.values())
    return {name: weight / total for name, weight in scaled.items()}


def describe_weights(weights: Mapping[str, float], *, absent: Iterable[str] = ()) -> str:
    """Return the weights that count, as one line.

    Args:
        weights: of all parts, by name.
        absent: parts that have no value; their weight goes to the others in proportion.

    Raises:
        RewardError: if there is no such part, or no weight is left.
    """
    missing = list(dict.fromkeys(absent))
    for name in missing:
        if name not in weights:
            raise RewardError(
                "no such reward in the set", got=repr(name), expected=", ".join(weights)
            )
    left = {name: weight for name, weight in weights.items() if name not in missing}
    if not any(left.values()):
        raise RewardError("no reward with a weight is left", got=f"absent {', '.join(missing)}")
    line = ", ".join(f"{name} {weight:.4g}" for name, weight in share_out(left).items())
    return f"{line} (absent: {', '.join(missing)})" if missing else line
