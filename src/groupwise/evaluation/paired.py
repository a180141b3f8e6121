"""Paired comparison of two policies on the same items, with groups as the unit of chance.

Only policies that answered exactly the same items are compared. Which policy to recommend is
not decided here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.core import EvaluationError, derive_seed, write_json
from groupwise.evaluation.intervals import bound_clustered, sum_by_group, widen_interval
from groupwise.evaluation.predictions import Prediction, digest_items, group_by_policy
from groupwise.evaluation.untyped import mcnemar, multipletests, permutation_test

NUM_PERMUTATIONS = 9999
EXACT_BELOW = 25
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """How policy b differs from policy a on the same items.

    Attributes:
        policy_a: the policy compared with.
        policy_b: the policy compared.
        split: name of the split.
        n: number of items.
        num_groups: number of groups they are in.
        difference: accuracy of b minus accuracy of a, in [-1, 1].
        low: lower end of the 95 % interval of the difference (groups drawn).
        high: upper end.
        num_a_only: items only a has right.
        num_b_only: items only b has right.
        num_same_answer: items both answered alike, label or invalid.
        p_value: McNemar's test, which takes items as independent.
        p_value_clustered: permutation test that flips the sign of whole groups.
        p_value_holm: the clustered value adjusted for all comparisons made together.
        split_digest: digest of the items' ids and labels.
    """

    policy_a: str
    policy_b: str
    split: str
    n: int
    num_groups: int
    difference: float
    low: float
    high: float
    num_a_only: int
    num_b_only: int
    num_same_answer: int
    p_value: float
    p_value_clustered: float
    p_value_holm: float
    split_digest: str


def compare_policies(
    predictions: Sequence[Prediction], a: str, b: str, *, split: str | None = None, seed: int = 0
) -> PairedComparison:
    """Compare policy ``b`` with policy ``a`` item by item.

    The split may be left out if the predictions have only one. With a single group the
    interval is [-1, 1] and the clustered p-value 1: nothing is known about other groups.

    Raises:
        EvaluationError: if a policy is not there, or the two answered other items or the same
            items with other labels or groups.
    """
    items_a, items_b = _pair_items(predictions, a, b, split)
    groups = [item.group for item in items_a]
    correct = np.asarray(
        [[one.is_correct, two.is_correct] for one, two in zip(items_a, items_b, strict=True)],
        dtype=np.float64,
    )
    gains = correct[:, 1] - correct[:, 0]
    seed = derive_seed(seed, "compare", a, b)
    cells = np.column_stack([gains, np.ones(len(gains))])
    (ends,) = bound_clustered(groups, cells, _score_difference, seed=seed)
    low, high = widen_interval(ends or (-1.0, 1.0), float(gains.mean()))
    p_value_clustered = _permute_groups(sum_by_group(groups, correct), seed)
    return PairedComparison(
        policy_a=a,
        policy_b=b,
        split=items_a[0].split,
        n=len(items_a),
        num_groups=len(set(groups)),
        difference=float(gains.mean()),
        low=low,
        high=high,
        num_a_only=int((gains < 0).sum()),
        num_b_only=int((gains > 0).sum()),
        num_same_answer=sum(
            one.predicted == two.predicted for one, two in zip(items_a, items_b, strict=True)
        ),
        p_value=_test_mcnemar(correct),
        p_value_clustered=p_value_clustered,
        p_value_holm=p_value_clustered,
        split_digest=digest_items(items_a),
    )


def compare_pairs(
    predictions: Sequence[Prediction],
    pairs: Sequence[tuple[str, str]],
    *,
    split: str | None = None,
    seed: int = 0,
) -> list[PairedComparison]:
    """Compare several pairs (a, b) and adjust the clustered p-values by Holm's method.

    Source: Holm 1979, through statsmodels ``multipletests(method="holm")``.

    Raises:
        EvaluationError: as ``compare_policies``.
    """
    found = [compare_policies(predictions, a, b, split=split, seed=seed) for a, b in pairs]
    if not found:
        return []
    adjusted = multipletests([one.p_value_clustered for one in found], method="holm")[1]
    return [replace(one, p_value_holm=float(p)) for one, p in zip(found, adjusted, strict=True)]


def _pair_items(
    predictions: Sequence[Prediction], a: str, b: str, split: str | None
) -> tuple[list[Prediction], list[Prediction]]:
    by_policy = group_by_policy(predictions)
    splits = sorted({name for name, policy in by_policy if policy in (a, b)})
    if split is None and len(splits) > 1:
        raise EvaluationError(
            "there is more than one split to compare on", got=splits, fix="name one of them"
        )
    chosen = split if split is not None else "".join(splits)
    for policy in (a, b):
        if (chosen, policy) not in by_policy:
            raise EvaluationError(
                f"cannot compare {b} with {a}",
                got=f"no predictions of {policy}" + (f" on {chosen}" if chosen else ""),
                fix="predict with both on the same items first",
            )
    items_a, items_b = by_policy[chosen, a], by_policy[chosen, b]
    if [(p.example_id, p.label, p.group) for p in items_a] != [
        (p.example_id, p.label, p.group) for p in items_b
    ]:
        raise EvaluationError(
            f"{a} and {b} did not answer the same items of {chosen}",
            got=f"{len(items_a)} and {len(items_b)} items, "
            f"{len({p.example_id for p in items_a} & {p.example_id for p in items_b})} in common",
            fix="predict with both on the same items first",
        )
    return items_a, items_b


def _score_difference(sums: Floats) -> Floats:
    return (sums[..., 0] / sums[..., 1])[None]


def _test_mcnemar(correct: Floats) -> float:
    """Return McNemar's p-value, exact below 25 discordant items, through statsmodels."""
    a, b = correct.astype(bool).T
    table = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
    num_discordant = int(table[0][1] + table[1][0])
    result = mcnemar(table, exact=num_discordant < EXACT_BELOW, correction=True)
    return float(result.pvalue)


def _permute_groups(sums: Floats, seed: int) -> float:
    """Return the p-value of swapping the two policies in whole groups; ``sums`` is (groups, 2).

    Exact where there are no more than 9 999 ways, otherwise from 9 999 random ones, through
    ``scipy.stats.permutation_test``.
    """
    if len(sums) < 2:
        return 1.0
    result = permutation_test(
        (sums[:, 0], sums[:, 1]),
        _sum_gains,
        permutation_type="samples",
        vectorized=True,
        n_resamples=NUM_PERMUTATIONS,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def _sum_gains(a: Floats, b: Floats, axis: int) -> Floats:
    return (b - a).sum(axis=axis)


def write_comparisons(path: Path, comparisons: Sequence[PairedComparison]) -> None:
    """Replace ``path`` by a JSON list of comparisons."""
    write_json(path, [asdict(one) for one in comparisons])


def read_comparisons(path: Path) -> list[PairedComparison]:
    """Return the comparisons of a file.

    Raises:
        EvaluationError: if the file is missing or is not a list of comparisons.
    """
    try:
        rows: list[Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return [PairedComparison(**row) for row in rows]
    except OSError as error:
        raise EvaluationError(f"cannot read {path} ({error.strerror})") from error
    except (ValueError, TypeError) as error:
        raise EvaluationError(f"{path} is not a list of comparisons ({error})") from error
