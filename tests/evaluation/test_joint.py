"""The joint baseline sees what the others do not, and its cross-validation divides clusters."""

import random

import numpy as np
import pytest
from agreement import COLOURS, draw_agreement
from PIL import Image

from groupwise.core import EvaluationError, Message, make_example, read_picture
from groupwise.evaluation import (
    predict_joint,
    predict_majority,
    predict_nearest,
    predict_picture_only,
    predict_text_only,
    rank_joint_candidates,
)
from groupwise.evaluation.joint import pair_words, read_features

CONCEPTS = ("shows", "asks")


def measure(found):
    return sum(one.is_correct for one in found) / len(found)


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
    assert rank_joint_candidates(train, seed=0)[0].name == "words in their order"


@pytest.mark.slow
def test_whether_a_picture_and_a_text_agree_is_seen(tmp_path):
    examples = list(draw_agreement(120, tmp_path))
    train, test = examples[:80], examples[80:]
    assert measure(predict_text_only(train, test, split="t", seed=0)) < 0.7
    assert measure(predict_picture_only(train, test, split="t", seed=0)) < 0.7
    assert measure(predict_joint(train, test, split="t", seed=0, concepts=CONCEPTS)) == 1
    rated = {
        one.name: one.accuracy for one in rank_joint_candidates(train, seed=0, concepts=CONCEPTS)
    }
    assert rated["whether picture and text agree"] == 1
    assert rated["pictures"] < 0.7
    assert rated["words"] < 0.7


def test_what_test_examples_tell_is_not_read(tmp_path):
    examples = list(draw_agreement(60, tmp_path))
    train, test = examples[:40], examples[40:]
    told = predict_joint(train, test, split="t", seed=0, concepts=CONCEPTS)
    lying = [
        make_example(
            e.with_pictures(()).prompt,
            pictures=e.pictures,
            cluster=e.cluster,
            label=e.label,
            fields={"shows": "red", "asks": "red"},
        )
        for e in test
    ]
    same = predict_joint(train, lying, split="t", seed=0, concepts=CONCEPTS)
    assert [one.probabilities for one in same] == [one.probabilities for one in told]


def test_items_of_one_cluster_do_not_vouch_for_each_other():
    """Each cluster has words of its own and one label: unknown clusters cannot be told."""
    dice = random.Random(2)
    labels = {cluster: dice.choice("ab") for cluster in range(20)}
    examples = [
        make_example([Message("user", f"only{c} word{n}")], cluster=str(c), label=label)
        for c, label in labels.items()
        for n in range(8)
    ]
    assert max(one.accuracy for one in rank_joint_candidates(examples, seed=0)) < 0.75


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


def ask(number, *, text="tell me", colours=(), cluster=None, **fields):
    """A question labelled by whether its number is odd, with a picture of each colour."""
    return make_example(
        [Message("user", text)],
        pictures=colours,
        cluster=cluster or str(number),
        label="ab"[number % 2],
        fields=fields,
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
    assert all(0 <= one.accuracy <= 1 for one in rank_joint_candidates(train, seed=0))


@pytest.mark.parametrize("num_clusters", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_few_clusters_stop_nothing(draw, num_clusters):
    """Of one nothing can be held out: then what sees most answers, and nothing is rated."""
    shades = [draw(20 * n) for n in range(12)]
    train = [
        ask(
            n,
            text=f"t {n}",
            colours=[shades[n]],
            cluster=str(n % num_clusters),
            shows="xy"[n % 2],
            asks="xy"[n // 2 % 2],
        )
        for n in range(12)
    ]
    found = predict_joint(train, train[:3], split="t", seed=0, concepts=CONCEPTS)
    assert [set(one.probabilities) for one in found] == [{"a", "b"}] * 3
    if num_clusters == 1:
        with pytest.raises(EvaluationError, match="two clusters"):
            rank_joint_candidates(train, seed=0, concepts=CONCEPTS)
    else:
        rated = rank_joint_candidates(train, seed=0, concepts=CONCEPTS)
        agree = [one for one in rated if one.name == "whether picture and text agree"]
        assert len(agree) == (num_clusters > 2)


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


def write_words(examples):
    """The same items in pictures of noise, with the colour as a word that was read in them."""
    for number, example in enumerate(examples):
        path = example.pictures[0].path
        Image.effect_noise((32, 24), 90 + number % 5).convert("RGB").save(path)
        yield make_example(
            example.with_pictures(()).prompt,
            pictures=[read_picture(path)],
            cluster=example.cluster,
            label=example.label,
            fields={**example.fields, "read": f"the {example.fields['shows']} window"},
        )


@pytest.mark.slow
def test_words_in_pictures_are_seen_where_a_policy_is_told_them(tmp_path):
    examples = list(write_words(draw_agreement(75, tmp_path)))
    train, test = examples[:60], examples[60:]
    told = {"seed": 0, "concepts": CONCEPTS, "read": "read"}
    rated = {one.name: one.accuracy for one in rank_joint_candidates(train, **told)}
    assert rated["whether words in the picture and text agree"] > 0.95
    assert rated["whether picture and text agree"] < 0.8
    assert {
        "pictures, words in them and words",
        "whether picture with its words and text agree",
    } < {*rated}
    assert measure(predict_joint(train, test, split="t", **told)) > 0.9


def test_where_nothing_was_read_nothing_is_seen_of_it(tmp_path):
    examples = list(draw_agreement(6, tmp_path))
    assert read_features(examples, CONCEPTS, read="gone").words.tolist() == []
    assert read_features(examples, CONCEPTS).words.tolist() == []


def test_test_items_of_which_nothing_was_read_have_as_many_words(tmp_path):
    examples = list(draw_agreement(6, tmp_path))
    read = read_features(list(write_words(examples)), CONCEPTS, read="read")
    assert read_features(examples, read="read", like=read).words.tolist() == [" "] * 6
    assert (
        read_features(
            list(write_words(examples)), read="read", like=read_features(examples)
        ).words.tolist()
        == []
    )
    assert len(read.take(np.asarray([0, 2])).words) == 2
