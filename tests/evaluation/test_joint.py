"""The joint baseline sees what the others do not, and its cross-validation divides clusters."""

import random

import pytest
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
from groupwise.evaluation.sights import pair_words

CONCEPTS = ("shows", "asks")
COLOURS = {
    "red": (200, 30, 30),
    "green": (30, 200, 30),
    "blue": (30, 30, 200),
    "yellow": (200, 200, 30),
    "pink": (200, 30, 200),
    "cyan": (30, 200, 200),
    "white": (230, 230, 230),
    "black": (20, 20, 20),
}


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


def draw_agreement(num, folder):
    """A picture of one colour and a text about one: the label is whether they agree."""
    dice = random.Random(1)
    for number in range(num):
        shows = dice.choice(sorted(COLOURS))
        asks = shows if number % 2 else dice.choice(sorted(set(COLOURS) - {shows}))
        path = folder / f"{number}.png"
        Image.new("RGB", (32, 24), COLOURS[shows]).save(path)
        yield make_example(
            [Message("user", f"Is it {asks}?")],
            pictures=[read_picture(path)],
            cluster=f"{number // 3}",
            label="yes" if shows == asks else "no",
            fields={"shows": shows, "asks": asks},
        )


def test_words_in_their_order_are_seen():
    examples = list(write_order(400))
    train, test = examples[:300], examples[300:]
    assert measure(predict_majority(train, test, split="t", seed=0)) < 0.62
    assert measure(predict_text_only(train, test, split="t", seed=0)) < 0.8
    assert measure(predict_joint(train, test, split="t", seed=0)) > 0.95
    assert rank_joint_candidates(train, seed=0)[0].name == "words in their order"


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


def test_one_cluster_is_refused():
    examples = [
        make_example([Message("user", f"{n}")], cluster="one", label=str(n % 2)) for n in range(8)
    ]
    with pytest.raises(EvaluationError, match="two clusters"):
        predict_joint(examples, examples, split="t", seed=0)


def test_the_nearest_example_answers():
    def ask(text, label):
        return make_example([Message("user", text)], cluster=text, label=label)

    train = [ask("how many apples are left", "12"), ask("how long is the wall", "7")]
    found = predict_nearest(train, [ask("how long is the new wall", "9")], split="t", seed=0)
    assert [one.predicted for one in found] == ["7"]
    assert predict_nearest(train, [], split="t", seed=0) == []


def test_pairs_of_words_keep_their_order():
    assert pair_words("断电；开盖 a") == ["断电 开盖", "断电 a", "开盖 a"]
    assert set(pair_words("a b")).isdisjoint(pair_words("b a"))
