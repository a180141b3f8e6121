import json
import os
import re
import string
from pathlib import Path
from typing import Any

import pytest
import torch
from corpora import read_cases
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.models.policy import Policy, load_policy
from groupwise.rewards import (
    ExactMatch,
    Fluency,
    RewardSet,
    TextParser,
    TokenF1,
    VqaAccuracy,
    VqaParser,
    average_log_probs,
    compute_leave_one_out_accuracy,
    find_threshold,
    normalize_text,
    normalize_vqa_answer,
    split_tokens,
)
from groupwise.rewards.text import compute_token_f1, compute_vqa_accuracy, has_words

CASES = read_cases(__file__)


def make_item(label: str | None = None, **fields: object) -> Example:
    return make_example([Message("user", "Who?")], cluster="g", label=label, fields=fields)


def score(text: str, label: str | None = None, **fields: object) -> Score:
    return ExactMatch()(make_item(label, **fields), Completion(text))


@pytest.mark.parametrize(("text", "label"), CASES["what_is_the_same_after_normalising_earns_all"])
def test_what_is_the_same_after_normalising_earns_all(text: str, label: str) -> None:
    assert score(text, label).value == 1.0


@pytest.mark.parametrize(("text", "label"), CASES["anything_else_earns_nothing"])
def test_anything_else_earns_nothing(text: str, label: str) -> None:
    got = score(text, label)
    assert (got.value, got.invalid) == (0.0, False)


REFERENCE = {"label": "Eiffel Tower", "fields": {"answers": ["Eiffel Tower"] * 10}}
every_reward = pytest.mark.parametrize(
    ("reward", "blanks"),
    [
        (ExactMatch, ("", "  \n", "the", "...", "，。")),
        (TokenF1, ("", " ", "the", "!!")),
        (VqaAccuracy, ("", " \n", "?")),
    ],
    ids=lambda value: getattr(value, "name", ""),
)


@every_reward
def test_an_answer_without_words_is_invalid(reward: Any, blanks: tuple[str, ...]) -> None:
    item = make_example([Message("user", "?")], cluster="g", **REFERENCE)
    for text in blanks:
        got = reward()(item, Completion(text))
        assert (got.value, got.invalid) == (0.0, True)


@every_reward
def test_the_answer_may_stand_in_a_tag(reward: Any, blanks: tuple[str, ...]) -> None:
    item = make_example([Message("user", "?")], cluster="g", **REFERENCE)
    parser = VqaParser if reward is VqaAccuracy else TextParser
    tagged = reward(parser(tags=("think", "answer")))
    text = "<think>x</think><answer>the Eiffel Tower.</answer>"
    assert tagged(item, Completion(text)).value == 1.0
    untagged = Score(0.0, "<think> is missing", invalid=True)
    assert tagged(item, Completion("Eiffel Tower")) == untagged


def test_any_reference_counts_and_the_field_comes_before_the_label() -> None:
    assert score("New York City", "x", answers=["NYC", "New York City"]).value == 1.0
    assert score("x", "x", answers=["NYC"]).value == 0.0


def test_without_a_reference_there_is_no_score() -> None:
    assert score("x") == Score(None, "no reference answer")
    assert score("x", answers=[]) == Score(None, "no reference answer")


@pytest.mark.parametrize("answers", [["the"], [""], ["\u200b"], [3], [None], 3, {"a": 1}])
def test_references_that_cannot_be_compared_are_an_error(answers: object) -> None:
    with pytest.raises(RewardError, match="cannot be compared"):
        score("x", answers=answers)


@given(st.text(max_size=40) | st.text("a1.-+#<>=%,_$ \\\"'b5−–*(", max_size=12))
def test_normalising_twice_is_normalising_once(text: str) -> None:
    assert normalize_text(normalize_text(text)) == normalize_text(text)
    assert "".join(split_tokens(text)) == normalize_text(text).replace(" ", "")


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_reference_earns_all_and_only_it(text: str, other: str) -> None:
    if not has_words(other):
        with pytest.raises(RewardError, match="cannot be compared"):
            score(text, other)
    else:
        assert score(other, other).value == 1.0
        got = score(text, other)
        assert got.value == float(normalize_text(text) == normalize_text(other))
        assert not (got.invalid and got.value)


words = st.sampled_from([*"ab,.-'!$", "the", "The", "an", "other", "theme", "  ", "\n", "a's", "7"])


without_numbers = sorted(set(string.printable) - set("+#-0123456789"))


@given(st.lists(words, max_size=8).map(" ".join) | st.text(without_numbers, max_size=30))
def test_plain_english_is_normalised_as_squad_does(text: str) -> None:
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    assert normalize_text(text) == " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


ASKED = make_example([Message("user", "Say something.")], cluster="a")
TEXTS = ["The sea is blue and quiet in the morning.", "  blue sea  ", "海很蓝，也很安静。", "a", ""]


