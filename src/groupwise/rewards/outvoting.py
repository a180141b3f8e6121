"""Can judgements outvote a known truth? Asked once, when rewards are combined.

A right and a wrong answer are compared that earn the same from every part but truths and
judgements. What format or length pay is not looked at here.
"""

import math
from collections.abc import Mapping
from itertools import product

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
            for nothing.

    Raises:
        RewardError: if some judgements in [0, 1] or None bring the right answer's reward to within
            ``SMALLEST_GAP`` of a wrong one's.
    """
    truths = {name: w for name, w in weights.items() if w > 0 and kinds[name] == "truth"}
    judged = {name: w for name, w in weights.items() if w > 0 and kinds[name] == "judgement"}
    if not truths or not judged:
        return
    others = [
        w for name, w in weights.items() if kinds[name] not in ("human", "truth", "judgement")
    ]
    gap = find_smallest_gap(
        min(truths.values()),
        math.fsum(judged.values()),
        math.fsum(others),
        drops_contradicted=drops_contradicted,
    )
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


def find_smallest_gap(
    truth: float, judged: float, others: float, *, drops_contradicted: bool
) -> float:
    """Return the smallest lead of a right answer over a wrong one; negative: it can lose.

    Rewards are linear-fractional in every quantity that can vary, so the extremes are at corners:
    all judgements missing or there, and the other parts missing, earning 0 or earning 1.

    Args:
        truth: weight of the truths that are known, above 0.
        judged: weight of all judgements.
        others: weight of the other parts.
        drops_contradicted: see ``check_outvoting``.
    """
    lowest, highest = (0.5, 0.5) if drops_contradicted else (0.0, 1.0)
    corners = product((0.0, judged), (0.0, judged), ((0.0, 0.0), (others, 0.0), (others, others)))
    return min(
        (truth + lowest * right + earned) / (truth + there + right)
        - (highest * wrong + earned) / (truth + there + wrong)
        for right, wrong, (there, earned) in corners
    )
