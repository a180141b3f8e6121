from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from groupwise.evaluation import Confusion, Prediction, bin_reliability, count_confusion
from groupwise.evaluation.label_metrics import fill_cells, rate_cells, score_cells

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


def test_bins_of_a_hand_made_table() -> None:
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


def test_brier_score_of_a_hand_made_table() -> None:
    items = predict([("on-task", 0.8), ("off-task", 0.4)])
    assert score(items)[0] == pytest.approx((0.2**2 + 0.4**2) / 2)


def test_items_without_probabilities_take_no_part(make_prediction: Callable) -> None:
    silent = make_prediction(example_id="silent")
    items = predict([("on-task", 0.8)])
    assert score([*items, silent]) == score(items)
    assert sum(part.num_items for part in bin_reliability([*items, silent], LABELS)) == 1
    assert np.isnan(score([silent])).all()


def test_three_labels_give_a_brier_score_in_the_unit_interval() -> None:
    item = Prediction("i", "g", "test", "p", "a", "b", probabilities={"a": 0.0, "b": 1.0, "c": 0.0})
    assert score([item], ("a", "b", "c"))[0] == pytest.approx(1.0)
    assert bin_reliability([item], ("a", "b", "c"))[0].low == pytest.approx(1 / 3)


@given(
    st.lists(st.tuples(st.sampled_from(LABELS), st.floats(0, 1)), min_size=1, max_size=60),
)
def test_scores_equal_their_references(rows: list[tuple[str, float]]) -> None:
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


def test_bins_agree_with_scikit_learn_where_both_apply() -> None:
    dice = np.random.default_rng(0)
    p_true = dice.uniform(0.5, 1, 400)
    rows = [("on-task" if dice.random() < p else "off-task", float(p)) for p in p_true]
    right, mean = calibration_curve([t == "on-task" for t, _ in rows], p_true, n_bins=20)
    bins = bin_reliability(predict(rows), LABELS)
    assert [part.accuracy for part in bins] == pytest.approx(list(right))
    assert [part.confidence for part in bins] == pytest.approx(list(mean))


VERDICTS = ("通过", "不通过", "待定")
Table = Callable[..., list[Prediction]]
ANSWERS = st.tuples(st.sampled_from(VERDICTS), st.sampled_from([*VERDICTS, None]))


def count_correct(confusion: Confusion) -> int:
    return sum(row[place] for place, row in enumerate(confusion.counts))


def count_invalid(confusion: Confusion) -> int:
    return sum(row[-1] for row in confusion.counts)


def test_counts_of_a_hand_made_table(make_table: Table) -> None:
    rows = [("a", "a"), ("a", "b"), ("a", None), ("b", "b"), ("b", "b"), ("b", None)]
    confusion = count_confusion(make_table(rows), ("a", "b"))
    assert confusion.counts == ((1, 1, 1), (0, 2, 1))
    assert (confusion.num_items, count_correct(confusion), count_invalid(confusion)) == (6, 3, 2)


def test_no_predictions_give_zeros() -> None:
    assert count_confusion([], ("a", "b")) == Confusion(("a", "b"), ((0, 0, 0), (0, 0, 0)))


@given(st.lists(ANSWERS, max_size=40))
def test_every_item_is_counted_once_and_invalid_is_no_class(
    rows: list[tuple[str, str | None]],
) -> None:
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