@pytest.fixture(scope="module")
def base(text_folder: Path) -> Policy:
    return load_policy(text_folder)


def complete(*texts: str) -> list[Completion]:
    return [Completion(text) for text in texts]


def test_each_token_after_the_first_counts_given_those_before_and_no_prompt(base: Policy):
    [found] = average_log_probs(base, complete(TEXTS[0]))
    ids = torch.tensor([base.tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]])
    with torch.no_grad():
        shares = base.model(input_ids=ids).logits.double().log_softmax(-1)[0]
    expected = [shares[n, ids[0, n + 1]].item() for n in range(ids.shape[1] - 1)]
    assert found == pytest.approx(sum(expected) / len(expected), abs=1e-5)


def test_a_batch_says_what_each_answer_alone_says(base: Policy):
    many = complete(*TEXTS, *[f"{text} again" for text in TEXTS * 8])
    together = average_log_probs(base, many)
    alone = [average_log_probs(base, [one])[0] for one in many]
    assert [one is None for one in together] == [one is None for one in alone]
    pairs = [(a, b) for a, b in zip(together, alone, strict=True) if a is not None]
    assert [a for a, _ in pairs] == pytest.approx([b for _, b in pairs], abs=1e-5)
    assert together[4] is None  # an empty answer


def test_the_value_is_one_from_the_threshold_on_and_falls_by_a_half_a_nat(base: Policy):
    [mean] = average_log_probs(base, complete(TEXTS[0]))
    assert mean is not None
    thresholds = (mean - 5, mean, mean + 1, mean + 2, mean + 9)
    rewards = [Fluency(base, threshold=one) for one in thresholds]
    values = [reward(ASKED, Completion(TEXTS[0])).value for reward in rewards]
    assert values == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.0], abs=1e-5)


def test_an_answer_with_nothing_to_read_earns_nothing(base: Policy):
    reward = Fluency(base, threshold=-100.0)
    found = reward.score_batch([ASKED] * 3, complete("", "  \n", TEXTS[0]))
    assert [score.value for score in found] == [0.0, 0.0, 1.0]


def test_without_a_base_nothing_is_computed_and_other_rewards_count_alone():
    def score(example: Example, completion: Completion) -> Score:
        return Score(float(len(completion.text) > 3))

    assert Fluency()(ASKED, Completion("words")).value is None
    rewards = RewardSet({"long": (score, 1.0), "fluency": (Fluency(), 9.0)})
    assert rewards.score(ASKED, Completion("words")).value == 1.0
    assert rewards.weigh(ASKED) == {"long": 1.0}


def test_the_threshold_is_what_so_many_of_the_answers_are_below(base: Policy):
    words = ("the", "a", "blue", "quiet", "cold", "old", "new", "big")
    answers = complete(*[f"{word} sea" * 3 for word in words])
    means = average_log_probs(base, answers)
    threshold = find_threshold(base, answers, percentile=25)
    assert sum(mean < threshold for mean in means if mean is not None) == 2
    with pytest.raises(RewardError, match="the base model's own answers are empty"):
        find_threshold(base, complete("", ""), percentile=5)


def score_overlap(text: str, label: str | None = None, **fields: object) -> Score:
    return TokenF1()(make_item(label, **fields), Completion(text))


@pytest.mark.parametrize(("text", "label", "value"), CASES["shared_tokens_count"])
def test_shared_tokens_count(text: str, label: str, value: float) -> None:
    got = score_overlap(text, label)
    assert got.value == pytest.approx(value)
    assert not got.invalid


@pytest.mark.parametrize(("text", "label"), CASES["yes_and_no_are_all_or_nothing"])
def test_yes_and_no_are_all_or_nothing(text: str, label: str) -> None:
    assert score_overlap(text, label).value == 0.0
    assert score_overlap(label, label).value == 1.0


def test_the_best_reference_counts() -> None:
    got = score_overlap("Eiffel Tower", answers=["London", "Eiffel Tower in Paris", "Tower"])
    assert got.value == pytest.approx(2 / 3)


def test_without_references_there_is_no_score_and_bad_ones_are_an_error() -> None:
    assert score_overlap("x").value is None
    with pytest.raises(RewardError, match="cannot be compared"):
        score_overlap("x", answers=["a"])


texts = st.text(st.sampled_from("ab 北京是不,.") | st.characters(), max_size=20)


def compute_slowly(said: list[str], right: list[str]) -> float:
    """F1 by crossing out tokens one by one."""
    left, num_shared = list(right), 0
    for token in said:
        if token in left:
            left.remove(token)
            num_shared += 1
    if num_shared == 0:
        return 0.0
    precision, recall = num_shared / len(said), num_shared / len(right)
    return 2 * precision * recall / (precision + recall)


@given(texts, texts)
def test_f1_is_symmetric_in_range_and_one_only_for_the_same_tokens(a: str, b: str) -> None:
    value = compute_token_f1(a, b)
    assert value == compute_token_f1(b, a)
    assert 0.0 <= value <= 1.0
    if normalize_text(a):
        assert compute_token_f1(a, a) == 1.0


