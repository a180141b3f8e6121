"""Weights of rewards: shares that add up to 1, and whether judgements can outvote a known truth."""

import math
from collections.abc import Iterable, Mapping

from groupwise.core import RewardError
from groupwise.rewards.reward import RewardKind


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


SMALLEST_GAP = 1e-6


def check_outvoting(
    weights: Mapping[str, float], kinds: Mapping[str, RewardKind], *, drops_contradicted: bool
) -> None:
    """Refuse weights with which a wrong answer can earn as much as the right one.

    Asked once, when rewards are combined. A right and a wrong answer are compared that earn the
    same from every part but truths and judgements; what format or length pay is not looked at.
    """
    truths = {name: w for name, w in weights.items() if w > 0 and kinds[name] == "truth"}
    judged = {name: w for name, w in weights.items() if w > 0 and kinds[name] == "judgement"}
    if not truths or not judged:
        return
    against = 0.0 if drops_contradicted else math.fsum(judged.values())
    gap = min(truths.values()) - against
    if gap > SMALLEST_GAP:
        return
    shown = ", ".join(f"{name} {weight:.4g}" for name, weight in {**truths, **judged}.items())
    raise RewardError(
        f"{', '.join(judged)} can outvote the truth of {', '.join(truths)}",
        got=f"the weights {shown}",
        expected="every truth to weigh more than all judgements together",
        fix="give the truth more weight"
        + ("" if drops_contradicted else " or use RewardSet(..., drop_contradicted=True)"),
    )
