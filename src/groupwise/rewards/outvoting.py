"""Can judgements outvote a known truth? Asked once, when rewards are combined.

A right and a wrong answer are compared that earn the same from every part but truths and
judgements. What format or length pay is not looked at here.
"""

import math
from collections.abc import Mapping

from groupwise.core import RewardError
from groupwise.rewards.reward import RewardKind

SMALLEST_GAP = 1e-6


def check_outvoting(
    weights: Mapping[str, float], kinds: Mapping[str, RewardKind], *, drops_contradicted: bool
) -> None:
    """Refuse weights with which a wrong answer can earn as much as the right one.

    Args:
        weights: by name, adding up to 1.
        kinds: by name.
        drops_contradicted: whether a judgement on the other side of 1/2 than the truth counts
            as the truth, so that all judgements together can at most be equal.

    Raises:
        RewardError: if some judgements in [0, 1] bring the right answer's reward to within
            ``SMALLEST_GAP`` of a wrong one's.
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
