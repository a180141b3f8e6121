from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import MultipleChoice, TagContract

OPTIONS = ["Paris", "The Hague", "Rome", "北京"]


def make_item(label: str | None = "B", **fields: object) -> Example:
    return make_example(
        [Message("user", "Which?")], group="g", label=label, fields={"options": OPTIONS} | fields
    )


def score(text: str, label: str | None = "B", **fields: object) -> Score:
    return MultipleChoice()(make_item(label, **fields), Completion(text))


@pytest.mark.parametrize(
    "text",
    [
        "B",
        " b. ",
        "(B)",
        "[B]",
        "**B**",
        "B)",
        "Answer: B",
        "The answer is B.",
        "the correct answer is (B)",
        "Option B",
        "答案：B",
        "答案是B。",
        "选Ｂ",
        "B. The Hague",
        "B) hague.",
        "(B) The Hague",
        "B: The Hague",
        "Answer: B. The Hague",
    ],
)
def test_the_right_letter_earns_all(text: str) -> None:
    assert score(text).value == 1.0
    wrong = score(text, "A")
    assert (wrong.value, wrong.invalid) == (0.0, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty answer"),
        ("The Hague", "no letter of an option alone"),
        ("not B", "no letter of an option alone"),
        ("AB", "no letter of an option alone"),
        ("E", "E is no option"),
        ("E. The Hague", "E is no option"),
        ("B. Paris", "other text than that of the option stands beside B"),
        ("B because it is", "other text than that of the option stands beside B"),
        ("A is wrong, so B", "other text than that of the option stands beside A"),
        ("A, B, C, D", "several options: A, B, C, D"),
        ("A B C D", "several options: A, B, C, D"),
        ("A and B", "several options: A, B"),
        ("A和B", "several options: A, B"),
        ("A、B", "several options: A, B"),
        ("Which?", "no letter of an option alone"),
    ],
)
def test_anything_else_is_invalid_and_says_why(text: str, reason: str) -> None:
    for label in "AB":
        assert score(text, label) == Score(0.0, reason, invalid=True)


@pytest.mark.parametrize(
    ("text", "value"),
    [("A, C", 1.0), ("c and a", 1.0), ("C、A", 1.0), ("A", 0.0), ("A, B, C", 0.0), ("B, D", 0.0)],
)
def test_several_right_options_compare_as_sets(text: str, value: float) -> None:
    got = score(text, "A, C")
    assert (got.value, got.invalid) == (value, False)


def test_the_number_of_options_comes_from_the_example_or_from_the_reward() -> None:
    bare = make_example([Message("user", "?")], group="g", label="E")
    assert MultipleChoice(num_options=5)(bare, Completion("E")).value == 1.0
    assert MultipleChoice(num_options=5)(bare, Completion("F")).invalid
    assert MultipleChoice(num_options=5)(bare, Completion("E. whatever")).invalid
    assert score("C", options=["x", "y"]).reason == "C is no option"


def test_the_answer_may_stand_in_a_tag() -> None:
    reward = MultipleChoice(TagContract())
    assert reward(make_item(), Completion("<think>A?</think><answer>B</answer>")).value == 1.0
    assert reward(make_item(), Completion("B")).invalid


def test_without_a_label_there_is_no_score() -> None:
    assert score("A", None) == Score(None, "no label")


@pytest.mark.parametrize("label", ["E", "Paris", "", "1"])
def test_a_label_that_no_answer_can_give_is_an_error(label: str) -> None:
    with pytest.raises(RewardError, match="expected letters from A to D"):
        score("A", label)


@pytest.mark.parametrize("options", ["AB", ["x"], [1, 2], ["x"] * 27, {}])
def test_options_that_are_none_are_an_error(options: object) -> None:
    with pytest.raises(RewardError, match="not 2 to 26 texts"):
        score("A", options=options)


@pytest.mark.parametrize("num_options", [0, 1, 27])
def test_a_number_of_options_that_cannot_be_is_refused(num_options: int) -> None:
    with pytest.raises(RewardError, match="2 to 26"):
        MultipleChoice(num_options=num_options)


letters = st.sampled_from(ascii_uppercase)


@given(st.text(max_size=20) | letters, letters, st.integers(2, 26))
def test_a_text_pays_for_one_label_at_most(text: str, label: str, num_options: int) -> None:
    reward = MultipleChoice(num_options=num_options)
    possible = ascii_uppercase[:num_options]
    items = [make_example([Message("user", "?")], group="g", label=each) for each in possible]
    scores = [reward(item, Completion(text)) for item in items]
    assert sum(score.value or 0 for score in scores) <= 1.0
    assert len({score.invalid for score in scores}) == 1
    if label in possible:
        assert reward(items[possible.index(label)], Completion(label)).value == 1.0
