import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import (
    VqaAccuracy,
    VqaParser,
    compute_leave_one_out_accuracy,
    normalize_vqa_answer,
)
from groupwise.rewards.vqa_accuracy import compute_vqa_accuracy

DATA = Path(os.environ.get("GROUPWISE_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))


def make_item(answers: object) -> Example:
    return make_example([Message("user", "What?")], cluster="g", fields={"answers": answers})


def annotate(*answers: str) -> list[dict[str, object]]:
    return [{"answer": text, "answer_id": n} for n, text in enumerate(answers, start=1)]


def score(text: str, answers: object, **options: bool) -> Score:
    return VqaAccuracy(**options)(make_item(answers), Completion(text))


# Answers as the official vqaEval.py normalises them.
@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Net", "net"),
        ("net.", "net"),
        ("a net and an orange", "net and orange"),
        ("two", "2"),
        ("None", "0"),
        ("Ten dogs", "10 dogs"),
        ("eleven", "eleven"),
        ("dont", "don't"),
        ("don't", "don't"),
        ("couldnt've", "couldn't've"),
        ("twas", "'twas"),
        ("somebody'd", "somebodyd"),
        ("its", "its"),
        ("x-ray", "x ray"),
        ("x - ray", "x ray"),
        ("left/right", "left right"),
        ("left / right", "left right"),
        ("yes, sir", "yes sir"),
        ("yes,sir", "yes sir"),
        ("1,000", "1000"),
        ("1,000/2", "10002"),
        ("1.5", "1.5"),
        (".5", ".5"),
        ("3.", "3"),
        ("5 p.m.", "5 pm"),
        ("what?!", "what"),
        ("it's 10:30", "it's 10:30"),
        ("a\nb\tc", "b c"),
        ("(left)", "left"),
        ("the", ""),
        ("北京", "北京"),
    ],
)
def test_answers_are_normalised_as_in_the_official_evaluation(text: str, normal: str) -> None:
    assert normalize_vqa_answer(text) == normal


@pytest.mark.parametrize(
    ("num_matches", "accuracy"), [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)]
)
def test_every_annotator_is_left_out_once(num_matches: int, accuracy: float) -> None:
    answers = annotate(*["net"] * num_matches, *["mesh"] * (10 - num_matches))
    assert score("Net!", answers).value == accuracy


@given(st.integers(2, 12), st.data())
def test_the_accuracy_is_that_of_leaving_out_one_by_one(
    num_annotators: int, data: st.DataObject
) -> None:
    num_matches = data.draw(st.integers(0, num_annotators))
    is_match = [True] * num_matches + [False] * (num_annotators - num_matches)
    left_out = [sum(is_match) - own for own in is_match]
    mean = sum(min(1, others / 3) for others in left_out) / num_annotators
    assert compute_vqa_accuracy(num_matches, num_annotators) == pytest.approx(mean)


def test_ten_annotators_who_agree_are_ten() -> None:
    assert score("yes", annotate(*["yes"] * 10)).value == 1.0
    assert score("yes", ["yes"] * 10).value == 1.0


def test_unanimous_answers_are_normalised_unless_as_published() -> None:
    answers = annotate(*["yes"] * 10)
    assert score("Yes.", answers).value == 1.0
    assert score("Yes.", answers, as_published=True).value == 0.0
    assert score(" yes\n", answers, as_published=True).value == 1.0
    assert score("Yes.", annotate(*["yes"] * 9, "no"), as_published=True).value == 1.0


def compute_officially(said: str, answers: list[str]) -> float:
    """Return the accuracy as the official script gets it: annotators are dicts told by their id."""
    rows = annotate(*answers)
    if len(set(answers)) > 1:
        said = normalize_vqa_answer(said)
        rows = [row | {"answer": normalize_vqa_answer(str(row["answer"]))} for row in rows]
    others = [[other for other in rows if other != row] for row in rows]
    return sum(min(1, sum(o["answer"] == said for o in rest) / 3) for rest in others) / len(rows)


ANSWERS = st.sampled_from(
    ["a", "A", "the", "b", "net", "Net.", "two", "2", "dont", "1,000", "mesh"]
)


@given(ANSWERS, st.lists(ANSWERS, min_size=10, max_size=10))
def test_of_ten_answers_only_five_values_occur_and_they_are_the_official_ones(said, answers):
    assert score(said, annotate(*answers)).value in {0.0, 0.3, 0.6, 0.9, 1.0}
    official = compute_officially(said, answers)
    assert score(said, annotate(*answers), as_published=True).value == pytest.approx(official)


