"""How often the intervals of methods, of ratios and of paired gains hold the truth, by simulation.

    python benchmarks/coverage.py --json benchmarks/results/coverage.json
    python benchmarks/coverage.py --simulations 500

The functions that bound are the library's. Coverage ought to be 95 %; false alarms (of a test where
there is no difference) 5 %. "even" clusters have 8 items, "uneven" 1 to 30.
"""

import argparse
import itertools
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from coverage_methods import GAIN, RARE, SEEDS, list_methods, run_methods
from numpy.typing import NDArray

from groupwise.core import describe_machine
from groupwise.evaluation.statistics import (
    FEW_CARRYING,
    bound_gain,
    bound_ratio,
    count_carrying,
    square_sums,
)

Floats = NDArray[Any]
GAIN_KINDS = ("symmetric", "rare items", "lognormal", "rare 10%", "rare 3%", "by size")
RATIO_KINDS = (
    *(("mean", share) for share in (0.5, 0.86, 0.02, 0.005)),
    ("slice", 0.8),
    ("tied", 0.8),
    ("score", 0.2),
)


def seed_from(*parts: Any) -> np.random.Generator:
    """Return a generator that belongs to a setting."""
    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


def draw_sizes(random: np.random.Generator, shape: tuple[int, int], kind: str) -> Floats:
    """Return sizes (S, G) of clusters, drawn where uneven."""
    if kind == "even":
        return np.full(shape, 8.0)
    return np.round(np.exp(random.uniform(np.log(0.51), np.log(30.49), shape)))


def draw_shares(random: np.random.Generator, share: float, icc: float, shape: Any) -> Floats:
    """Return each cluster's share, from a beta distribution with this intra-cluster correlation."""
    scale = (1 - icc) / icc
    return random.beta(share * scale, (1 - share) * scale, shape)


def simulate_ratio(
    random: np.random.Generator, sizes: Floats, kind: str, share: float, icc: float
) -> tuple[Floats, Floats, float]:
    """Return numerators and denominators (S, G) by cluster, and the true ratio."""
    items, shares = sizes.astype(int), draw_shares(random, share, icc, sizes.shape)
    if kind == "mean":
        return random.binomial(items, shares).astype(float), sizes, share
    if kind == "score":  # a mean of beta scores of one cluster, by its first two moments
        shares = np.clip(shares, 1e-6, 1 - 1e-6)
        scale = 3 * sizes - 1
        return sizes * random.beta(shares * scale, (1 - shares) * scale), sizes, share
    inside = draw_shares(random, 0.3, 0.4, sizes.shape)
    bases = random.binomial(items, inside)
    if kind == "tied":  # the more of a cluster is in the base, the more often it is right
        shares = share + 0.3 * (inside - 0.5)
        share += 0.3 * ((0.4 * 0.3 * 0.7 + 0.09) / 0.3 - 0.5)
    return random.binomial(bases, shares).astype(float), bases.astype(float), share


def run_ratios(
    kind: tuple[str, float], icc: float, sizes: str, num_clusters: int, simulations: int
) -> dict[str, Any]:
    """Return how often the interval of a ratio holds; with two or more clusters in the base."""
    random = seed_from("ratios", kind, icc, sizes, num_clusters)
    held, widths, truth = list[Floats](), list[Floats](), 0.0
    for _ in range(0, simulations, 500):
        drawn = draw_sizes(random, (500, num_clusters), sizes)
        tops, bases, truth = simulate_ratio(random, drawn, *kind, icc)
        there = (bases > 0).sum(axis=1) > 1
        low, high = bound_ratio(tops[there], bases[there], is_binary=kind[0] != "score")
        held.append((low <= truth + 1e-12) & (truth <= high + 1e-12))
        widths.append(high - low)
    setting = {"kind": kind[0], "share": kind[1], "icc": icc, "sizes": sizes}
    found = {"held": mean_of(held), "width": mean_of(widths)}
    return {**setting, "clusters": num_clusters, **found}


def mean_of(parts: list[Any]) -> float:
    """Return the mean over all data sets, to four places."""
    return round(float(np.concatenate(parts).mean()), 4)


def simulate_gains(random: np.random.Generator, sizes: Floats, kind: str) -> Floats:
    """Return sums (S, G) of gains by cluster, of which the mean over items is 0."""
    normal = random.standard_normal(sizes.shape)
    noise = 0.15 * np.sqrt(sizes) * random.standard_normal(sizes.shape)
    if kind == "symmetric":
        return noise + 0.05 * sizes * normal
    if kind == "rare items":
        shares = random.beta(RARE * 4, (1 - RARE) * 4, sizes.shape)
        return noise + GAIN * (random.binomial(sizes.astype(int), shares) - RARE * sizes)
    if kind == "lognormal":
        return noise + 0.05 * sizes * (np.exp(normal) - np.exp(0.5))
    if kind == "by size":  # the larger the cluster the larger the gain
        grid = np.round(np.exp(np.linspace(np.log(0.51), np.log(30.49), 200_001)))
        center = (grid * np.log(grid)).mean() / grid.mean()
        return noise + sizes * (0.03 * normal + 0.06 * (np.log(sizes) - center))
    share = 0.1 if kind == "rare 10%" else 0.03
    return noise + 0.4 * sizes * ((random.random(sizes.shape) < share) - share)


