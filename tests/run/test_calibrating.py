"""Temperatures: what is fitted, what it does to probabilities, and where none is known."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.predictions import Prediction
from groupwise.run.asking import MIN_ITEMS, fit_temperature, temper

THREE = ("a", "b", "c")
SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=5).filter(lambda one: sum(one) > 0.01)


def draw_too_sure(num_items, value, *, seed):
    """Return shares that are ``value`` times too sure, and truths drawn from the honest ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (num_items, len(THREE)))
    honest = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    said = np.exp(value * logits) / np.exp(value * logits).sum(axis=1, keepdims=True)
    truths = [str(rng.choice(THREE, p=row)) for row in honest]
    return [dict(zip(THREE, row.tolist(), strict=True)) for row in said], truths


@pytest.mark.parametrize("value", [0.4, 1.0, 3.0])
def test_it_finds_how_much_too_sure_somebody_is(value):
    fitted = fit_temperature(*draw_too_sure(4000, value, seed=1))
    assert fitted.value == pytest.approx(value, rel=0.1)
    assert (fitted.num_items, fitted.reason) == (4000, "")
    assert 0 < fitted.num_mistakes < 4000


def test_fitted_on_some_items_it_is_right_about_others():
    value = fit_temperature(*draw_too_sure(500, 3.0, seed=1)).value
    shares, truths = draw_too_sure(4000, 3.0, seed=2)
    rows = [
        Prediction(f"i{n:04}", f"g{n:04}", "test", "grpo", truth, max(one, key=one.get))
        for n, (truth, one) in enumerate(zip(truths, shares, strict=True))
    ]
    errors: list[float] = []
    for each in (shares, [temper(one, value) for one in shares]):
        said = [replace(p, probabilities=one) for p, one in zip(rows, each, strict=True)]
        metrics = compute_metrics(said, labels=THREE)
        errors += [one.value for one in metrics if one.measure == "ece"]
    assert errors[0] > 0.15
    assert errors[1] < 0.03


@given(shares=SHARES, value=st.floats(0.05, 20))
def test_it_changes_no_answer_and_at_one_nothing(shares, value):
    total = sum(shares)
    before = {str(n): one / total for n, one in enumerate(shares)}
    after = temper(before, value)
    assert sum(after.values()) == pytest.approx(1)
    assert list(after) == list(before)
    for one, other in itertools.product(before, before):
        assert before[one] < before[other] or after[one] >= after[other]
    assert temper(before, 1.0) == pytest.approx(before, abs=1e-9)


def test_no_other_temperature_fits_better():
    shares, truths = draw_too_sure(200, 2.0, seed=3)

    def lose(value):
        likely = [temper(one, value)[truth] for one, truth in zip(shares, truths, strict=True)]
        return -np.log(likely).mean()

    best = lose(fit_temperature(shares, truths).value)
    assert all(lose(value) >= best - 1e-6 for value in np.geomspace(0.05, 20, 100))


def test_certainty_that_is_wrong_is_cooled_and_stays_a_number():
    shares = [{"a": 1.0, "b": 0.0}] * 30
    fitted = fit_temperature(shares, ["a"] * 20 + ["b"] * 10)
    assert fitted.value == pytest.approx(20, rel=0.01)
    assert all(0 < one < 1 for one in temper(shares[0], fitted.value).values())


@pytest.mark.parametrize(
    ("num_items", "truth", "reason", "num_mistakes"),
    [
        (0, "a", "fewer than 20 items", 0),
        (MIN_ITEMS - 1, "b", "fewer than 20 items", MIN_ITEMS - 1),
        (MIN_ITEMS, "a", "no mistake", 0),
        (MIN_ITEMS, "b", "nothing right", MIN_ITEMS),
    ],
)
def test_where_none_can_be_known_there_is_none(num_items, truth, reason, num_mistakes):
    fitted = fit_temperature([{"a": 0.9, "b": 0.1}] * num_items, [truth] * num_items)
    assert (fitted.value, fitted.reason) == (None, reason)
    assert (fitted.num_items, fitted.num_mistakes) == (num_items, num_mistakes)