@pytest.mark.parametrize(("num_a", "accuracy"), [(1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)])
def test_the_answer_may_be_an_article(num_a: int, accuracy: float) -> None:
    answers = annotate(*["a"] * num_a, *["b"] * (10 - num_a))
    assert score("A.", answers).value == accuracy
    assert score("a", answers, as_published=True).value == accuracy
    assert score("the", answers).value == 0.0
    if num_a < 10:
        assert score("the", answers, as_published=True).value == score("a", answers).value


@pytest.mark.parametrize(
    ("answers", "accuracy"),
    [
        (["net"] * 10, 1.0),
        (["net", "Net.", "a net", "the net"], 1.0),
        (["net", "net", "mesh"], 2 / 9),
        ([str(n) for n in range(10)], 0.0),
        (["a"] * 2 + ["the"] * 2, 1 / 3),
    ],
)
def test_how_well_people_agree(answers: list[str], accuracy: float) -> None:
    assert compute_leave_one_out_accuracy(answers) == pytest.approx(accuracy)


def test_one_annotator_agrees_with_nobody() -> None:
    with pytest.raises(RewardError, match="too few annotators"):
        compute_leave_one_out_accuracy(["net"])


@pytest.mark.parametrize("text", ["", " \n", "?"])
def test_an_answer_without_words_is_invalid(text: str) -> None:
    got = score(text, annotate("a", "the", "net"))
    assert (got.value, got.invalid) == (0.0, True)


@pytest.mark.parametrize("text", ["net mesh", "net, mesh", "not net", "What?"])
def test_lists_and_negations_earn_nothing(text: str) -> None:
    assert score(text, annotate(*["net"] * 5, *["mesh"] * 5)).value == 0.0


def test_the_answer_may_stand_in_a_tag() -> None:
    item = make_item(annotate(*["net"] * 10))
    text = "<think>mesh</think><answer>a net</answer>"
    reward = VqaAccuracy(VqaParser(tags=("think", "answer")))
    assert reward(item, Completion(text)).value == 1.0
    assert reward(item, Completion("net")).invalid
    item = make_item(annotate(*["a"] * 10))
    assert reward(item, Completion("<think>b</think><answer>a</answer>")).value == 1.0


def test_without_the_field_there_is_no_score() -> None:
    item = make_example([Message("user", "What?")], cluster="g", label="net")
    assert VqaAccuracy()(item, Completion("net")) == Score(None, "no field answers")


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([], "too few annotators"),
        (["net"], "too few annotators"),
        ("net", "too few annotators"),
        ([{"answer": "net", "answer_id": 1}] * 10, "cannot be used"),
        ([{"answer": "net"}] * 10, "cannot be used"),
        ([{"answer": 3, "answer_id": 1}], "cannot be used"),
        ([1, 2], "cannot be used"),
    ],
)
def test_annotations_that_cannot_be_used_are_an_error(answers: object, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        score("net", answers)


@given(st.text(max_size=30), st.lists(st.text(max_size=10), min_size=2, max_size=10), st.randoms())
def test_the_order_of_annotators_does_not_count(text: str, answers: list[str], random) -> None:
    got = score(text, annotate(*answers))
    assert got.value is not None
    assert 0.0 <= got.value <= 1.0
    assert not (got.invalid and got.value)
    random.shuffle(answers)
    assert score(text, annotate(*answers)) == got


@given(st.lists(st.sampled_from(["net", "Net", "a net.", "mesh"]), min_size=4, max_size=10))
def test_what_four_said_earns_all(answers: list[str]) -> None:
    num_net = sum(text != "mesh" for text in answers)
    assert (score("net", annotate(*answers)).value == 1.0) == (num_net >= 4)


AGREEMENT = [0.6, 0.9, 1.0]  # 6 net and 4 others; 9 pitcher and 1 other; 10 orange


def test_real_annotations() -> None:
    path = DATA / "vqav2_three" / "annotations.json"
    if not path.is_file():
        pytest.skip(f"no annotations at {path}: set GROUPWISE_DATA")
    rows = json.loads(path.read_text(encoding="utf-8"))["annotations"]
    said = [[entry["answer"] for entry in row["answers"]] for row in rows]
    expected = {0: 0.0, 1: 0.3, 2: 0.6, 3: 0.9}
    assert [compute_leave_one_out_accuracy(texts) for texts in said] == AGREEMENT
    for row, texts in zip(rows, said, strict=True):
        for text in set(texts):
            want = expected.get(texts.count(text), 1.0)
            assert score(text, row["answers"]).value == want
            assert score(f"The {text.upper()}!", row["answers"]).value == want
