"""How often the interval of a share holds the truth, also where what it counts is rare.

    python benchmarks/share_intervals.py --json results.json
    python benchmarks/share_intervals.py --simulations 400 --shares 0.01

Items come in clusters, each with a share of its own, drawn from a beta distribution; ``icc`` is the
correlation of two items of a cluster. Coverage ought to be 95 %. Beside the interval of
``groupwise.evaluation``: that of drawing whole clusters alone (draws), and Wilson's with every item
taken as independent (items). Widths are means, in percentage points.
"""

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.core import derive_seed, describe_machine, write_json
from groupwise.evaluation.intervals import (
    Interval,
    bound_clustered,
    bound_mean,
    bound_share,
    divide_sums,
)
from groupwise.evaluation.items import Items

SHARES = (0.01, 0.03, 0.1, 0.3, 0.5)
SHAPES = ((111, 1, 0.0), (25, 1, 0.0), (128, 8, 0.3), (30, 8, 0.3), (12, 8, 0.1))
"""Clusters, items of each, and their correlation."""
METHODS = ("ours", "draws", "items")
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated: the true share, and the clusters."""

    share: float
    num_clusters: int
    cluster_size: int
    icc: float


def simulate(setting: Setting, random: np.random.Generator) -> Items:
    """Return items that are 1 as often as the share says."""
    num_items = setting.num_clusters * setting.cluster_size
    shares = np.full(setting.num_clusters, setting.share)
    if setting.icc:
        scale = (1 - setting.icc) / setting.icc
        shares = random.beta(setting.share * scale, (1 - setting.share) * scale, len(shares))
    values = random.random(num_items) < np.repeat(shares, setting.cluster_size)
    clusters = tuple(f"g{number // setting.cluster_size:05}" for number in range(num_items))
    ids = tuple(f"i{number:05}" for number in range(num_items))
    return Items("hit", "test", "policy", ids, clusters, values.astype(np.float64), True, "")


def bound(items: Items, seed: int) -> dict[str, Interval]:
    """Return the interval of each method."""
    cells = np.column_stack([items.values, np.ones(len(items.ids))])
    (drawn,) = bound_clustered(items.clusters, cells, divide_sums, seed=seed)
    ours = bound_mean(items, seed=seed)
    assert drawn is not None
    assert ours is not None
    wilson = bound_share(float(items.values.sum()), len(items.ids))
    return {"ours": ours, "draws": drawn, "items": wilson}


def run_setting(setting: Setting, num_simulations: int, seed: int) -> dict[str, Any]:
    """Return the setting with the coverage and the mean width of each method."""
    held = np.zeros((num_simulations, len(METHODS)))
    widths = np.zeros_like(held)
    for number in range(num_simulations):
        here = derive_seed(seed, *map(str, asdict(setting).values()), str(number))
        found = bound(simulate(setting, np.random.default_rng(here)), here)
        for column, method in enumerate(METHODS):
            low, high = found[method]
            held[number, column] = low <= setting.share <= high
            widths[number, column] = high - low
    pairs = zip(METHODS, held.mean(axis=0), widths.mean(axis=0), strict=True)
    return {
        **asdict(setting),
        **{m: {"coverage": float(c), "width": float(w)} for m, c, w in pairs},
    }


def list_settings(shares: list[float]) -> Iterator[Setting]:
    """Yield every setting, in the order of the table."""
    for share, shape in itertools.product(shares, SHAPES):
        yield Setting(share, *shape)


def main() -> None:
    """Run all settings, print a table as they end and write the results if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--simulations", type=int, default=1000, help="per setting")
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print("share clusters size icc", *(f"{name:>16}" for name in METHODS))
    rows: list[dict[str, Any]] = []
    for setting in list_settings(arguments.shares):
        row = run_setting(setting, arguments.simulations, arguments.seed)
        rows.append(row)
        cells = (f"{row[m]['coverage']:8.1%} ({100 * row[m]['width']:4.1f})" for m in METHODS)
        head = (
            f"{setting.share:5} {setting.num_clusters:6} {setting.cluster_size:4} {setting.icc:3}"
        )
        print(head, *cells, flush=True)
        if arguments.json:
            result = {"simulations": arguments.simulations, "seed": arguments.seed, "rows": rows}
            write_json(arguments.json, {"machine": describe_machine(), **result})


if __name__ == "__main__":
    main()
