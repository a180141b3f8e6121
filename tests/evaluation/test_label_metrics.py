"""What labels and their probabilities say: confusion, calibration, temperature."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from groupwise.evaluation.metrics import (
    MIN_ITEMS,
    Confusion,
    Metric,
    bin_reliability,
    compute_metrics,
    count_confusion,
    fill_cells,
    fit_temperature,
    rate_cells,
    score_cells,
    temper,
)
from groupwise.evaluation.predictions import Prediction

LABELS = ("on-task", "off-task")


def predict(truths_and_p: list[tuple[str, float]]) -> list[Prediction]:
    """Predictions from (truth, probability of on-task)."""
    return [
        Prediction(
            f"i{n}",
            f"g{n}",
            "test",
            "grpo",
            truth,
            "on-task" if p >= 0.5 else "off-task",
            probabilities={"on-task": p, "off-task": 1 - p},
        )
        for n, (truth, p) in enumerate(truths_and_p)
    ]


def score(items: list[Prediction], labels: tuple[str, ...] = LABELS) -> list[float]:
    """Brier score and calibration error."""
    cells = fill_cells(items, labels)
    ratios = {name: tops.sum() / bases.sum() for name, tops, bases, _ in rate_cells(cells, labels)}
    return [ratios.get("brier", np.nan), float(score_cells(cells.sum(axis=0), labels)[1])]


def test_bins_of_a_hand_made_table():
    items = predict([("on-task", 0.52), ("off-task", 0.54), ("off-task", 0.02), ("on-task", 1.0)])
    bins = bin_reliability(items, LABELS)
    assert len(bins) == 10
    assert (bins[0].low, bins[-1].high) == (0.5, 1.0)
    assert bins[0].num_items == 2
    assert bins[0].confidence == pytest.approx(0.53)
    assert bins[0].accuracy == 0.5
    assert (bins[-1].num_items, bins[-1].accuracy) == (2, 1.0)
    assert bins[-1].confidence == pytest.approx(0.99)
    assert [part.num_items for part in bins[1:-1]] == [0] * 8
    assert (bins[4].confidence, bins[4].accuracy) == (None, None)
    assert score(items)[1] == pytest.approx(0.5 * 0.03 + 0.5 * 0.01)
    # One more item in the last bin: gap (0.98 + 1 + 0.99) / 3 - 1 of three items in five.
    more = [*items, *predict([("on-task", 0.99)])]
    assert score(more)[1] == pytest.approx(2 / 5 * 0.03 + 3 / 5 * 0.01)


def test_brier_score_of_a_hand_made_table():
    items = predict([("on-task", 0.8), ("off-task", 0.4)])
    assert score(items)[0] == pytest.approx((0.2**2 + 0.4**2) / 2)


def test_items_without_probabilities_take_no_part(make_prediction):
    silent = make_prediction(example_id="silent")
    items = predict([("on-task", 0.8)])
    assert score([*items, silent]) == score(items)
    assert sum(part.num_items for part in bin_reliability([*items, silent], LABELS)) == 1
    assert np.isnan(score([silent])).all()


def test_three_labels_give_a_brier_score_in_the_unit_interval():
    item = Prediction("i", "g", "test", "p", "a", "b", probabilities={"a": 0.0, "b": 1.0, "c": 0.0})
    assert score([item], ("a", "b", "c"))[0] == pytest.approx(1.0)
    assert bin_reliability([item], ("a", "b", "c"))[0].low == pytest.approx(1 / 3)


@given(st.lists(st.tuples(st.sampled_from(LABELS), st.floats(0, 1)), min_size=1, max_size=60))
def test_scores_equal_their_references(rows):
    items = predict(rows)
    truths = [int(truth == "on-task") for truth, _ in rows]
    brier = brier_score_loss(truths, [p for _, p in rows])
    assert score(items)[0] == pytest.approx(brier, abs=1e-12)

    bins = bin_reliability(items, LABELS)
    assert sum(part.num_items for part in bins) == len(rows)
    confidence = [max(p, 1 - p) for _, p in rows]
    correct = [truth == ("on-task" if p >= 1 - p else "off-task") for truth, p in rows]
    mean_correct = sum((part.accuracy or 0) * part.num_items for part in bins) / len(rows)
    mean_confidence = sum((part.confidence or 0) * part.num_items for part in bins) / len(rows)
    assert mean_correct == pytest.approx(np.mean(correct))
    assert mean_confidence == pytest.approx(np.mean(confidence))
    assert all(
        part.low - 1e-9 <= part.confidence <= part.high + 1e-9
        for part in bins
        if part.confidence is not None
    )


def test_bins_agree_with_scikit_learn_where_both_apply():
    dice = np.random.default_rng(0)
    p_true = dice.uniform(0.5, 1, 400)
    rows = [("on-task" if dice.random() < p else "off-task", float(p)) for p in p_true]
    right, mean = calibration_curve([t == "on-task" for t, _ in rows], p_true, n_bins=20)
    bins = bin_reliability(predict(rows), LABELS)
    assert [part.accuracy for part in bins] == pytest.approx(list(right))
    assert [part.confidence for part in bins] == pytest.approx(list(mean))


VERDICTS = ("通过", "不通过", "待定")
ANSWERS = st.tuples(st.sampled_from(VERDICTS), st.sampled_from([*VERDICTS, None]))


def count_correct(confusion: Confusion) -> int:
    return sum(row[place] for place, row in enumerate(confusion.counts))


def count_invalid(confusion: Confusion) -> int:
    return sum(row[-1] for row in confusion.counts)


def test_counts_of_a_hand_made_table(make_table):
    rows = [("a", "a"), ("a", "b"), ("a", None), ("b", "b"), ("b", "b"), ("b", None)]
    confusion = count_confusion(make_table(rows), ("a", "b"))
    assert confusion.counts == ((1, 1, 1), (0, 2, 1))
    assert (confusion.num_items, count_correct(confusion), count_invalid(confusion)) == (6, 3, 2)


def test_no_predictions_give_zeros():
    assert count_confusion([], ("a", "b")) == Confusion(("a", "b"), ((0, 0, 0), (0, 0, 0)))


@given(st.lists(ANSWERS, max_size=40))
def test_every_item_is_counted_once_and_invalid_is_no_class(rows):
    predictions = [
        Prediction(f"i{n}", "g", "test", "grpo", truth, answer, "" if answer else "invalid")
        for n, (truth, answer) in enumerate(rows)
    ]
    confusion = count_confusion(predictions, VERDICTS)
    pairs = Counter(rows)
    assert confusion.counts == tuple(
        tuple(pairs[truth, answer] for answer in (*VERDICTS, None)) for truth in VERDICTS
    )
    assert confusion.num_items == len(rows)
    assert count_invalid(confusion) == sum(answer is None for _, answer in rows)
    assert count_correct(confusion) == sum(truth == answer for truth, answer in rows)


TWO = ("a", "b")


def answer(num_items: int, *, shift: float, seed: int) -> list[Prediction]:
    """Return answers that are right as often as their confidence says, less ``shift``."""
    random = np.random.default_rng(seed)
    confidence = random.uniform(0.5, 1, num_items)
    is_right = random.random(num_items) < confidence - shift
    return [
        Prediction(
            example_id=str(n),
            cluster=str(n),
            split="test",
            policy="p",
            label="a" if right else "b",
            predicted="a",
            probabilities={"a": float(p), "b": 1 - float(p)},
        )
        for n, (p, right) in enumerate(zip(confidence, is_right, strict=True))
    ]


def find(items: list[Prediction], name: str) -> Metric:
    (found,) = [one for one in compute_metrics(items, labels=TWO) if one.name == f"p/{name}"]
    return found


@pytest.mark.parametrize(("num_items", "most"), [(10, 0.15), (100, 0.05)])
def test_calibrated_answers_have_hardly_any_calibration_error(num_items, most):
    found = [find(answer(num_items, shift=0, seed=n), "ece") for n in range(12)]
    assert np.mean([one.value for one in found]) < most
    assert all(one.low < 0.02 for one in found)


def test_what_is_uncalibrated_stays_so():
    found = [find(answer(100, shift=0.3, seed=n), "ece") for n in range(12)]
    assert np.mean([one.value for one in found]) == pytest.approx(0.3, abs=0.03)
    assert sum(one.low < 0.3 < one.high for one in found) >= 10


def test_a_constant_answer_is_not_certain_to_be_at_chance():
    items = [Prediction(str(n), str(n), "test", "p", TWO[n % 2], "a", text="") for n in range(20)]
    found = find(items, "balanced_accuracy")
    assert found.value == 0.5
    # Ten of each label: Wilson's ends of 10 of 10 and 0 of 10 are 0.28 from 1 and 0.
    assert found.low == pytest.approx(0.5 - 0.2775 / 2, abs=1e-3)
    assert found.high == pytest.approx(0.5 + 0.2775 / 2, abs=1e-3)


THREE = ("a", "b", "c")
SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=5).filter(lambda one: sum(one) > 0.01)


def draw(num_items, value, *, seed):
    """Return shares that are ``value`` times too sure, and truths drawn from the honest ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (num_items, len(THREE)))
    honest = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    said = np.exp(value * logits) / np.exp(value * logits).sum(axis=1, keepdims=True)
    truths = [str(rng.choice(THREE, p=row)) for row in honest]
    return [dict(zip(THREE, row.tolist(), strict=True)) for row in said], truths


