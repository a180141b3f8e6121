import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import TextParser, TokenF1, normalize_text
from groupwise.rewards.text import compute_token_f1


def make_item(label: str | None = None, **fields: object) -> Example:
    return make_example([Message("user", "Who?")], cluster="g", label=label, fields=fields)


def score(text: str, label: str | None = None, **fields: object) -> Score:
    return TokenF1()(make_item(label, **fields), Completion(text))


@pytest.mark.parametrize(
    ("text", "label", "value"),
    [
        ("Eiffel Tower", "the Eiffel Tower", 1.0),
        ("Tower Eiffel", "Eiffel Tower", 1.0),
        ("Eiffel", "Eiffel Tower", 2 / 3),
        ("it is the Eiffel Tower", "Eiffel Tower", 2 * 2 / (4 + 2)),
        ("Tower Tower Tower", "Eiffel Tower", 2 * 1 / (3 + 2)),
        ("London", "Eiffel Tower", 0.0),
        ("北京市", "北京", 2 * 2 / (3 + 2)),
        ("京北", "北京", 1.0),
        ("上海", "北京", 0.0),
        ("北京 Olympics", "Olympics 北京", 1.0),
        ("iPhone手机", "iphone", 2 * 1 / (3 + 1)),
        ("２０１８年", "2018 年", 1.0),
    ],
)
def test_shared_tokens_count(text: str, label: str, value: float) -> None:
    got = score(text, label)
    assert got.value == pytest.approx(value)
    assert not got.invalid


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("yes", "no"),
        ("yes it is", "yes"),
        ("Yes.", "yes it is"),
        ("no", "no one"),
        ("noanswer", "no answer"),
        ("是", "不是"),
        ("不是", "是"),
        ("不", "不对"),
    ],
)
def test_yes_and_no_are_all_or_nothing(text: str, label: str) -> None:
    assert score(text, label).value == 0.0
    assert score(label, label).value == 1.0


@pytest.mark.parametrize("text", ["", " ", "the", "!!"])
def test_an_answer_without_words_is_invalid(text: str) -> None:
    got = score(text, "the Eiffel Tower")
    assert (got.value, got.invalid) == (0.0, True)


def test_the_best_reference_counts() -> None:
    got = score("Eiffel Tower", answers=["London", "Eiffel Tower in Paris", "Tower"])
    assert got.value == pytest.approx(2 / 3)


def test_the_answer_may_stand_in_a_tag() -> None:
    text = "<think>x</think><answer>Eiffel</answer>"
    reward = TokenF1(TextParser(tags=("think", "answer")))
    assert reward(make_item("Eiffel Tower"), Completion(text)).value == pytest.approx(2 / 3)
    assert reward(make_item("Eiffel Tower"), Completion("Eiffel")).invalid


def test_without_references_there_is_no_score_and_bad_ones_are_an_error() -> None:
    assert score("x").value is None
    with pytest.raises(RewardError, match="cannot be compared"):
        score("x", answers=["a"])


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
