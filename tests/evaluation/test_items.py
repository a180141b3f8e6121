from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from groupwise.core import EvaluationError
from groupwise.evaluation import (
    Items,
    Prediction,
    compute_metrics,
    digest_items,
    list_measures,
    read_items,
)

Make = Callable[..., Prediction]
LABELS = ("on-task", "off-task")


@pytest.fixture
def rows(make_prediction: Make) -> list[Prediction]:
    """Six items in three pairs and two clusters, answered right, wrong, right, invalid, ..."""
    answers = ["on-task", "off-task", "on-task", None, "on-task", "off-task"]
    return [
        make_prediction(
            LABELS[n % 2],
            answer,
            example_id=f"i{n}",
            cluster=f"g{n // 4}",
            fields={"language": ("zh", "en", None)[n % 3], "size": n // 3},
            scores={"iou": n / 10},
            samples=(True,) * (n % 3) + (False,) * (4 - n % 3),
            pair=f"p{n // 2}",
        )
        for n, answer in enumerate(answers)
    ]


def read(rows: list[Prediction], measure: str) -> Items:
    return read_items(rows, policy="grpo", split="test", measure=measure)


@pytest.mark.parametrize(
    ("measure", "ids", "values"),
    [
        ("accuracy", "i0 i1 i2 i3 i4 i5", [1, 1, 1, 0, 1, 1]),
        ("invalid_rate", "i0 i1 i2 i3 i4 i5", [0, 0, 0, 1, 0, 0]),
        ("recall:off-task", "i1 i3 i5", [1, 0, 1]),
        ("accuracy[language=zh]", "i0 i3", [1, 0]),
        ("accuracy[size=1]", "i3 i4 i5", [0, 1, 1]),
        ("invalid_rate[size=1]", "i3 i4 i5", [1, 0, 0]),
        ("pair_accuracy[size=0]", "p0", [1]),
        ("pair_accuracy[size=1]", "p2", [1]),
        ("mean@4", "i0 i1 i2 i3 i4 i5", [0, 0.25, 0.5, 0, 0.25, 0.5]),
        ("pass@2", "i0 i1 i2 i3 i4 i5", [0, 1 / 2, 5 / 6, 0, 1 / 2, 5 / 6]),
        ("pass@3", "i0 i1 i2 i3 i4 i5", [0, 3 / 4, 1, 0, 3 / 4, 1]),
        ("pass@4", "i0 i1 i2 i3 i4 i5", [0, 1, 1, 0, 1, 1]),
        ("pair_accuracy", "p0 p1 p2", [1, 0, 1]),
        ("iou", "i0 i1 i2 i3 i4 i5", [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("iou[language=en]", "i1 i4", [0.1, 0.4]),
    ],
)
def test_values_by_item(
    rows: list[Prediction], measure: str, ids: str, values: list[float]
) -> None:
    found = read(rows[::-1], measure)
    assert found.ids == tuple(ids.split())
    assert found.values == pytest.approx(values)
    assert found.value == pytest.approx(np.mean(values))
    assert found.is_binary == set(values).issubset({0, 1})
    assert found.split_digest == digest_items(rows)


def test_measures_are_listed_and_each_can_be_read(rows: list[Prediction]) -> None:
    names = list_measures(rows)
    assert names == (
        *("accuracy", "invalid_rate", "recall:off-task", "recall:on-task"),
        *("accuracy[language=en]", "invalid_rate[language=en]", "iou[language=en]"),
        *("accuracy[language=zh]", "invalid_rate[language=zh]", "iou[language=zh]"),
        *("accuracy[size=0]", "invalid_rate[size=0]", "pair_accuracy[size=0]", "iou[size=0]"),
        *("accuracy[size=1]", "invalid_rate[size=1]", "pair_accuracy[size=1]", "iou[size=1]"),
        *("pass@1", "pass@2", "pass@4", "mean@4", "pair_accuracy", "iou"),
    )
    for name in names:
        assert len(read(rows, name).values)


def test_values_agree_with_the_metrics(rows: list[Prediction]) -> None:
    metrics = {
        metric.measure: metric
        for metric in compute_metrics(rows, labels=LABELS, slices=("language", "size"))
    }
    for name in list_measures(rows):
        found = read(rows, name)
        assert metrics[name].value == pytest.approx(found.value), name
        assert metrics[name].n == len(found.values)


def test_what_is_not_there_is_not_listed(make_prediction: Make) -> None:
    many = [
        make_prediction(f"答案{n}", f"答案{n}", example_id=f"i{n:02}", fields={"task": n, "w": 0.5})
        for n in range(21)
    ]
    assert list_measures(many) == ("accuracy", "invalid_rate")
    assert "recall:答案1" in list_measures(many[:20])


def test_answers_and_truths_go_along(rows: list[Prediction]) -> None:
    found = read(rows, "recall:off-task")
    assert found.labels == ("off-task",) * 3
    assert found.answers == ("off-task", None, "off-task")
    assert read(rows, "pair_accuracy").answers[1] == '["on-task", null]'
    assert found.clusters == ("g0", "g0", "g1")


def test_unknown_measure_names_the_nearest_and_all(rows: list[Prediction]) -> None:
    with pytest.raises(EvaluationError, match=r"'acuracy'.* 'accuracy'.*accuracy, invalid_rate"):
        read(rows, "acuracy")


@pytest.mark.parametrize("measure", ["pass@5", "pass@0", "pass@", "mean@2", "recall:maybe"])
def test_measures_beyond_the_predictions_are_refused(rows: list[Prediction], measure: str) -> None:
    with pytest.raises(EvaluationError, match="no measure"):
        read(rows, measure)


def test_unknown_policy_or_split_is_refused(rows: list[Prediction]) -> None:
    with pytest.raises(EvaluationError, match=r"no predictions of sft on test.*grpo on test"):
        read_items(rows, policy="sft", split="test", measure="accuracy")


def test_other_policies_and_splits_are_left_out(rows: list[Prediction]) -> None:
    others = [replace(row, policy="sft", predicted=LABELS[0], reason="") for row in rows]
    others += [replace(row, split="dev") for row in rows[:2]]
    assert (read([*others, *rows], "accuracy").values == read(rows, "accuracy").values).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pair": ""}, "p2 of test.*1 items in 1 clusters"),
        ({"pair": "p1"}, "p1 of test.*3 items in 2 clusters"),
        ({"cluster": "g9"}, "p2 of test.*2 items in 2 clusters"),
    ],
)
def test_broken_pairs_are_refused(
    rows: list[Prediction], change: dict[str, str], words: str
) -> None:
    rows[-1] = replace(rows[-1], **change)
    with pytest.raises(EvaluationError, match=words + ".*keep both halves together"):
        read(rows, "pair_accuracy")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"values": np.asarray([0.5, np.nan])}, "item b has a wrong value.*got nan"),
        ({"values": np.asarray([np.inf, 0.5])}, "item a has a wrong value.*got inf"),
        ({"values": np.asarray([0.5, -0.1])}, "item b has a wrong value.*got -0.1"),
        ({"ids": ("b", "a")}, "ids must ascend"),
        ({"ids": ("a", "a")}, "ids must ascend"),
        ({"ids": ()}, "there are no items for accuracy of grpo on test"),
        ({"clusters": ("g",)}, r"differ in length; got \[1, 2\]"),
        ({"answers": ("x",)}, r"differ in length; got \[1, 2\]"),
        ({"is_binary": True}, "not binary"),
    ],
)
def test_items_that_would_mislead_are_refused(change: dict, words: str) -> None:
    items = Items(
        *("accuracy", "test", "grpo", ("a", "b"), ("g", "h"), np.asarray([0.5, 1.0])), False, "d"
    )
    with pytest.raises(EvaluationError, match=words):
        replace(items, **change)