def run_gains(kind: str, sizes: str, num_clusters: int, simulations: int) -> dict[str, Any]:
    """Return false alarms of the paired test, and how often it says that it rests on few."""
    random = seed_from("gains", kind, sizes, num_clusters)
    alarms, few = list[Floats](), list[Floats]()
    for _ in range(0, simulations, 500):
        drawn = draw_sizes(random, (500, num_clusters), sizes)
        sums = simulate_gains(random, drawn, kind)
        shares = np.full(num_clusters, 1 / num_clusters)
        weights = random.multinomial(num_clusters, shares, 399).astype(np.float64)
        draws = np.einsum("sgk,dg->sdk", square_sums(sums, drawn), weights, optimize=True)
        alarms.append(bound_gain(sums, drawn, draws)[2] < 0.05)
        few.append(count_carrying(sums, drawn) < FEW_CARRYING)
    alarm, remark = np.concatenate(alarms), np.concatenate(few)
    setting = {"kind": kind, "sizes": sizes, "clusters": num_clusters}
    found = {"alarms": alarm, "remark": remark, "unremarked": alarm & ~remark}
    return {**setting, **{name: round(float(one.mean()), 4) for name, one in found.items()}}


def list_rows(part: str, simulations: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part, as they come."""
    if part == "methods":
        for job in list_methods():
            yield from run_methods(*job, simulations, seed_from("methods", *job))
    if part == "gains":
        for job in itertools.product(GAIN_KINDS, ("even", "uneven"), (5, 10, 15, 40, 100, 150)):
            if job[:2] != ("by size", "even"):  # sizes that agree have no tie
                yield run_gains(*job, simulations)
    if part == "ratios":
        numbers, iccs = (5, 10, 15, 40, 150), (0.02, 0.1, 0.3, 0.5)
        for job in itertools.product(RATIO_KINDS, iccs, ("even", "uneven"), numbers):
            yield run_ratios(*job, simulations)


def summarize(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the worst of each part, and how many settings hold less than 93 %."""
    found: dict[str, Any] = {}

    def add(name: str, chosen: list[dict[str, Any]]) -> None:
        held = [row["held"] for row in chosen]
        if held:
            low = sum(one < 0.93 for one in held)
            found[name] = {"settings": len(held), "worst": min(held), "below_93": low}

    methods, ratios = rows.get("methods", []), rows.get("ratios", [])
    plain = [row for row in methods if row["outcome"] != "rare" and row["trainings"] == "normal"]
    for one, other in SEEDS:
        add(f"methods {one} {other}", [row for row in plain if row["seeds"] == [one, other]])
    add("methods rare", [row for row in methods if row["outcome"] == "rare"])
    add("ratios binary", [row for row in ratios if row["kind"] != "score"])
    add("ratios scores", [row for row in ratios if row["kind"] == "score"])
    gains = rows.get("gains", [])
    for name, is_rare in (("gains", False), ("gains rare", True)):
        chosen = [one for one in gains if (one["kind"] in ("rare 10%", "rare 3%")) == is_rare]
        if chosen:
            worst = {key: max(one[key] for one in chosen) for key in ("alarms", "unremarked")}
            found[name] = {"settings": len(chosen), **worst}
    return found


def main() -> None:
    """Run the settings and write rows and summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--simulations", type=int, default=3000, help="data sets a setting")
    parser.add_argument("--parts", nargs="+", default=["ratios", "gains", "methods"])
    arguments = parser.parse_args()
    np.seterr(all="ignore")
    rows = {part: list(list_rows(part, arguments.simulations)) for part in arguments.parts}
    command = f"python benchmarks/coverage.py --simulations {arguments.simulations}"
    found = {"command": command, **describe_machine(), "summary": summarize(rows)}
    json.dump(found["summary"], sys.stdout, indent=1)
    if arguments.json:
        lines = {part: [json.dumps(row) for row in each] for part, each in rows.items()}
        text = json.dumps(found, indent=1).removesuffix("\n}")
        for part, each in lines.items():
            text += f',\n "{part}": [\n  ' + ",\n  ".join(each) + "\n ]"
        arguments.json.write_text(text + "\n}\n")


if __name__ == "__main__":
    main()
