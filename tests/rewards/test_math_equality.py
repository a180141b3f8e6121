import json
import os
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, Score, make_example
from groupwise.rewards import BatchReward, MathEquality, Reward
from groupwise.rewards.math_answers import find_math_answer
from groupwise.rewards.math_notation import write_plainly
from groupwise.rewards.reward import ReferenceCheck

DATA = Path(os.environ.get("GROUPWISE_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
REWARD = MathEquality()


def make_item(label: str | None) -> Example:
    return make_example([Message("user", "How many?")], cluster="g", label=label)


def score(text: str, label: str | None) -> Score:
    return REWARD(make_item(label), Completion(text))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so 3 + 4 = 7\n#### 7", "7"),
        (r"thus \boxed{7}.", "7"),
        (r"\boxed {\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{a}{b}", "a"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"#### 1" + "\n" + r"\boxed{2}", "2"),
        ("\\boxed{2}\n#### 1.\nsure", "1"),
        (r"\boxed{7。}", "7"),
        ("#### 18 元", "18 元"),
        (r"\boxed{１８个苹果}", "18个苹果"),
        (r"\boxed{1 000 000}", "1000000"),
        ("#### \t1,000 \r\n", "1,000"),
        ("\\boxed{18}\n#### Check\n9 + 9 = 18", "18"),
        ("\\boxed{18}\n#### 2 checks of the answer", "18"),
        ("\\boxed{18}\n#### 检验", "18"),
        ("#### 18\n#### Explanation", "18"),
        ("\\boxed{18}\n#### 19 dollars", "19 dollars"),
        (r"#### \boxed{7}", "7"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"$\boxed{1}$ and $\boxed{2}$", "1, 2"),
        (r"\boxed{1}，\boxed{2} 或 \boxed{1}", "1, 2"),
        (r"\boxed{10²}", "10^{2}"),
        (r"\boxed{3½}", r"3\frac{1}{2}"),
        ("#### $18$.", "18"),
    ],
)
def test_the_last_marked_answer_is_found(text: str, answer: str) -> None:
    found = find_math_answer(text)
    assert (found.label, found.reason) == (answer, "")
    assert text.startswith(found.prefix)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty answer"),
        ("the answer is 7", "no answer in"),
        ("### 7", "no answer in"),
        (r"\boxed 7", "no answer in"),
        (r"\boxed{7", "braces"),
        (r"\boxed{1} \boxed{\frac{1}{2}", "braces"),
        (r"\boxed{}", "is empty"),
        ("####\n7", "is empty"),
        ("#### 1 8", "two numbers are side by side"),
        ("#### 1 0000", "two numbers are side by side"),
        ("#### 18 19", "two numbers are side by side"),
        ("#### " + "1" * 501, "more than 500 characters"),
    ],
)
def test_without_a_marked_answer_the_completion_is_invalid(text: str, reason: str) -> None:
    got = score(text, "7")
    assert (got.value, got.invalid) == (0.0, True)
    assert reason in got.reason


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("18", "18"),
        ("18.0", "18"),
        ("9 + 9", "18"),
        (r"\frac{36}{2}", "18"),
        (r"\$18", "18"),
        ("1,000", "1000"),
        ("1 000", "1000"),
        ("x = 18", "18"),
        ("x = 9 + 9 = 18", "18"),
        (r"18 \text{ apples}", "18"),
        ("18元", "18"),
        ("0.5", r"\frac12"),
        (r"(x-1)(x+1)", "x^2-1"),
        ("2, 1", "1, 2"),
        ("18", "A long solution with 3 and 4.\n#### 18"),
        ("18", r"we get \boxed{18}"),
        (r"50\%", "0.5"),
    ],
)
def test_equal_answers(answer: str, label: str) -> None:
    got = score(f"\\boxed{{{answer}}}", label)
    assert (got.value, got.invalid) == (1.0, False)


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("19", "18"),
        ("-18", "18"),
        ("180", "18"),
        ("18.5", "18"),
        ("81", "18"),
        ("17 = 18", "18"),
        ("x = 17 = 18", "18"),
        ("18 = 17", "18"),
        ("18, 19", "18"),
        ("17 or 18", "18"),
        (r"17 \text{ or } 18", "18"),
        (r"\pm 18", "18"),
        ("x < 18", "18"),
        ("18!", "18"),
        ("1.000", "1000"),
        ("y + 1", "x + 1"),
        ("0.33", r"\frac13"),
        (r"\text{no}", r"\text{yes}"),
        ("abc", "18"),
        (r"\infty", "18"),
        ("50", "0.5"),
    ],
)
def test_near_misses_earn_nothing(answer: str, label: str) -> None:
    got = score(f"\\boxed{{{answer}}}", label)
    assert (got.value, got.invalid) == (0.0, False)


