from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.core import EvaluationError, digest_json, read_jsonl, write_jsonl
from groupwise.evaluation import (
    Prediction,
    compute_metrics,
    digest_items,
    group_by_policy,
    mark_items,
    read_predictions,
    write_predictions,
)
from groupwise.evaluation.predictions import check_labels

Make = Callable[..., Prediction]


def test_file_round_trip_keeps_every_field(tmp_path: Path, make_prediction: Make) -> None:
    rows = [
        make_prediction(
            probabilities={"on-task": 0.7, "off-task": 0.3},
            latency_s=0.25,
            pictures=("a.png", "b.png"),
            fields={"task": "写周报", "difficulty": None},
            scores={"iou": 0.25, "相似度": 1.0},
            samples=(True, False),
            pair="p1",
        ),
        make_prediction("off-task", None, reason="empty", text=""),
    ]
    write_predictions(tmp_path / "p.jsonl", rows)
    assert read_predictions(tmp_path / "p.jsonl") == rows


def test_row_with_other_keys_is_refused_with_its_number(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "p.jsonl", [{"example_id": "a", "guess": "on-task"}])
    with pytest.raises(EvaluationError, match=r"row 1 is not a prediction.*guess.*probabilities"):
        read_predictions(tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"predicted": None, "reason": ""}, "a reason for an invalid answer"),
        ({"predicted": "on-task", "reason": "odd"}, "none for a valid one"),
        ({"probabilities": {"on-task": 0.9, "off-task": 0.3}}, "sum to 1"),
        ({"probabilities": {"on-task": 1.2, "off-task": -0.2}}, "sum to 1"),
        ({"probabilities": {"on-task": float("nan"), "off-task": 0.5}}, "sum to 1"),
        ({"policy": "a/b"}, "without '/'"),
        ({"policy": ""}, "without '/'"),
        ({"latency_s": -1.0}, "latency"),
        ({"latency_s": float("inf")}, "latency"),
        ({"scores": {"iou": 1.1}}, r"wrong score; got iou = 1.1; expected a value in \[0, 1\]"),
        ({"scores": {"iou": float("nan")}}, "wrong score"),
        ({"scores": {"": 0.5}}, "name that is taken"),
        ({"scores": {"accuracy": 0.5}}, "name that is taken"),
        ({"scores": {"pass@3": 0.5}}, "name that is taken"),
        ({"scores": {"f1:on-task": 0.5}}, "name that is taken"),
        ({"samples": (True, 1)}, "wrong samples.*true or false each"),
    ],
)
def test_contradictions_are_refused(make_prediction: Make, wrong: dict, words: str) -> None:
    with pytest.raises(EvaluationError, match=words):
        make_prediction(**wrong)


def test_invalid_answer_is_wrong_and_has_no_confidence(make_prediction: Make) -> None:
    item = make_prediction(
        "on-task", None, reason="empty", probabilities={"on-task": 0.9, "off-task": 0.1}
    )
    assert not item.is_correct
    assert item.confidence is None


def test_confidence_is_of_the_answer_and_not_of_the_likeliest(make_prediction: Make) -> None:
    item = make_prediction(
        predicted="off-task", probabilities={"on-task": 0.9, "off-task": 0.1}, label="off-task"
    )
    assert item.confidence == 0.1


def test_clusters_by_split_and_policy_as_they_come(make_prediction: Make) -> None:
    names = ["zebra", "grpo", "alpha"]
    rows = [make_prediction(policy=name, example_id=i) for name in names for i in ("b", "a")]
    clustered = group_by_policy(rows)
    assert [policy for _, policy in clustered] == names
    assert [item.example_id for item in clustered["test", "grpo"]] == ["a", "b"]


def test_item_answered_twice_is_refused(make_prediction: Make) -> None:
    with pytest.raises(EvaluationError, match="two predictions for item x of test"):
        group_by_policy([make_prediction(example_id="x"), make_prediction(example_id="x")])


def test_split_digest_is_of_items_and_labels_only(make_prediction: Make) -> None:
    a = make_prediction(example_id="a")
    b = make_prediction("off-task", "on-task", example_id="b", policy="sft")
    expected = digest_json([["a", "on-task"], ["b", "off-task"]])
    assert digest_items([b, a]) == digest_items([a, b]) == expected
    assert digest_items([a]) != expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"label": "maybe", "predicted": "on-task"},
        {"label": "on-task", "predicted": "maybe"},
        {"probabilities": {"on-task": 0.5, "maybe": 0.5}},
    ],
)
def test_label_outside_the_set_is_refused(make_prediction: Make, wrong: dict) -> None:
    with pytest.raises(EvaluationError, match=r"maybe.*on-task.*off-task"):
        check_labels([make_prediction(**wrong)], ("on-task", "off-task"))


@pytest.mark.parametrize("labels", [(), ("on-task",), ("on-task", "on-task")])
def test_label_set_must_have_two_different_labels(labels: tuple[str, ...]) -> None:
    with pytest.raises(EvaluationError, match="two or more"):
        check_labels([], labels)


def test_rows_of_old_files_are_read(tmp_path: Path, make_prediction: Make) -> None:
    write_predictions(tmp_path / "p.jsonl", [make_prediction()])
    (row,) = read_jsonl(tmp_path / "p.jsonl")
    old = {key: row[key] for key in row if key not in ("scores", "samples", "pair")}
    write_jsonl(tmp_path / "old.jsonl", [old])
    (found,) = read_predictions(tmp_path / "old.jsonl")
    assert (found.scores, found.samples, found.pair) == ({}, (), "")
    assert found == make_prediction()


@pytest.mark.parametrize("key", ["example_id", "cluster", "fields", "latency_s"])
def test_row_without_an_older_key_is_refused(
    tmp_path: Path, make_prediction: Make, key: str
) -> None:
    write_predictions(tmp_path / "p.jsonl", [make_prediction()])
    (row,) = read_jsonl(tmp_path / "p.jsonl")
    write_jsonl(tmp_path / "p.jsonl", [{name: row[name] for name in row if name != key}])
    with pytest.raises(EvaluationError, match="row 1 is not a prediction"):
        read_predictions(tmp_path / "p.jsonl")


def test_accuracy_is_measured_without_near_duplicates(make_prediction: Make) -> None:
    rows = [
        make_prediction("on-task", "on-task" if n < 3 else "off-task", example_id=f"e{n}")
        for n in range(4)
    ]
    marked, slices = mark_items(rows, {"e0", "e1"}, "near_duplicate")
    metrics = compute_metrics(marked, labels=("on-task", "off-task"), seed=0, slices=slices)
    found = {metric.measure: (metric.value, metric.n) for metric in metrics}
    assert found["accuracy"] == (0.75, 4)
    assert found["accuracy[near_duplicate=no]"] == (0.5, 2)
    assert found["accuracy[near_duplicate=yes]"] == (1.0, 2)
    assert mark_items(rows, set(), "near_duplicate") == (rows, ())
