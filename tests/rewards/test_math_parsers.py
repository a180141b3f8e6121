import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Message, RewardError, make_example
from groupwise.rewards import MathEquality, MathParser, NumberParser

NUMBER = NumberParser()


@pytest.mark.parametrize(
    ("text", "label", "prefix"),
    [
        ("42", "42", ""),
        (" 42.\n", "42", " "),
        ("４２", "42", ""),
        ("-3/4", "-3/4", ""),
        ("1,000.50", "1,000.50", ""),
        ("1 000", "1000", ""),
        ("$42$", "42", ""),
        ("**42**", "42", ""),
        (r"\frac{1}{2}", r"\frac{1}{2}", ""),
        ("50%", "50%", ""),
        ("百分之 50", "50%", ""),
        ("3 million", "3 million", ""),
        ("$18", "$18", ""),
        ("18 dollars", "18 dollars", ""),
        ("３．５ 米", "3.5 米", ""),
        ("18 km per hour", "18 km per hour", ""),
        ("答案：42。", "42", "答案："),
        ("正确答案是 42", "42", "正确答案是 "),
        ("The answer is 42.", "42", "The answer is "),
        ("Answer: **42**", "42", "Answer: "),
    ],
)
def test_a_number_alone_is_an_answer(text: str, label: str, prefix: str) -> None:
    found = NUMBER.parse(text)
    assert (found.label, found.prefix) == (label, prefix)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("forty-two", "no number alone"),
        ("百分之五十", "no number alone"),
        ("x = 42", "no number alone"),
        (r"\boxed{42}", "no number alone"),
        ("so 42", "no number alone"),
        ("41 or 42", "no number alone"),
        ("41, 42", "no number alone"),
        ("4 2", "two numbers are side by side"),
        ("42 apples because I counted", "other text than a unit"),
        ("42 supercalifragilistics", "other text than a unit"),
        ("42 is wrong", "no number alone"),
        ("1" * 501, "more than 500 characters"),
        ("1/0", "no number alone"),
        ("nan", "no number alone"),
    ],
)
def test_anything_else_is_no_answer_and_says_why(text: str, reason: str) -> None:
    found = NUMBER.parse(text)
    assert found.label is None
    assert reason in found.reason


@pytest.mark.parametrize(
    ("text", "label", "value"),
    [
        ("42", "42", 1.0),
        ("42.0", "42", 1.0),
        ("84/2", "42", 1.0),
        ("43", "42", 0.0),
        ("-42", "42", 0.0),
        ("42 dollars", "$42", 1.0),
        ("42 cents", "42 dollars", 0.0),
        ("42", "so 40 + 2 = 42\n#### 42", 1.0),
        ("3万元", "30000 元", 1.0),
        ("the answer", "42", None),
        (r"\boxed{42}", "42", None),
    ],
)
def test_numbers_are_measured_by_their_values(text: str, label: str, value: float | None) -> None:
    example = make_example([Message("user", "?")], cluster="g", label=label)
    assert NUMBER.measure(example, text) == value
    score = MathEquality(NUMBER)(example, Completion(text))
    assert (score.value, score.invalid) == (value or 0.0, value is None)


@given(st.text(max_size=30))
def test_a_number_is_read_as_what_is_boxed(text: str) -> None:
    answer = NUMBER.parse(text).label
    if answer is not None:
        assert MathParser().parse(rf"\boxed{{{answer}}}").label == answer


@pytest.mark.parametrize("denial", ["不是", "并非", "not ", "isn't ", "is not ", "anything but "])
def test_an_answer_that_is_denied_is_none(denial: str) -> None:
    for answer in ("42", r"\frac{1}{2}"):
        example = make_example([Message("user", "?")], cluster="g", label=answer)
        assert MathParser().measure(example, rf"\boxed{{{denial}{answer}}}") is None


def test_as_many_boxes_as_the_label_has_are_one_answer() -> None:
    example = make_example([Message("user", "?")], cluster="g", label=r"\boxed{1}, so \boxed{2}")
    assert MathParser().measure(example, r"\boxed{1} because. Then \boxed{2}") == 1.0
    assert MathParser().parse(r"\boxed{1} because. Then \boxed{2}").label == "2"


def test_a_solution_is_written_as_its_answer() -> None:
    assert MathParser().write("9 + 9 = 18\n#### 18") == r"\boxed{18}"
    assert NUMBER.write("9 + 9 = 18\n#### 18") == "18"
    assert MathParser().write(r"\boxed{1} and \boxed{2}") == r"\boxed{1, 2}"
    assert MathParser().parse("So\n#### 18").prefix == "So\n"
    for target in ("x}", "", "1 8"):
        with pytest.raises(RewardError, match="no answer can be"):
            MathParser().write(target)
    with pytest.raises(RewardError, match="no answer can be 'many'"):
        NUMBER.write("many")
