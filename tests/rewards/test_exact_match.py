import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import ExactMatch, Reward, TextParser, normalize_text, split_tokens
from groupwise.rewards.text import has_words


def make_item(label: str | None = None, **fields: object) -> Example:
    return make_example([Message("user", "Who?")], cluster="g", label=label, fields=fields)


def score(text: str, label: str | None = None, **fields: object) -> Score:
    return ExactMatch()(make_item(label, **fields), Completion(text))


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("the Eiffel Tower", "Eiffel Tower."),
        ("EIFFEL  TOWER!", "the eiffel tower"),
        ("U.S.A.", "USA"),
        ("北京。", "北京"),
        ("“北京”", "北京"),
        ("２０１８年", "2018年"),
        ("\u210bello", "hello"),
        ("a, b", "b"),
    ],
)
def test_what_is_the_same_after_normalising_earns_all(text: str, label: str) -> None:
    assert score(text, label).value == 1.0


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Eiffel", "Eiffel Tower"),
        ("not the Eiffel Tower", "Eiffel Tower"),
        ("Eiffel Tower, London Bridge", "Eiffel Tower"),
        ("不是北京", "北京"),
        ("Who?", "Eiffel Tower"),
        ("théâtre", "theatre"),
    ],
)
def test_anything_else_earns_nothing(text: str, label: str) -> None:
    got = score(text, label)
    assert (got.value, got.invalid) == (0.0, False)


@pytest.mark.parametrize("text", ["", "  \n", "the", "...", "，。"])
def test_an_answer_without_words_is_invalid(text: str) -> None:
    got = score(text, "the answer")
    assert (got.value, got.invalid) == (0.0, True)


def test_any_reference_counts_and_the_field_comes_before_the_label() -> None:
    assert score("New York City", "x", answers=["NYC", "New York City"]).value == 1.0
    assert score("x", "x", answers=["NYC"]).value == 0.0


def test_the_answer_may_stand_in_a_tag() -> None:
    reward = ExactMatch(TextParser(tags=("think", "answer")))
    item = make_item("Paris")
    assert reward(item, Completion("<think>x</think><answer>Paris.</answer>")).value == 1.0
    got = reward(item, Completion("Paris"))
    assert got == Score(0.0, "<think> is missing", invalid=True)


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


def test_it_follows_the_protocol() -> None:
    assert isinstance(ExactMatch(), Reward)
