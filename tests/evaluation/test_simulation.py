"""Whether intervals of 95 % hold the truth in 95 % of trials, and 5 % of tests are false alarms.

Two policies answer the same items in clusters; ``benchmarks/paired_statistics.py`` does the same
with other numbers of clusters and correlations.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from groupwise.evaluation.intervals import bound_difference, sum_by_cluster
from groupwise.evaluation.significance import permute_clusters

NUM_TRIALS = 1000
NUM_CLUSTERS = 60
SIZES = np.resize([2, 4, 7, 12], NUM_CLUSTERS)
CODES = np.repeat(np.arange(NUM_CLUSTERS), SIZES)
CLUSTERS = [f"g{code:02}" for code in CODES]
CORRELATION = 0.4
SHIFT = 0.5


@dataclass
class Trials:
    """Differences of each trial's items, and values by policy, with and without a difference."""

    is_binary: bool
    truth: float
    unlike: np.ndarray
    alike: np.ndarray


@pytest.fixture(scope="module", params=["binary", "continuous"])
def trials(request: pytest.FixtureRequest) -> Trials:
    random = np.random.default_rng(11)
    shape = (NUM_TRIALS, NUM_CLUSTERS)
    latent = random.normal(size=(*shape, 1))[:, CODES] + random.normal(
        size=(NUM_TRIALS, len(CODES), 1)
    )
    latent = latent + np.sqrt(CORRELATION) * random.normal(size=(*shape, 2))[:, CODES]
    latent += np.sqrt(1 - CORRELATION) * random.normal(size=(NUM_TRIALS, len(CODES), 2))
    shifted = latent + np.asarray([0, SHIFT])
    if request.param == "binary":
        # P(latent + shift > 0) with a variance of 3.
        truth = stats.norm.cdf(SHIFT / np.sqrt(3)) - 0.5
        return Trials(True, truth, (shifted > 0).astype(float), (latent > 0).astype(float))
    # E[cdf(latent + shift)] with a variance of 3.
    truth = stats.norm.cdf(SHIFT / 2) - 0.5
    return Trials(False, truth, stats.norm.cdf(shifted), stats.norm.cdf(latent))


def count_held(intervals: list[tuple[float, float]], truth: float) -> float:
    return float(np.mean([low <= truth <= high for low, high in intervals]))


def test_clustered_paired_intervals_hold_the_truth(trials: Trials) -> None:
    intervals = []
    for seed, values in enumerate(trials.unlike):
        gains = values[:, 1] - values[:, 0]
        ends = bound_difference(
            CLUSTERS, gains, is_binary=trials.is_binary, seed=seed, num_resamples=1000
        )
        intervals.append(ends)
    assert 0.93 <= count_held(intervals, trials.truth) <= 0.97


def test_permuting_clusters_raises_few_false_alarms(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The level of the test does not depend on the number of permutations.
    monkeypatch.setattr("groupwise.evaluation.significance.NUM_PERMUTATIONS", 999)
    gains = trials.alike[..., 1] - trials.alike[..., 0]
    alarms = [
        permute_clusters(sum_by_cluster(CLUSTERS, one[:, None])[:, 0], seed=seed) < 0.05
        for seed, one in enumerate(gains)
    ]
    assert 0.03 <= np.mean(alarms) <= 0.07


def test_items_taken_as_independent_fail(trials: Trials) -> None:
    unlike = trials.unlike[..., 1] - trials.unlike[..., 0]
    intervals = stats.ttest_1samp(unlike, 0, axis=1).confidence_interval()
    assert count_held(list(zip(*intervals, strict=True)), trials.truth) < 0.85
    alarms = stats.ttest_rel(trials.alike[..., 1], trials.alike[..., 0], axis=1).pvalue < 0.05
    assert alarms.mean() > 0.14


def test_policies_taken_as_unpaired_fail(trials: Trials) -> None:
    firsts = np.flatnonzero(np.diff(CODES, prepend=-1))
    unlike, alike = (
        np.add.reduceat(values, firsts, axis=1) / SIZES[:, None]
        for values in (trials.unlike, trials.alike)
    )
    intervals = stats.ttest_ind(unlike[..., 1], unlike[..., 0], axis=1).confidence_interval()
    assert count_held(list(zip(*intervals, strict=True)), trials.truth) > 0.98
    alarms = stats.ttest_ind(alike[..., 1], alike[..., 0], axis=1).pvalue < 0.05
    assert alarms.mean() < 0.02
