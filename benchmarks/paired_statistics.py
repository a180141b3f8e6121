"""How often the paired intervals hold the truth and the paired tests raise a false alarm.

    python benchmarks/paired_statistics.py --json results.json
    python benchmarks/paired_statistics.py --simulations 400 --clusters 10 40

Two policies answer the same items, which come in clusters. What they share (the difficulty of a
cluster and of an item) and what they do not is normal; ``icc`` is the share of the latter that a
whole cluster has in common. A value is whether the sum is above a threshold that half the items
(binary) or 95 % of them (easy) pass, or its normal distribution function (continuous). "even"
clusters have 8 items each, "uneven" ones 1 to 20; "eff." are as many clusters of one size.

Coverage is that of a true difference, false alarms are counted without any. Both ought to be
95 % and 5 %. Beside the interval and the test of ``groupwise.evaluation``: the plain percentile
bootstrap of clusters, a t-test that takes items as independent (unclustered), and a t-test of the
two policies' cluster means as if other clusters had been answered by each (unpaired).
"""

import argparse
import itertools
import math
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from groupwise.core import derive_seed, describe_machine, write_json
from groupwise.evaluation.intervals import (
    bound_difference,
    count_effective,
    divide_sums,
    draw_sums,
    sum_by_cluster,
)
from groupwise.evaluation.significance import permute_clusters

NUM_CLUSTERS = (5, 8, 12, 20, 50)
CORRELATIONS = (0.0, 0.3, 0.6)
KINDS = ("binary", "continuous", "easy")
SHIFT = 0.5
VARIANCE = 3.0
_THRESHOLDS = {"binary": 0.0, "easy": float(stats.norm.ppf(0.05, scale=math.sqrt(VARIANCE)))}
_NUM_DRAWS = 1000
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated: kind of values, clusters, their correlation and whether sizes are even."""

    kind: str
    num_clusters: int
    icc: float
    sizes: str

    def count_items(self) -> NDArray[np.intp]:
        """Return the number of items of each cluster."""
        if self.sizes == "even":
            return np.full(self.num_clusters, 8)
        return np.round(np.geomspace(1, 20, self.num_clusters)).astype(np.intp)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether one simulation's intervals held the truth, and its tests raised an alarm."""

    coverage: bool
    percentile: bool
    unclustered: bool
    unpaired: bool
    alarms: bool
    alarms_unclustered: bool
    alarms_unpaired: bool


def simulate(setting: Setting, random: np.random.Generator) -> tuple[list[str], Floats]:
    """Return clusters and latent values (items, policies) of two policies that are alike."""
    codes = np.repeat(np.arange(setting.num_clusters), setting.count_items())
    shared = random.normal(size=setting.num_clusters)[codes] + random.normal(size=len(codes))
    own_cluster = random.normal(size=(setting.num_clusters, 2))[codes] * math.sqrt(setting.icc)
    own_item = random.normal(size=(len(codes), 2)) * math.sqrt(1 - setting.icc)
    return [f"g{code:04}" for code in codes], shared[:, None] + own_cluster + own_item


def observe(latent: Floats, kind: str) -> Floats:
    """Return values in [0, 1] of latent ones."""
    if kind == "continuous":
        return stats.norm.cdf(latent)
    return (latent > _THRESHOLDS[kind]).astype(np.float64)


def find_truth(kind: str) -> float:
    """Return the expected difference where the second policy's latent values are shifted."""
    if kind == "continuous":
        return float(stats.norm.cdf(SHIFT / math.sqrt(1 + VARIANCE)) - 0.5)
    passing = stats.norm(scale=math.sqrt(VARIANCE)).sf
    return float(passing(_THRESHOLDS[kind] - SHIFT) - passing(_THRESHOLDS[kind]))


