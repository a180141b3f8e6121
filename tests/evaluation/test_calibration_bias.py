"""Few items do not make a calibrated policy look uncalibrated, nor a constant one look certain."""

import numpy as np
import pytest

from groupwise.evaluation import Metric, Prediction, compute_metrics

LABELS = ("a", "b")


def predict(num_items: int, *, shift: float, seed: int) -> list[Prediction]:
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
    (found,) = [one for one in compute_metrics(items, labels=LABELS) if one.name == f"p/{name}"]
    return found


@pytest.mark.parametrize(("num_items", "most"), [(10, 0.15), (100, 0.05)])
def test_calibrated_answers_have_hardly_any_calibration_error(num_items: int, most: float) -> None:
    found = [find(predict(num_items, shift=0, seed=n), "ece") for n in range(12)]
    assert np.mean([one.value for one in found]) < most
    assert all(one.low < 0.02 for one in found)


def test_what_is_uncalibrated_stays_so() -> None:
    found = [find(predict(100, shift=0.3, seed=n), "ece") for n in range(12)]
    assert np.mean([one.value for one in found]) == pytest.approx(0.3, abs=0.03)
    assert sum(one.low < 0.3 < one.high for one in found) >= 10


def test_a_constant_answer_is_not_certain_to_be_at_chance() -> None:
    items = [
        Prediction(str(n), str(n), "test", "p", LABELS[n % 2], "a", text="") for n in range(20)
    ]
    found = find(items, "balanced_accuracy")
    assert found.value == 0.5
    # Ten of each label: Wilson's ends of 10 of 10 and 0 of 10 are 0.28 from 1 and 0.
    assert found.low == pytest.approx(0.5 - 0.2775 / 2, abs=1e-3)
    assert found.high == pytest.approx(0.5 + 0.2775 / 2, abs=1e-3)
