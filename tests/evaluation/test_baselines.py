import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from groupwise.core import EvaluationError, Example, Message, make_example, read_picture
from groupwise.evaluation import (
    Prediction,
    predict_joint,
    predict_majority,
    predict_nearest,
    predict_picture_only,
    predict_text_only,
)
from groupwise.evaluation.predictions import check_labels

LABELS = ("on-task", "off-task")
Baseline = Callable[..., list[Prediction]]
ALL = pytest.mark.parametrize(
    "predict",
    [predict_majority, predict_text_only, predict_picture_only, predict_nearest, predict_joint],
)


@pytest.fixture
def make_examples(tmp_path: Path) -> Callable[..., list[Example]]:
    """Examples whose text and picture each tell the label, or do not."""

    def make(num: int, *, text_tells: bool = True, picture_tells: bool = True) -> list[Example]:
        return [
            _make_example(tmp_path, number, text_tells=text_tells, picture_tells=picture_tells)
            for number in range(num)
        ]

    return make


def _make_example(folder: Path, number: int, *, text_tells: bool, picture_tells: bool) -> Example:
    label = LABELS[number % 2]
    dice = random.Random(number)
    bright = (number % 2 if picture_tells else dice.random() < 0.5) * 180 + dice.randint(0, 40)
    path = folder / f"{number}.png"
    Image.new("RGB", (64, 48), (bright, 60, 60)).save(path)
    kind = number % 2 if text_tells else dice.randint(0, 1)
    task = f"{('看视频', '写代码')[kind]} {number}"
    return make_example(
        [Message("user", f"Task: {task}\nIs it on task?")],
        cluster=f"session-{number // 4}",
        pictures=[read_picture(path)],
        label=label,
        fields={"task": task},
    )


def measure(predictions: list[Prediction]) -> float:
    return sum(item.is_correct for item in predictions) / len(predictions)


@ALL
def test_predictions_carry_all_that_metrics_need(
    make_examples: Callable[..., list[Example]], predict: Baseline
) -> None:
    examples = make_examples(24)
    found = predict(examples[:16], examples[16:], split="test", seed=0)
    check_labels(found, LABELS)
    assert [item.example_id for item in found] == [example.id for example in examples[16:]]
    for item, example in zip(found, examples[16:], strict=True):
        assert (item.cluster, item.split, item.label) == (example.cluster, "test", example.label)
        assert item.policy == predict.__name__.removeprefix("predict_")
        assert item.predicted == item.text
        assert item.confidence == max(item.probabilities.values())
        assert item.pictures == (str(example.pictures[0].path),)
        assert item.fields["task"] == example.fields["task"]
    assert predict(examples[:16], [], split="test", seed=0) == []


@ALL
def test_same_seed_same_predictions(
    make_examples: Callable[..., list[Example]], predict: Baseline
) -> None:
    examples = make_examples(24, text_tells=False, picture_tells=False)
    first = predict(examples[:16], examples[16:], split="test", seed=1)
    assert predict(examples[:16], examples[16:], split="test", seed=1) == first


@ALL
def test_unlabelled_examples_are_refused(
    make_examples: Callable[..., list[Example]], predict: Baseline
) -> None:
    examples = make_examples(4)
    for train, test in (
        ([replace(examples[0], label=None), *examples[1:]], examples),
        (examples, [replace(examples[0], label=None)]),
        ([], examples),
    ):
        with pytest.raises(EvaluationError, match="labelled"):
            predict(train, test, split="test", seed=0)


def test_majority_is_the_most_frequent_training_label(
    make_examples: Callable[..., list[Example]],
) -> None:
    examples = make_examples(8)
    train = [*examples[1::2], examples[0]]
    found = predict_majority(train, examples, split="test", seed=0)
    assert {item.predicted for item in found} == {"off-task"}
    assert found[0].probabilities == {"off-task": 0.8, "on-task": 0.2}


def test_majority_of_equal_counts_is_the_first_by_name(
    make_examples: Callable[..., list[Example]],
) -> None:
    examples = make_examples(4)
    for train in (examples, examples[::-1]):
        assert predict_majority(train, examples, split="t", seed=0)[0].predicted == "off-task"


def test_text_only_learns_from_chinese_text_and_nothing_else(
    make_examples: Callable[..., list[Example]],
) -> None:
    telling = make_examples(60, picture_tells=False)
    assert measure(predict_text_only(telling[:40], telling[40:], split="t", seed=0)) == 1
    silent = make_examples(60, text_tells=False, picture_tells=True)
    assert measure(predict_text_only(silent[:40], silent[40:], split="t", seed=0)) < 0.8


def test_text_only_reads_the_prompt_where_there_is_no_task(
    make_examples: Callable[..., list[Example]],
) -> None:
    bare = [replace(example, fields={}) for example in make_examples(60)]
    assert measure(predict_text_only(bare[:40], bare[40:], split="t", seed=0)) == 1


def test_text_only_without_text_is_refused(make_examples: Callable[..., list[Example]]) -> None:
    empty = [replace(example, fields={"task": " "}) for example in make_examples(4)]
    with pytest.raises(EvaluationError, match="no text"):
        predict_text_only(empty, empty, split="t", seed=0)


def test_picture_only_learns_from_pictures_and_nothing_else(
    make_examples: Callable[..., list[Example]],
) -> None:
    telling = make_examples(60, text_tells=False)
    assert measure(predict_picture_only(telling[:40], telling[40:], split="t", seed=0)) == 1
    silent = make_examples(60, picture_tells=False)
    assert measure(predict_picture_only(silent[:40], silent[40:], split="t", seed=0)) < 0.8


def test_picture_only_needs_pictures(make_examples: Callable[..., list[Example]]) -> None:
    examples = make_examples(4)
    with pytest.raises(EvaluationError, match=r"same number of pictures.*\[0, 1\]"):
        predict_picture_only(examples, [examples[0].with_pictures(())], split="t", seed=0)


@pytest.mark.parametrize("predict", [predict_text_only, predict_picture_only])
def test_one_training_label_is_refused(
    make_examples: Callable[..., list[Example]], predict: Baseline
) -> None:
    with pytest.raises(EvaluationError, match="only 'on-task' in training"):
        predict(make_examples(8)[::2], [], split="t", seed=0)
