"""Paired comparison of two policies on the same items, with clusters as the unit of chance.

Only policies that answered exactly the same items are compared. Which policy to recommend is
not decided here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from groupwise.core import EvaluationError, derive_seed, write_json
from groupwise.evaluation.metrics import read_items
from groupwise.evaluation.predictions import (
    Items,
    Measure,
    Prediction,
    exact,
    read_as,
    subtract_items,
)
from groupwise.evaluation.statistics import (
    NUM_RESAMPLES,
    adjust_holm,
    assess_gains,
    count_effective,
    count_items_needed,
    measure_design_effect,
    measure_effect,
    score_mcnemar,
    sum_clusters,
)

FEW_CLUSTERS, FEW_CARRYING = 10, 20


@exact
@dataclass(frozen=True, slots=True)
class PairedComparison:
    """How policy b differs from policy a on the same items.

    The file of comparisons has the same keys, in this order; old runs lack some of the last.
    """

    policy_a: str
    policy_b: str
    split: str
    n: int  # items (pairs for ``pair_accuracy``)
    num_clusters: int
    difference: float  # mean of b minus mean of a, in [-1, 1]
    low: float  # ends of the 95 % interval of the difference (clusters drawn)
    high: float
    num_a_only: int  # items where a has more; of correctness, those only a has right
    num_b_only: int
    num_same_answer: int  # items both answered alike, label or invalid
    p_value: float  # of ``test``; McNemar's takes items as independent
    p_value_clustered: float  # ``assess_gains``; McNemar's for binary items, each its own cluster
    p_value_holm: float  # the clustered value adjusted for all comparisons made together
    split_digest: str  # of the items' ids and labels
    measure: str = "accuracy"  # or such as ``pass@4``
    value_a: float | None = None  # mean of a, in [0, 1]
    value_b: float | None = None
    is_binary: bool = True  # every item counts 0 or 1
    test: str = "mcnemar"  # or ``clusters``, where not binary
    effect_size: float | None = None  # difference over deviation; None where nothing spreads
    design_effect: float | None = None  # 1: items are as good as independent; None: not known
    num_items_needed: int | None = None  # for 80 % power at the 5 % level; None where none do
    num_effective_clusters: float | None = None  # clusters of one size that are worth these
    num_carrying: float | None = None  # clusters that carry the variance; see ``Gain``

    def count_wins(self, measure: Measure) -> tuple[int, int]:
        """Return on how many items b is better, and on how many a is."""
        more, less = self.num_b_only, self.num_a_only
        return (more, less) if measure.is_higher_better else (less, more)

    @property
    def few_clusters(self) -> bool:
        """Whether there are too few clusters for a sure interval: less than 10 effective ones."""
        return (self.num_effective_clusters or self.num_clusters) < FEW_CLUSTERS

    @property
    def rests_on_few(self) -> bool:
        """Whether less than 20 clusters carry the variance.

        Where whole rare clusters have all the gain, a test of no difference raises false alarms in
        up to 15 % of cases, and in at most 6 % without this remark
        (``benchmarks/results/coverage.json``).
        """
        return self.num_carrying is not None and self.num_carrying < FEW_CARRYING


def compare_items(
    a: Items, b: Items, *, seed: int = 0, num_resamples: int = NUM_RESAMPLES
) -> PairedComparison:
    """Compare ``b`` with ``a`` item by item; with one cluster the interval is [-1, 1] and p is 1.

    Raises:
        EvaluationError: if the two are of another measure or split, or have other items or the
            same items with other labels or clusters.
    """
    gains = subtract_items(a, b)
    seed = derive_seed(seed, "compare", a.policy, b.policy)
    _, sizes = sum_clusters(gains, a.clusters)
    is_binary = a.is_binary and b.is_binary
    found = assess_gains(
        a.clusters, gains, is_binary=is_binary, seed=seed, num_resamples=num_resamples
    )
    num_a_only, num_b_only = int((gains < 0).sum()), int((gains > 0).sum())
    effect, design_effect = measure_effect(gains), measure_design_effect(a.clusters, gains)
    same = int((gains == 0).sum())
    if a.answers and b.answers:
        same = sum(one == two for one, two in zip(a.answers, b.answers, strict=True))
    return PairedComparison(
        policy_a=a.policy,
        policy_b=b.policy,
        split=a.split,
        n=len(gains),
        num_clusters=len(sizes),
        difference=float(gains.mean()),
        low=found.low,
        high=found.high,
        num_a_only=num_a_only,
        num_b_only=num_b_only,
        num_same_answer=same,
        p_value=score_mcnemar(num_a_only, num_b_only) if is_binary else found.p_value,
        p_value_clustered=found.p_value,
        p_value_holm=found.p_value,
        split_digest=a.split_digest,
        measure=a.measure,
        value_a=a.value,
        value_b=b.value,
        is_binary=is_binary,
        test="mcnemar" if is_binary else "clusters",
        effect_size=effect,
        design_effect=design_effect,
        num_items_needed=count_items_needed(effect, design_effect),
        num_effective_clusters=float(count_effective(sizes)),
        num_carrying=found.num_carrying,
    )


def compare_policies(
    predictions: Sequence[Prediction],
    a: str,
    b: str,
    *,
    split: str | None = None,
    seed: int = 0,
    measure: str = "accuracy",
) -> PairedComparison:
    """Compare policy ``b`` with policy ``a`` item by item.

    The split may be left out if there is only one. An item that both were asked and one has no
    value of is left out, which ``n`` tells.

    Raises:
        EvaluationError: if a policy is not there, or as ``compare_items``.
    """
    splits = sorted({item.split for item in predictions if item.policy in (a, b)})
    if split is None and len(splits) > 1:
        raise EvaluationError(
            "there is more than one split to compare on", got=splits, fix="name one of them"
        )
    chosen = split if split is not None else "".join(splits)
    one, two = (
        read_items(predictions, policy=policy, split=chosen, measure=measure) for policy in (a, b)
    )
    asked, asked_too = (
        {p.example_id for p in predictions if (p.policy, p.split) == (policy, chosen)}
        for policy in (a, b)
    )
    if one.ids != two.ids and asked == asked_too:
        common = {*one.ids} & {*two.ids}
        one, two = one.keep(common), two.keep(common)
    return compare_items(one, two, seed=seed)


def compare_pairs(
    predictions: Sequence[Prediction],
    pairs: Sequence[tuple[str, str]],
    *,
    split: str | None = None,
    seed: int = 0,
    measure: str = "accuracy",
) -> list[PairedComparison]:
    """Compare several pairs (a, b), adjusted together; errors as those of ``compare_policies``."""
    named: Any = {"split": split, "seed": seed, "measure": measure}
    return adjust([compare_policies(predictions, a, b, **named) for a, b in pairs])


def adjust(comparisons: Sequence[PairedComparison]) -> list[PairedComparison]:
    """Return the comparisons with clustered p-values adjusted for all of them (Holm 1979)."""
    adjusted = adjust_holm([one.p_value_clustered for one in comparisons])
    return [replace(one, p_value_holm=p) for one, p in zip(comparisons, adjusted, strict=True)]


def write_comparisons(path: Path, comparisons: Sequence[PairedComparison]) -> None:
    """Replace ``path`` by a JSON list of comparisons."""
    write_json(path, [asdict(one) for one in comparisons])


def read_comparisons(path: Path) -> list[PairedComparison]:
    """Return the comparisons of a file; errors as those of ``read_as``."""
    return read_as(path, TypeAdapter(list[PairedComparison]))


@dataclass(frozen=True, slots=True)
class DiscordantItem:
    """One item on which two policies differ; of ``pair_accuracy`` it is a pair."""

    id: str
    cluster: str
    value_a: float  # in [0, 1]
    value_b: float
    label: str | None  # None where the items do not carry it
    answer_a: str | None  # None for an invalid answer, or where the items carry none
    answer_b: str | None
    task: str = ""  # what the item asks, where that is known


def list_discordant(a: Items, b: Items) -> tuple[DiscordantItem, ...]:
    """Return the items on which ``a`` and ``b`` differ, by id; errors as ``compare_items``."""
    nothing = (None,) * len(a.ids)
    labels, of_a, of_b = (part or nothing for part in (a.labels, a.answers, b.answers))
    return tuple(
        DiscordantItem(
            id=a.ids[n],
            cluster=a.clusters[n],
            value_a=float(a.values[n]),
            value_b=float(b.values[n]),
            label=labels[n],
            answer_a=of_a[n],
            answer_b=of_b[n],
        )
        for n in np.flatnonzero(subtract_items(a, b))
    )
