import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import hypergeom

from groupwise.evaluation import Prediction
from groupwise.evaluation.metrics import estimate_pass, list_sampled_measures, score_samples

Make = Callable[..., Prediction]
CASES = [(n, c, k) for n in (1, 2, 5, 8) for c in range(n + 1) for k in range(1, n + 1)]


@pytest.mark.parametrize(("num_samples", "num_right", "k"), CASES)
def test_pass_is_the_share_of_all_choices_of_k(num_samples: int, num_right: int, k: int) -> None:
    samples = [n < num_right for n in range(num_samples)]
    shares = [any(chosen) for chosen in itertools.combinations(samples, k)]
    assert estimate_pass(num_samples, num_right, k) == pytest.approx(np.mean(shares))


def test_pass_is_the_product_of_the_paper_and_the_hypergeometric_chance() -> None:
    for n, c, k in ((100, 3, 10), (200, 40, 100), (1000, 1, 1)):
        product = 1 - np.prod(1 - k / np.arange(n - c + 1, n + 1))
        assert estimate_pass(n, c, k) == pytest.approx(product)
        assert estimate_pass(n, c, k) == pytest.approx(hypergeom.sf(0, n, c, k))


def test_none_right_is_exactly_0_and_too_few_wrong_exactly_1() -> None:
    assert estimate_pass(200, 0, 100) == 0.0
    assert estimate_pass(200, 101, 100) == 1.0


def test_estimate_has_no_bias() -> None:
    # k answers drawn afresh are right with 1 - (1 - p)^k; 8 samples estimate it for k = 4.
    num_right = np.random.default_rng(0).binomial(8, 0.2, size=20_000)
    mean = np.mean([estimate_pass(8, int(c), 4) for c in num_right])
    assert mean == pytest.approx(1 - 0.8**4, abs=0.006)
    plugged_in = np.mean(1 - (1 - num_right / 8) ** 4)
    assert plugged_in < mean - 0.02


def test_measures_are_powers_of_two_and_the_fewest_samples(make_prediction: Make) -> None:
    def names(*counts: int) -> tuple[str, ...]:
        return list_sampled_measures([make_prediction(samples=(True,) * n) for n in counts])

    assert names(8, 6, 0) == ("pass@1", "pass@2", "pass@4", "pass@6", "mean@6")
    assert names(4) == ("pass@1", "pass@2", "pass@4", "mean@4")
    assert names(1) == ("pass@1", "mean@1")
    assert names(0) == names() == ()


def test_item_without_samples_has_no_score(make_prediction: Make) -> None:
    assert score_samples(make_prediction(), "pass@1") is None
    item = make_prediction(samples=(True, False, False, False))
    assert score_samples(item, "mean@4") == score_samples(item, "pass@1") == 0.25
    assert score_samples(item, "pass@4") == 1.0