def measure_error(shares, truths):
    rows = [
        Prediction(str(n), str(n), "test", "p", truth, max(one, key=one.get), probabilities=one)
        for n, (one, truth) in enumerate(zip(shares, truths, strict=True))
    ]
    found = {one.measure: one.value for one in compute_metrics(rows, labels=THREE)}
    return found["ece"]


@pytest.mark.parametrize("value", [0.4, 1.0, 3.0])
def test_it_finds_how_much_too_sure_somebody_is(value):
    fitted = fit_temperature(*draw(4000, value, seed=1))
    assert fitted.value == pytest.approx(value, rel=0.1)
    assert (fitted.num_items, fitted.reason) == (4000, "")
    assert 0 < fitted.num_mistakes < 4000


def test_fitted_on_some_items_it_is_right_about_others():
    value = fit_temperature(*draw(500, 3.0, seed=1)).value
    shares, truths = draw(4000, 3.0, seed=2)
    after = [temper(one, value) for one in shares]
    assert measure_error(shares, truths) > 0.15
    assert measure_error(after, truths) < 0.03


@given(shares=SHARES, value=st.floats(0.05, 20))
def test_it_changes_no_answer(shares, value):
    total = sum(shares)
    before = {str(n): one / total for n, one in enumerate(shares)}
    after = temper(before, value)
    assert sum(after.values()) == pytest.approx(1)
    assert list(after) == list(before)
    for one in before:
        for other in before:
            assert before[one] < before[other] or after[one] >= after[other]


@given(shares=SHARES)
def test_at_one_nothing_changes(shares):
    total = sum(shares)
    before = {str(n): one / total for n, one in enumerate(shares)}
    assert temper(before, 1.0) == pytest.approx(before, abs=1e-9)


def test_no_other_temperature_fits_better():
    shares, truths = draw(200, 2.0, seed=3)

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