@pytest.mark.parametrize("answer", [r"\frac{", r"18 \\ 19", "∑∑", "+", "18 \\in {", "十八"])
def test_what_cannot_be_parsed_is_invalid(answer: str) -> None:
    got = score(f"#### {answer}", "18")
    assert (got.value, got.invalid) == (0.0, True)


def test_without_a_label_there_is_no_score() -> None:
    assert score("#### 1", None) == Score(None, "no label")


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ("???", "the label is unparsable"),
        ("", "the label is empty"),
        ("#### ", "the label is unparsable"),
        ("1 8", "two numbers stand side by side in the label"),
        ("18 dollars and 50 cents", "words that are no unit stand in the label"),
        ("1 in 6", "words that are no unit stand in the label"),
        ("3rd", "words that are no unit stand in the label"),
        ("6 cm x 4 cm", "words that are no unit stand in the label"),
        ("twenty-five", "words that are no unit stand in the label"),
        ("between 3 and 4", "words that are no unit stand in the label"),
        ("3个半", "the label is unparsable"),
        ("0:0", "the label is unparsable"),
        ("17 = 18", "the label is unparsable"),
    ],
)
def test_a_label_that_cannot_be_read_is_an_error_of_the_data(label: str, problem: str) -> None:
    item = make_item(label)
    assert REWARD(item, Completion(r"\boxed{18}")) == Score(None, problem)
    assert REWARD.explain_unusable(item) == problem
    assert REWARD.explain_unusable(make_item("18")) is None
    assert REWARD.explain_unusable(make_item(None)) is None


fractions = st.fractions(max_denominator=1000).filter(lambda value: abs(value) < 10**9)


def write(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


@settings(max_examples=60)
@given(fractions, fractions)
def test_rational_numbers_are_compared_as_python_does(a: Fraction, b: Fraction) -> None:
    if a == b or abs(a - b) > Fraction(1, 1000):
        assert score(rf"\boxed{{{write(a)}}}", write(b)).value == float(a == b)
    assert score(rf"\boxed{{{write(a)}}}", write(a)).value == 1.0
    assert score(rf"\boxed{{{write(a)}}}", str(a)).value == 1.0


@given(st.text(max_size=60))
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    answer = find_math_answer(f"#### {text}").label
    if answer is not None and "####" not in text and "boxed" not in text:
        assert write_plainly(answer) == answer


@settings(max_examples=60)
@given(st.text(max_size=40))
def test_any_text_is_scored_in_range_and_invalid_never_pays(text: str) -> None:
    got = score(f"#### {text}", "7919")
    assert got.value in (0.0, 1.0)
    assert not (got.invalid and got.value)


@pytest.mark.parametrize(
    "piece",
    ["a", "a ", r"\text{a}  ", "1 ", "1,", "1/", " ", "cm2", "1e", "°", "^", "\\boxed{"],
)
def test_no_text_takes_for_ever_to_read(piece: str) -> None:
    for text in ("3" + piece * 50 + "!", "3 " + piece * 20_000 + "!"):
        for mark in ("#### {}", "\\boxed{{{}}}", "#### 1\n#### {}"):
            assert score(mark.format(text), "7919").value == 0.0


def test_threads_share_one_reward() -> None:
    values: list[float | None] = []

    def work(number: int) -> None:
        values.append(score(f"#### {number}", "3").value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values) == [0.0] * 7 + [1.0]


def test_it_follows_the_protocol() -> None:
    assert isinstance(REWARD, Reward)
    assert isinstance(REWARD, BatchReward)
    assert isinstance(REWARD, ReferenceCheck)


def test_every_answer_of_real_problems_equals_itself_and_no_near_miss() -> None:
    path = DATA / "gsm8k" / "test.jsonl"
    if not path.is_file():
        pytest.skip(f"no problems at {path}: set GROUPWISE_DATA")
    for line in path.read_text(encoding="utf-8").splitlines()[::13]:
        solution = json.loads(line)["answer"]
        gold = int(solution.split("####")[1].replace(",", ""))
        assert score(solution, solution).value == 1.0
        assert score(f"\\boxed{{{gold}}}", solution).value == 1.0
        for miss in (f"{gold + 1}", f"{gold}.5", f"{gold}, {gold + 1}", f"{gold + 1} = {gold}"):
            assert score(f"#### {miss}", solution).value == 0.0, miss


def test_every_label_of_real_problems_can_be_read() -> None:
    path = DATA / "gsm8k" / "train.jsonl"
    if not path.is_file():
        pytest.skip(f"no problems at {path}: set GROUPWISE_DATA")
    labels = [json.loads(line)["answer"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(labels) == 7473
    assert [label for label in labels if REWARD.explain_unusable(make_item(label))] == []
    for label in labels[::100]:
        assert score(f"\\boxed{{{label.split('####')[1].strip()}}}", label).value == 1.0
