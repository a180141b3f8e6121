"""Whether intervals of 95 % hold the truth in 95 % of trials, and 5 % of tests are false alarms.

Two policies answer the same items in clusters; ``benchmarks/coverage.py`` does the same
with skewed gains and other numbers of clusters.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from groupwise.evaluation.statistics import Gain, assess_gains

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
    intervals = [assess(gains, trials) for gains in trials.unlike[..., 1] - trials.unlike[..., 0]]
    assert 0.93 <= count_held([(one.low, one.high) for one in intervals], trials.truth) <= 0.98


def test_tests_by_clusters_raise_few_false_alarms(trials: Trials) -> None:
    gains = trials.alike[..., 1] - trials.alike[..., 0]
    assert 0.02 <= np.mean([assess(one, trials).p_value < 0.05 for one in gains]) <= 0.07


def assess(gains: np.ndarray, trials: Trials) -> Gain:
    return assess_gains(CLUSTERS, gains, is_binary=trials.is_binary, seed=0, num_resamples=399)


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