def run_once(setting: Setting, seed: int) -> Outcome:
    """Simulate one comparison with a true difference and one without."""
    clusters, latent = simulate(setting, np.random.default_rng(seed))
    alike = observe(latent, setting.kind)
    unlike = observe(latent + np.asarray([0, SHIFT]), setting.kind)
    sums = sum_by_cluster(clusters, np.column_stack([alike, np.ones(len(alike))]))
    truth = find_truth(setting.kind)
    cells = np.column_stack([unlike[:, 1] - unlike[:, 0], np.ones(len(unlike))])
    ends = bound_difference(
        clusters,
        cells[:, 0],
        is_binary=setting.kind != "continuous",
        seed=seed,
        num_resamples=_NUM_DRAWS,
    )
    shifted = sum_by_cluster(clusters, cells)
    draws = divide_sums(draw_sums(shifted, seed=seed, num_resamples=_NUM_DRAWS))[0]
    by_item = stats.ttest_1samp(cells[:, 0], 0)
    means = sum_by_cluster(clusters, np.column_stack([unlike, np.ones(len(unlike))]))
    by_policy = stats.ttest_ind(means[:, 1] / means[:, 2], means[:, 0] / means[:, 2])
    return Outcome(
        coverage=ends is not None and holds(ends, truth),
        percentile=holds(np.quantile(draws, [0.025, 0.975]), truth),
        unclustered=holds(by_item.confidence_interval(), truth),
        unpaired=holds(by_policy.confidence_interval(), truth),
        alarms=permute_clusters(sums[:, 1] - sums[:, 0], seed=seed) < 0.05,
        alarms_unclustered=bool(stats.ttest_rel(alike[:, 1], alike[:, 0]).pvalue < 0.05),
        alarms_unpaired=bool(
            stats.ttest_ind(sums[:, 1] / sums[:, 2], sums[:, 0] / sums[:, 2]).pvalue < 0.05
        ),
    )


def holds(ends: Any, truth: float) -> bool:
    """Return whether the interval contains the truth."""
    return bool(ends[0] <= truth <= ends[1])


def list_settings(kinds: list[str], num_clusters: list[int]) -> Iterator[Setting]:
    """Yield every setting, in the order of the table."""
    every = itertools.product(kinds, ("even", "uneven"), CORRELATIONS, num_clusters)
    for kind, size, icc, number in every:
        yield Setting(kind, number, icc, size)


def run_setting(setting: Setting, num_simulations: int, seed: int) -> dict[str, Any]:
    """Return the setting with the share of simulations of each outcome."""
    outcomes = [
        asdict(run_once(setting, derive_seed(seed, *map(str, asdict(setting).values()), str(n))))
        for n in range(num_simulations)
    ]
    shares = {name: float(np.mean([one[name] for one in outcomes])) for name in outcomes[0]}
    effective = count_effective(setting.count_items().astype(np.float64))
    return {**asdict(setting), "num_effective_clusters": round(effective, 1), **shares}


def main() -> None:
    """Run all settings, print a table as they end and write the results if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--simulations", type=int, default=2000, help="per setting")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--clusters", nargs="+", type=int, default=list(NUM_CLUSTERS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # few clusters may not differ at all
    shares = list(Outcome.__dataclass_fields__)
    names = ["coverage", "percentile", "unclustered", "unpaired", "alarms", "uncl.", "unp."]
    print(f"{'kind':10} {'sizes':6} icc clusters  eff.", *(f"{name:>11}" for name in names))
    rows: list[dict[str, Any]] = []
    for setting in list_settings(arguments.kinds, arguments.clusters):
        row = run_setting(setting, arguments.simulations, arguments.seed)
        rows.append(row)
        head = f"{row['kind']:10} {row['sizes']:6} {row['icc']:.1f} {row['num_clusters']:6}"
        cells = (f"{100 * row[name]:9.1f} %" for name in shares)
        print(head, f"{row['num_effective_clusters']:5}", *cells, flush=True)
        if arguments.json:
            result = {"simulations": arguments.simulations, "seed": arguments.seed, "rows": rows}
            write_json(arguments.json, {"machine": describe_machine(), **result})


if __name__ == "__main__":
    main()