@given(st.lists(st.sampled_from("pqrs"), max_size=6), st.lists(st.sampled_from("pqrs"), max_size=6))
def test_f1_is_that_of_crossing_out(said: list[str], right: list[str]) -> None:
    value = compute_token_f1(" ".join(said), " ".join(right))
    assert value == pytest.approx(compute_slowly(said, right))


DATA = Path(os.environ.get("GROUPWISE_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))


def annotate(*answers: str) -> list[dict[str, object]]:
    return [{"answer": text, "answer_id": n} for n, text in enumerate(answers, start=1)]


def score_vote(text: str, answers: object, **options: bool) -> Score:
    return VqaAccuracy(**options)(make_item(answers=answers), Completion(text))


# Answers as the official vqaEval.py normalises them.
@pytest.mark.parametrize(
    ("text", "normal"), CASES["answers_are_normalised_as_in_the_official_evaluation"]
)
def test_answers_are_normalised_as_in_the_official_evaluation(text: str, normal: str) -> None:
    assert normalize_vqa_answer(text) == normal


@pytest.mark.parametrize(
    ("num_matches", "accuracy"), [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)]
)
def test_every_annotator_is_left_out_once(num_matches: int, accuracy: float) -> None:
    answers = annotate(*["net"] * num_matches, *["mesh"] * (10 - num_matches))
    assert score_vote("Net!", answers).value == accuracy


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
    assert score_vote("yes", annotate(*["yes"] * 10)).value == 1.0
    assert score_vote("yes", ["yes"] * 10).value == 1.0


def test_unanimous_answers_are_normalised_unless_as_published() -> None:
    answers = annotate(*["yes"] * 10)
    assert score_vote("Yes.", answers).value == 1.0
    assert score_vote("Yes.", answers, as_published=True).value == 0.0
    assert score_vote(" yes\n", answers, as_published=True).value == 1.0
    assert score_vote("Yes.", annotate(*["yes"] * 9, "no"), as_published=True).value == 1.0


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
    assert score_vote(said, annotate(*answers)).value in {0.0, 0.3, 0.6, 0.9, 1.0}
    official = compute_officially(said, answers)
    assert score_vote(said, annotate(*answers), as_published=True).value == pytest.approx(official)


@pytest.mark.parametrize(("num_a", "accuracy"), [(1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)])
def test_the_answer_may_be_an_article(num_a: int, accuracy: float) -> None:
    answers = annotate(*["a"] * num_a, *["b"] * (10 - num_a))
    assert score_vote("A.", answers).value == accuracy
    assert score_vote("a", answers, as_published=True).value == accuracy
    assert score_vote("the", answers).value == 0.0
    if num_a < 10:
        assert score_vote("the", answers, as_published=True).value == score_vote("a", answers).value


@pytest.mark.parametrize(("answers", "accuracy"), CASES["how_well_people_agree"])
def test_how_well_people_agree(answers: list[str], accuracy: float) -> None:
    assert compute_leave_one_out_accuracy(answers) == pytest.approx(accuracy)


def test_one_annotator_agrees_with_nobody() -> None:
    with pytest.raises(RewardError, match="too few annotators"):
        compute_leave_one_out_accuracy(["net"])


@pytest.mark.parametrize("text", ["net mesh", "net, mesh", "not net", "Who?"])
def test_lists_and_negations_earn_nothing(text: str) -> None:
    assert score_vote(text, annotate(*["net"] * 5, *["mesh"] * 5)).value == 0.0


def test_an_article_in_a_tag_is_an_answer() -> None:
    item = make_item(answers=annotate(*["a"] * 10))
    reward = VqaAccuracy(VqaParser(tags=("think", "answer")))
    assert reward(item, Completion("<think>b</think><answer>a</answer>")).value == 1.0


def test_without_the_field_there_is_no_score() -> None:
    item = make_item("net")
    assert VqaAccuracy()(item, Completion("net")) == Score(None, "no field answers")


@pytest.mark.parametrize(
    ("answers", "message"), CASES["annotations_that_cannot_be_used_are_an_error"]
)
def test_annotations_that_cannot_be_used_are_an_error(answers: object, message: str) -> None:
    with pytest.raises(RewardError, match=message):
        score_vote("net", answers)


@given(st.text(max_size=30), st.lists(st.text(max_size=10), min_size=2, max_size=10), st.randoms())
def test_the_order_of_annotators_does_not_count(text: str, answers: list[str], random) -> None:
    got = score_vote(text, annotate(*answers))
    assert got.value is not None
    assert 0.0 <= got.value <= 1.0
    assert not (got.invalid and got.value)
    random.shuffle(answers)
    assert score_vote(text, annotate(*answers)) == got


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
            assert score_vote(text, row["answers"]).value == want
            assert score_vote(f"The {text.upper()}!", row["answers"]).value == want
