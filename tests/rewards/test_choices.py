from string import ascii_uppercase

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import ChoiceParser, LabelMatch

OPTIONS = ["Paris", "The Hague", "Rome", "北京"]


def make_item(label: str | None = "B", **fields: object) -> Example:
    return make_example(
        [Message("user", "Which?")], cluster="g", label=label, fields={"options": OPTIONS} | fields
    )


def score(text: str, label: str | None = "B", **fields: object) -> Score:
    return LabelMatch(ChoiceParser())(make_item(label, **fields), Completion(text))


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
        "“B”",
        "答案：“B”。",
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
        ("B. Paris", "other text than that of the option is beside B"),
        ("B because it is", "other text than that of the option is beside B"),
        ("A is wrong, so B", "other text than that of the option is beside A"),
        ("B, B", "B stands there more than once"),
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


@pytest.mark.parametrize("text", ["A, C, A", "a A", "C and C"])
def test_a_letter_that_stands_twice_is_no_answer(text: str) -> None:
    assert "more than once" in ChoiceParser(several=True).parse(text).reason


@pytest.mark.parametrize(
    ("text", "value"),
    [("A, C", 1.0), ("c and a", 1.0), ("C、A", 1.0), ("A", 0.0), ("A, B, C", 0.0), ("B, D", 0.0)],
)
def test_several_right_options_compare_as_sets(text: str, value: float) -> None:
    parser, item = ChoiceParser(several=True), make_item("A, C")
    assert parser.measure(item, text) == value
    assert parser.labels == ()
    assert parser.parse(text).label == parser.parse(text.upper()).label


def test_the_number_of_options_comes_from_the_example_or_from_the_parser() -> None:
    bare = make_example([Message("user", "?")], cluster="g", label="E")
    five = ChoiceParser(num_options=5)
    assert [five.measure(bare, text) for text in ("E", "F", "E. whatever")] == [1.0, None, None]
    assert score("C", options=["x", "y"]).reason == "C is no option"


def test_the_answer_may_stand_in_a_tag() -> None:
    parser = ChoiceParser(tags=("think", "answer"))
    assert parser.measure(make_item(), "<think>A?</think><answer>B</answer>") == 1.0
    assert parser.measure(make_item(), "B") is None


def test_without_a_label_there_is_no_score() -> None:
    assert score("A", None) == Score(None, "no label")


@pytest.mark.parametrize("label", ["E", "Paris", "", "1"])
def test_a_label_that_no_answer_can_give_is_an_error(label: str) -> None:
    with pytest.raises(RewardError, match=r"no answer can give; .*one of A, B, C, D"):
        score("A", label)


@pytest.mark.parametrize("options", ["AB", ["x"], [1, 2], ["x"] * 27, {}])
def test_options_that_are_none_are_an_error(options: object) -> None:
    with pytest.raises(RewardError, match="not 2 to 26 texts"):
        score("A", options=options)


@pytest.mark.parametrize("num_options", [0, 1, 27])
def test_a_number_of_options_that_cannot_be_is_refused(num_options: int) -> None:
    with pytest.raises(ValidationError, match="num_options"):
        ChoiceParser(num_options=num_options)


letters = st.sampled_from(ascii_uppercase)


@given(st.text(max_size=20) | letters, letters, st.integers(2, 26))
def test_a_text_pays_for_one_label_at_most(text: str, label: str, num_options: int) -> None:
    reward = LabelMatch(ChoiceParser(num_options=num_options))
    possible = ascii_uppercase[:num_options]
    items = [make_example([Message("user", "?")], cluster="g", label=each) for each in possible]
    scores = [reward(item, Completion(text)) for item in items]
    assert sum(score.value or 0 for score in scores) <= 1.0
    assert len({score.invalid for score in scores}) == 1
    if label in possible:
        assert reward(items[possible.index(label)], Completion(label)).value == 1.0


@pytest.mark.parametrize(
    ("text", "label", "prefix"),
    [
        ("B", "B", ""),
        (" \n(b)", "B", " \n"),
        ("Answer: B. The Hague", "B", "Answer: "),
        ("答案：Ｂ。", "B", "答案："),
        ("Ａｎｓｗｅｒ：**Ｃ**", "C", "Ａｎｓｗｅｒ："),
        ("Ⅲ", None, ""),
    ],
)
def test_the_prefix_is_what_introduces_the_letter(text: str, label: str, prefix: str) -> None:
    found = ChoiceParser().parse(text, make_item())
    assert (found.label, found.prefix) == (label, prefix)


def test_letters_are_written_in_order() -> None:
    parser = ChoiceParser(several=True)
    for target in ("c, A", '["C", "A"]', "A、C", "C A"):
        assert parser.write(target) == "A, C"
    assert ChoiceParser(tags=("answer",)).write("b") == "<answer>B</answer>"
    for wrong in ("E", "Paris", "", "A, C"):
        with pytest.raises(RewardError, match="no answer can be"):
            ChoiceParser().write(wrong)
