"""Method differences, seeds and clusters at random: the part of ``coverage.py`` that trains.

``kappa`` is the standard deviation of one training over that of one run's difference from drawing
clusters. A binary outcome is a normal sum above a threshold; in a skewed one 5 % of the items gain
50 points and the rest lose so that the mean is right; in "rare" whole clusters do, one in ten.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from groupwise.evaluation.statistics import find_half_width, split_variance

Floats = NDArray[Any]
KAPPAS = (0.0, 0.5, 1.5, 4.0)
SEEDS = ((2, 2), (3, 3), (5, 5), (10, 10), (3, 5))
SHARED = {"cluster": 0.2, "item": 0.4}
OWN = {"cluster": 0.05, "item": 0.1}
ANEW = {"cluster": 0.05, "item": 0.2}
LATENT = sum(sum(part.values()) for part in (SHARED, OWN, ANEW))
RARE, GAIN = 0.05, 0.5


def fix_sizes(kind: str, num_clusters: int) -> Floats:
    """Return sizes (G,) of clusters."""
    if kind == "even":
        return np.full(num_clusters, 8.0)
    return np.round(np.geomspace(1, 30, num_clusters))


def draw_trainings(random: np.random.Generator, shape: tuple[int, ...], kind: str) -> Floats:
    """Return effects of trainings, of mean 0 and variance 1."""
    if kind == "collapse":  # one training in ten fails
        return ((random.random(shape) < 0.1) * -1.0 + 0.1) / 0.3
    if kind == "heavy":
        return random.standard_t(3, shape) / 3**0.5
    return random.standard_normal(shape)


def pair(own: Floats, common: Floats, paired: bool) -> Floats:
    """Return effects (S, 2, ...) of which the sides share half the variance where paired."""
    return own if not paired else np.sqrt(0.5).astype(own.dtype) * (own + common[:, :1])


def simulate_binary(
    random: np.random.Generator,
    count: int,
    sizes: Floats,
    num_seeds: int,
    trainings: str,
    se: float,
) -> Iterator[tuple[tuple[bool, float, int], Floats, float]]:
    """Yield (paired, kappa, shift), sums (S, 2, R, G) by cluster, and the true difference."""
    items = sizes.astype(int)
    codes, starts = np.repeat(np.arange(len(sizes)), items), np.r_[0, np.cumsum(items)[:-1]]

    def draw(variance: float, *shape: int) -> Any:
        return np.float32(variance**0.5) * random.standard_normal(shape, dtype=np.float32)

    clusters, n = len(sizes), int(items.sum())
    fixed = draw(SHARED["cluster"], count, 1, clusters) + draw(OWN["cluster"], count, 2, clusters)
    fixed = fixed[:, :, codes] + draw(SHARED["item"], count, 1, n) + draw(OWN["item"], count, 2, n)
    latent = draw(ANEW["item"], count, 2, num_seeds, n) + fixed[:, :, None]
    anew = [draw(ANEW["cluster"], count, 2, num_seeds, clusters) for _ in range(2)]
    seeds = [draw_trainings(random, (count, 2, num_seeds), trainings) for _ in range(2)]
    for paired in (False, True):
        values = latent + np.repeat(pair(anew[0], anew[1], paired), items, axis=-1)
        effect = pair(seeds[0], seeds[1], paired)
        for kappa, shift in itertools.product(KAPPAS if se else (0.0,), (0, 1)):
            spread = kappa * se / (stats.norm.pdf(stats.norm.ppf(0.8)) / LATENT**0.5)
            means = stats.norm.ppf([0.8, 0.8 + 0.05 * shift]) * np.sqrt(LATENT + spread**2)
            right = values > (-means[:, None] - spread * effect)[..., None].astype(np.float32)
            sums = np.add.reduceat(right.view(np.uint8), starts, axis=-1, dtype=np.uint8)
            yield (paired, kappa, shift), sums.astype(np.float64), 0.05 * shift


def simulate_skewed(
    random: np.random.Generator,
    count: int,
    sizes: Floats,
    num_seeds: int,
    trainings: str,
    se: float,
) -> Iterator[tuple[tuple[bool, float, int], Floats, float]]:
    """As ``simulate_binary``, of scores of which few items have all the gain."""
    shares = random.beta(RARE * 4, (1 - RARE) * 4, (count, len(sizes)))
    gain = GAIN * random.binomial(sizes.astype(int), shares)
    yield from _simulate_scores(random, gain, RARE, sizes, (num_seeds, trainings, se))


def simulate_rare(
    random: np.random.Generator,
    count: int,
    sizes: Floats,
    num_seeds: int,
    trainings: str,
    se: float,
) -> Iterator[tuple[tuple[bool, float, int], Floats, float]]:
    """As ``simulate_binary``, of scores of which one cluster in ten has all the gain."""
    gain = GAIN * sizes * (random.random((count, len(sizes))) < 0.1)
    yield from _simulate_scores(random, gain, 0.1, sizes, (num_seeds, trainings, se))


def _simulate_scores(
    random: np.random.Generator,
    gain: Floats,
    rare: float,
    sizes: Floats,
    how: tuple[int, str, float],
) -> Iterator[tuple[tuple[bool, float, int], Floats, float]]:
    num_seeds, trainings, se = how
    count, clusters = gain.shape
    root = np.sqrt(sizes)
    own = 0.03 * sizes * random.standard_normal((count, 2, clusters))
    own += 0.08 * root * random.standard_normal((count, 2, clusters))
    own[:, 1] += gain
    shape = (count, 2, num_seeds, clusters)
    item = 0.15 * root * random.standard_normal(shape)
    anew = [0.03 * sizes * random.standard_normal(shape) for _ in range(2)]
    seeds = [draw_trainings(random, shape[:3], trainings) for _ in range(2)]
    for paired in (False, True):
        values = item + pair(anew[0], anew[1], paired) + own[:, :, None]
        effect = pair(seeds[0], seeds[1], paired)[..., None] * sizes
        for kappa, shift in itertools.product(KAPPAS if se else (0.0,), (0, 1)):
            sums = values + kappa * se * effect
            sums[:, 1] -= 0 if shift else sizes * rare * GAIN
            yield (paired, kappa, shift), sums, rare * GAIN * shift


SIMULATIONS: dict[str, Callable[..., Any]] = {
    "binary": simulate_binary,
    "skewed": simulate_skewed,
    "rare": simulate_rare,
}


def run_methods(
    outcome: str, kind: str, num_clusters: int, trainings: str, simulations: int, random: Any
) -> list[dict[str, Any]]:
    """Return a row for each design, kappa, shift and number of seeds."""
    sizes, simulate = fix_sizes(kind, num_clusters), SIMULATIONS[outcome]
    _, pilot, _ = next(simulate(random, 500, sizes, 1, "normal", 0.0))
    se = float(((pilot[:, 1] - pilot[:, 0]).sum(axis=(1, 2)) / sizes.sum()).std())
    held: dict[Any, list[Floats]] = {}
    chunk = max(20, int(1.5e6 / (20 * (sizes.sum() if outcome == "binary" else num_clusters))))
    for start in range(0, simulations, chunk):
        count = min(chunk, simulations - start)
        for key, sums, truth in simulate(random, count, sizes, 10, trainings, se):
            for one, other in SEEDS:
                if not key[0] or one == other:
                    sides = sums[:, 0, :one], sums[:, 1, :other]
                    parts = split_variance(*sides, sizes, is_paired=key[0])
                    miss = np.abs(parts.estimate - truth)
                    held.setdefault((*key, one, other), []).append(miss <= find_half_width(parts))
    head = {"outcome": outcome, "sizes": kind, "clusters": num_clusters, "trainings": trainings}
    return [
        {**head, "paired": paired, "kappa": kappa, "shift": shift, "seeds": [one, other]}
        | {"held": round(float(np.concatenate(parts).mean()), 4)}
        for (paired, kappa, shift, one, other), parts in held.items()
    ]


def list_methods() -> Iterator[tuple[str, str, int, str]]:
    """Yield outcome, sizes, clusters and trainings of every setting."""
    for job in itertools.product(("binary", "skewed"), ("even", "uneven"), (10, 40, 150)):
        yield (*job, "normal")
    yield from (("binary", "even", 40, kind) for kind in ("collapse", "heavy"))
    yield from (("rare", "even", number, "normal") for number in (10, 40, 150))
