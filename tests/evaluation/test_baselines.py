"""Baselines that a policy must beat; the joint one divides clusters where it validates."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from agreement import COLOURS, draw_agreement, measure, rank, write_words
from PIL import Image

from groupwise.core import EvaluationError, Example, Message, make_example, read_picture
from groupwise.evaluation.baselines import (
    pair_words,
    predict_joint,
    predict_majority,
    predict_nearest,
    predict_picture_only,
    predict_text_only,
    read_features,
)
from groupwise.evaluation.metrics import check_labels

LABELS = ("on-task", "off-task")
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


@ALL
def test_predictions_carry_all_that_metrics_need(make_examples, predict):
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
def test_same_seed_same_predictions(make_examples, predict):
    examples = make_examples(24, text_tells=False, picture_tells=False)
    first = predict(examples[:16], examples[16:], split="test", seed=1)
    assert predict(examples[:16], examples[16:], split="test", seed=1) == first


@ALL
def test_unlabelled_examples_are_refused(make_examples, predict):
    examples = make_examples(4)
    for train, test in (
        ([replace(examples[0], label=None), *examples[1:]], examples),
        (examples, [replace(examples[0], label=None)]),
        ([], examples),
    ):
        with pytest.raises(EvaluationError, match="labelled"):
            predict(train, test, split="test", seed=0)


def test_majority_is_the_most_frequent_training_label(make_examples):
    examples = make_examples(8)
    train = [*examples[1::2], examples[0]]
    found = predict_majority(train, examples, split="test", seed=0)
    assert {item.predicted for item in found} == {"off-task"}
    assert found[0].probabilities == {"off-task": 0.8, "on-task": 0.2}


def test_majority_of_equal_counts_is_the_first_by_name(make_examples):
    examples = make_examples(4)
    for train in (examples, examples[::-1]):
        assert predict_majority(train, examples, split="t", seed=0)[0].predicted == "off-task"


def test_text_only_learns_from_chinese_text_and_nothing_else(make_examples):
    telling = make_examples(60, picture_tells=False)
    assert measure(predict_text_only(telling[:40], telling[40:], split="t", seed=0)) == 1
    silent = make_examples(60, text_tells=False, picture_tells=True)
    assert measure(predict_text_only(silent[:40], silent[40:], split="t", seed=0)) < 0.8


def test_text_only_reads_the_prompt_where_there_is_no_task(make_examples):
    bare = [replace(example, fields={}) for example in make_examples(60)]
    assert measure(predict_text_only(bare[:40], bare[40:], split="t", seed=0)) == 1


def test_text_only_without_text_is_refused(make_examples):
    empty = [replace(example, fields={"task": " "}) for example in make_examples(4)]
    with pytest.raises(EvaluationError, match="no text"):
        predict_text_only(empty, empty, split="t", seed=0)


def test_picture_only_learns_from_pictures_and_nothing_else(make_examples):
    telling = make_examples(60, text_tells=False)
    assert measure(predict_picture_only(telling[:40], telling[40:], split="t", seed=0)) == 1
    silent = make_examples(60, picture_tells=False)
    assert measure(predict_picture_only(silent[:40], silent[40:], split="t", seed=0)) < 0.8


def test_picture_only_needs_pictures(make_examples):
    examples = make_examples(4)
    with pytest.raises(EvaluationError, match=r"same number of pictures.*\[0, 1\]"):
        predict_picture_only(examples, [examples[0].with_pictures(())], split="t", seed=0)


@pytest.mark.parametrize("predict", [predict_text_only, predict_picture_only])
def test_one_training_label_is_refused(make_examples, predict):
    with pytest.raises(EvaluationError, match="only 'on-task' in training"):
        predict(make_examples(8)[::2], [], split="t", seed=0)


def write_order(num):
    """Texts of the same words always; which of two comes first decides."""
    dice = random.Random(0)
    for number in range(num):
        words = [f"step{n}" for n in range(6)] + ["断电", "开盖"]
        dice.shuffle(words)
        label = "合规" if words.index("断电") < words.index("开盖") else "违规"
        yield make_example([Message("user", "；".join(words))], cluster=str(number), label=label)


def test_words_in_their_order_are_seen():
    examples = list(write_order(400))
    train, test = examples[:300], examples[300:]
    assert measure(predict_majority(train, test, split="t", seed=0)) < 0.62
    assert measure(predict_text_only(train, test, split="t", seed=0)) < 0.8
    assert measure(predict_joint(train, test, split="t", seed=0)) > 0.95
    assert rank(train)[0].name == "words in their order"


def test_items_of_one_cluster_do_not_vouch_for_each_other():
    """Each cluster has words of its own and one label: unknown clusters cannot be told."""
    dice = random.Random(2)
    labels = {cluster: dice.choice("ab") for cluster in range(20)}
    examples = [
        make_example([Message("user", f"only{c} word{n}")], cluster=str(c), label=label)
        for c, label in labels.items()
        for n in range(8)
    ]
    assert max(one.accuracy for one in rank(examples)) < 0.75


def test_several_pictures_are_seen_together(tmp_path):
    dice = random.Random(3)
    examples = []
    for number in range(60):
        label = dice.choice(["pass", "fail"])
        colours = [COLOURS["green"]] * dice.randint(1, 3)
        colours += [COLOURS["red"]] * (label == "fail")
        pictures = []
        for place, colour in enumerate(colours):
            path = tmp_path / f"{number}-{place}.png"
            Image.new("RGB", (16, 16), colour).save(path)
            pictures.append(read_picture(path))
        prompt = [Message("user", "pass or fail?")]
        cluster = str(number)
        examples.append(make_example(prompt, pictures=pictures, cluster=cluster, label=label))
    assert measure(predict_joint(examples[:40], examples[40:], split="t", seed=0)) == 1


def ask(number, *, text="tell me", colours=()):
    """A question labelled by whether its number is odd, with a picture of each colour."""
    return make_example(
        [Message("user", text)], pictures=colours, cluster=str(number), label="ab"[number % 2]
    )


@pytest.fixture
def draw(tmp_path):
    """A picture of one shade of red."""

    def draw(shade):
        path = tmp_path / f"{shade}.png"
        Image.new("RGB", (32, 24), (shade, 0, 0)).save(path)
        return read_picture(path)

    return draw


def test_training_and_test_may_have_other_numbers_of_pictures(draw):
    dark, bright = draw(20), draw(220)
    train = [ask(n, text=f"t {n}", colours=[(dark, bright)[n % 2]]) for n in range(20)]
    test = [ask(30), ask(31, colours=[bright, bright]), ask(33, colours=[bright])]
    found = predict_joint(train, test, split="t", seed=0)
    assert [one.predicted for one in found[1:]] == ["b", "b"]
    mixed = [*train[:16], *(ask(n, text=f"t {n}") for n in range(40, 44))]
    assert len(predict_joint(mixed, test, split="t", seed=0)) == 3


@pytest.mark.parametrize(
    "train",
    [
        pytest.param([ask(n, text="+-*/"[n % 4]) for n in range(12)], id="no word"),
        pytest.param([ask(n, text="" if n % 3 else " ") for n in range(12)], id="no letter"),
        pytest.param([ask(n, text="") for n in range(12)], id="nothing"),
    ],
)
def test_texts_without_words_stop_nothing(train):
    for predict in (predict_joint, predict_nearest):
        assert predict(train, [ask(30, text="++")], split="t", seed=0)[0].predicted in "ab"
    assert all(0 <= one.accuracy <= 1 for one in rank(train))


def test_the_nearest_example_answers():
    def write(text, label):
        return make_example([Message("user", text)], cluster=text, label=label)

    train = [write("how many apples are left", "12"), write("how long is the wall", "7")]
    found = predict_nearest(train, [write("how long is the new wall", "9")], split="t", seed=0)
    assert [one.predicted for one in found] == ["7"]
    assert predict_nearest(train, [], split="t", seed=0) == []


def test_pairs_of_words_keep_their_order():
    assert pair_words("断电；开盖 a") == ["断电 开盖", "断电 a", "开盖 a"]
    assert set(pair_words("a b")).isdisjoint(pair_words("b a"))


def test_where_nothing_was_read_nothing_is_seen_of_it(tmp_path):
    examples = list(draw_agreement(6, tmp_path))
    assert "words" not in read_features(examples, read="gone")
    assert "words" not in read_features(examples)


def test_test_items_of_which_nothing_was_read_have_as_many_words(tmp_path):
    examples = list(draw_agreement(6, tmp_path))
    told = list(write_words(examples))
    read = read_features(told, read="read")
    assert read_features(examples, read="read", like=read)["words"].tolist() == [" "] * 6
    assert "words" not in read_features(told, read="read", like=read_features(examples))


YES_OR_NO = ("no", "yes")


def make_telling(num: int, *, start: int = 0) -> list[Example]:
    """Items whose words say nothing of the label."""
    rng = np.random.default_rng(start)
    return [
        Example(
            id=str(number),
            prompt=(Message("user", " ".join(rng.choice(list("abcdefgh"), 6))),),
            label=YES_OR_NO[number % 2],
            cluster=str(number // 2),
            fields={},
        )
        for number in range(start, start + num)
    ]


def embed(examples: list[Example]) -> dict[str, np.ndarray]:
    """Features of which some tell the label, and some tell whose cluster an item is of."""
    rng = np.random.default_rng(len(examples))
    noise = rng.normal(size=(len(examples), 20)).astype(np.float32)
    telling = noise.copy()
    telling[:, 0] += [4.0 * (example.label == "yes") for example in examples]
    return {"noise": noise, "telling": telling}


def test_the_features_that_tell_most_win_and_are_recorded():
    train, test = make_telling(60), make_telling(40, start=60)
    recorded = []
    found = predict_joint(train, test, split="test", seed=0, embed=embed, record=recorded.extend)
    assert recorded[0].name == "telling"
    assert {"words", "noise"} <= {one.name for one in recorded}
    assert np.mean([one.predicted == one.label for one in found]) > 0.9
    assert next(one for one in recorded if one.name == "noise").accuracy < 0.75


def test_without_features_nothing_else_is_a_candidate():
    train = make_telling(40)
    names = {one.name for one in rank(train)}
    assert names == {"words", "words in their order"}
    more = {one.name for one in rank(train, embed=embed)}
    assert more == names | {"noise", "telling"}


def test_of_one_cluster_words_are_taken_and_nothing_is_recorded():
    train = [Example(one.id, one.prompt, one.label, "same", one.fields) for one in make_telling(20)]
    recorded = []
    predict_joint(train, train[:3], split="test", seed=0, embed=embed, record=recorded.extend)
    assert recorded == []


def test_features_are_judged_out_of_cluster():
    """Two items of a cluster have the same features and label: only divided folds see through."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 40)
    examples = [
        Example(
            f"{cluster}-{number}",
            (Message("user", f"{cluster} {number}"),),
            YES_OR_NO[labels[cluster]],
            str(cluster),
            {},
        )
        for cluster in range(40)
        for number in range(2)
    ]
    own = rng.normal(size=(40, 60)).astype(np.float32)

    def embed_clusters(rows: list[Example]) -> dict[str, np.ndarray]:
        return {"cluster": np.stack([own[int(one.cluster)] for one in rows])}

    [rated] = [one for one in rank(examples, embed=embed_clusters) if one.name == "cluster"]
    assert rated.accuracy < 0.75
