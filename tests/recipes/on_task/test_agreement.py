"""Whether picture and text agree, as a candidate of the joint baseline."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agreement import draw_agreement, measure, rank, write_words
from PIL import Image

from groupwise.core import Message, make_example, read_picture
from groupwise.evaluation.baselines import predict_joint, predict_picture_only, predict_text_only
from groupwise_recipes.on_task.agreement import list_agreements
from groupwise_recipes.on_task.task import TASK

SUGGEST = partial(list_agreements, concepts=("shows", "asks"))


@pytest.mark.slow
def test_whether_a_picture_and_a_text_agree_is_seen(tmp_path: Path) -> None:
    examples = list(draw_agreement(120, tmp_path))
    train, test = examples[:80], examples[80:]
    assert measure(predict_text_only(train, test, split="t", seed=0)) < 0.7
    assert measure(predict_picture_only(train, test, split="t", seed=0)) < 0.7
    assert measure(predict_joint(train, test, split="t", seed=0, suggest=SUGGEST)) == 1
    rated = {one.name: one.accuracy for one in rank(train, suggest=SUGGEST)}
    assert rated["whether picture and text agree"] == 1
    assert rated["pictures"] < 0.7
    assert rated["words"] < 0.7


def test_what_test_examples_tell_is_not_read(tmp_path: Path) -> None:
    examples = list(draw_agreement(60, tmp_path))
    train, test = examples[:40], examples[40:]
    told = predict_joint(train, test, split="t", seed=0, suggest=SUGGEST)
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
    same = predict_joint(train, lying, split="t", seed=0, suggest=SUGGEST)
    assert [one.probabilities for one in same] == [one.probabilities for one in told]


@pytest.mark.slow
def test_words_in_pictures_are_seen_where_a_policy_is_told_them(tmp_path: Path) -> None:
    examples = list(write_words(draw_agreement(75, tmp_path)))
    train, test = examples[:60], examples[60:]
    told: dict[str, Any] = {"suggest": SUGGEST, "read": "read"}
    rated = {one.name: one.accuracy for one in rank(train, **told)}
    assert rated["whether words in the picture and text agree"] > 0.95
    assert rated["whether picture and text agree"] < 0.8
    assert {
        "pictures, words in them and words",
        "whether picture with its words and text agree",
    } < {*rated}
    assert measure(predict_joint(train, test, split="t", seed=0, **told)) > 0.9


@pytest.mark.parametrize("num_clusters", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_few_clusters_stop_nothing(tmp_path: Path, num_clusters: int) -> None:
    """Of one nothing can be held out: then what sees most answers, and nothing is rated."""
    train = []
    for n in range(12):
        path = tmp_path / f"{n}.png"
        Image.new("RGB", (32, 24), (20 * n, 0, 0)).save(path)
        example = make_example(
            [Message("user", f"t {n}")],
            pictures=[read_picture(path)],
            cluster=str(n % num_clusters),
            label="ab"[n % 2],
            fields={"activity": "xy"[n % 2], "task_activity": "xy"[n // 2 % 2]},
        )
        train.append(example)
    suggest = TASK.joint_candidates
    found = predict_joint(train, train[:3], split="t", seed=0, suggest=suggest)
    assert [set(one.probabilities or ()) for one in found] == [{"a", "b"}] * 3
    rated = rank(train, suggest=suggest)
    agree = [one for one in rated if one.name == "whether picture and text agree"]
    assert (bool(rated), len(agree)) == (num_clusters > 1, num_clusters > 2)
