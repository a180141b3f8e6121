"""False alarms of paired methods with few seeds, where trainings differ by some logits.

    python benchmarks/coverage_seeds.py --json benchmarks/results/coverage_seeds.json

Two methods are the same; each training of each of them moves all its logits by a normal amount of
this standard deviation. An alarm is an interval without 0; there ought to be 5 %. ``without`` is
the interval without the bound by the seeds' own Student's t. With ``--simulations 4000`` a share
of 5 % has a standard error of 0.3 points. The functions that bound are the library's.
"""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.evaluation.statistics import (
    LEVEL,
    Components,
    find_half_width,
    find_quantile,
    split_variance,
)

Floats = NDArray[Any]
SEEDS = (3, 4, 5, 8)
SIZES = ((100, 1), (60, 5), (300, 1))
SPREADS = (0.0, 0.1, 0.3, 0.6, 1.0)
CHUNK = 250


def bound_without(parts: Components) -> Floats:
    """Return half the width of the interval that may be narrower than that of the seeds."""
    seed = find_quantile(parts.seed_df, LEVEL) ** 2 * parts.seed_alone
    return np.sqrt(seed + find_quantile(parts.cluster_df, LEVEL) ** 2 * parts.cluster)


def simulate(
    random: np.random.Generator,
    count: int,
    num_seeds: int,
    clusters: int,
    items: int,
    spread: float,
) -> Floats:
    """Return right answers (count, 2, num_seeds, clusters) of two methods that are the same."""
    codes = np.repeat(np.arange(clusters), items)
    base = random.normal(1.0, 1.2, (count, 1, 1, len(codes)))
    base += random.normal(0, 0.5, (count, 1, 1, clusters))[..., codes]
    own = random.normal(0, 0.3, (count, 2, 1, len(codes)))
    training = random.normal(0, spread, (count, 2, num_seeds, 1))
    chance = 1 / (1 + np.exp(-(base + own + training)))
    right = random.random(chance.shape) < chance
    return np.add.reduceat(right.astype(float), np.arange(0, len(codes), items), axis=-1)


def run(simulations: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of seeds, shape of the test split and spread of trainings."""
    for num_seeds, (clusters, items), spread in itertools.product(SEEDS, SIZES, SPREADS):
        random = np.random.default_rng([num_seeds, clusters, items, int(10 * spread)])
        alarms: dict[str, list[Floats]] = {"with": [], "without": []}
        widths: list[Floats] = []
        for _ in range(0, simulations, CHUNK):
            sums = simulate(random, CHUNK, num_seeds, clusters, items, spread)
            sizes = np.full(clusters, float(items))
            parts = split_variance(sums[:, 0], sums[:, 1], sizes, is_paired=True)
            size, half = np.abs(parts.estimate), find_half_width(parts)
            alarms["with"].append(size > half)
            alarms["without"].append(size > bound_without(parts))
            widths.append(half)
        yield {
            "seeds": num_seeds,
            "clusters": clusters,
            "items_per_cluster": items,
            "logits": spread,
            **{name: round(float(np.concatenate(one).mean()), 4) for name, one in alarms.items()},
            "half_width": round(float(np.median(np.concatenate(widths))), 4),
        }


def main() -> None:
    """Print the rows, and write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=4000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for row in run(asked.simulations):
        print(row, flush=True)
        rows.append(row)
    worst = {name: max(row[name] for row in rows) for name in ("with", "without")}
    print("most false alarms:", worst)
    if asked.json:
        found = {"simulations": asked.simulations, "most": worst, "rows": rows}
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
