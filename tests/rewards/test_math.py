import json
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import MathEquality, MathParser, NumberParser
from groupwise.rewards.math_text import has_other_unit, write_plainly
from groupwise.rewards.math_workers import MathWorkers

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
    found = MathParser().parse(text)
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
    assert score("#### 1", None) == Score(None, "no label")


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
    answer = MathParser().parse(f"#### {text}").label
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


def read_answers(split: str) -> list[str]:
    path = DATA / "gsm8k" / f"{split}.jsonl"
    if not path.is_file():
        pytest.skip(f"no problems at {path}: set GROUPWISE_DATA")
    return [json.loads(line)["answer"] for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_answer_of_real_problems_equals_itself_and_no_near_miss() -> None:
    for solution in read_answers("test")[::13]:
        gold = int(solution.split("####")[1].replace(",", ""))
        assert score(solution, solution).value == 1.0
        assert score(f"\\boxed{{{gold}}}", solution).value == 1.0
        for miss in (f"{gold + 1}", f"{gold}.5", f"{gold}, {gold + 1}", f"{gold + 1} = {gold}"):
            assert score(f"#### {miss}", solution).value == 0.0, miss


def test_every_label_of_real_problems_can_be_read() -> None:
    labels = read_answers("train")
    assert len(labels) == 7473
    assert [label for label in labels if REWARD.explain_unusable(make_item(label))] == []
    for label in labels[::100]:
        assert score(f"\\boxed{{{label.split('####')[1].strip()}}}", label).value == 1.0


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
    assert NUMBER.measure(make_item(label), text) == value
    score = MathEquality(NUMBER)(make_item(label), Completion(text))
    assert (score.value, score.invalid) == (value or 0.0, value is None)


@given(st.text(max_size=30))
def test_a_number_is_read_as_what_is_boxed(text: str) -> None:
    answer = NUMBER.parse(text).label
    if answer is not None:
        assert MathParser().parse(rf"\boxed{{{answer}}}").label == answer


@pytest.mark.parametrize("denial", ["不是", "并非", "not ", "isn't ", "is not ", "anything but "])
def test_an_answer_that_is_denied_is_none(denial: str) -> None:
    for answer in ("42", r"\frac{1}{2}"):
        assert MathParser().measure(make_item(answer), rf"\boxed{{{denial}{answer}}}") is None


def test_as_many_boxes_as_the_label_has_are_one_answer() -> None:
    item = make_item(r"\boxed{1}, so \boxed{2}")
    assert MathParser().measure(item, r"\boxed{1} because. Then \boxed{2}") == 1.0
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


# fmt: off
# label, answers that are right, answers that are wrong; what stands in them is boxed.
WORD_PROBLEMS = [
    ("9 (apples)", ["9", "9 apples", r"9 \text{ red apples}", "9.0"],
     ["8", "9 pears", "9 dollars"]),
    ("9 (apple)", ["9", "9 apples"], ["90"]),
    ("2 (children)", ["2", "2 child"], ["2 boxes"]),
    ("15 (boxes)", ["15", "15 box", r"15\text{ boxes}"], ["15 crates"]),
    ("3 (cherries)", ["3", "3 cherry"], ["3 grapes", "4"]),
    ("18 (dollars)", ["18", "$18", r"\$18", "18 dollars", "18.00"], ["18 cents", "1800", "€18"]),
    ("$18", ["18", "18 dollars", r"\$18.00", "18 USD"], ["18 euros", "¥18", "-18"]),
    (r"\$18", ["18", "$18$", "$18"], ["19", "18 yuan"]),
    ("18 dollars", ["18", "$18", "18 美元"], ["18 cents", "81"]),
    ("0.75 (dollars)", ["0.75", "$.75", "3/4", r"\frac{3}{4}"], ["75", "0.75 cents"]),
    ("75 (cents)", ["75", "75 cents", "75¢"], ["75 dollars", "0.75"]),
    ("12 (dollars per hour)", ["12", "$12", "$12 per hour", "12 dollars/hour"],
     ["12 dollars per day"]),
    ("£5", ["5", "5 pounds"], ["$5", "6"]),
    ("-$4", ["-4", r"-\$4", "$-4"], ["4", "$4"]),
    ("60 (miles per hour)", ["60", "60 mph", "60 miles/hour"], ["60 km/h", "60 miles", "1"]),
    ("5 (m/s)", ["5", r"5 \text{ m/s}", "5 meters per second"], ["5 m", "5 km/h"]),
    ("5 (meters)", ["5", "5 m", "5m", "5 metres", "5米"], ["5 km", "5 feet", "5 m^2", "500"]),
    ("5 m", ["5", "5m", r"5\,\mathrm{m}"], ["5 cm", "5x"]),
    ("12 (inches)", ["12", "12 in", "12 inch"], ["12 feet", "1"]),
    ("6 feet", ["6", "6 ft", "6 foot"], ["6 inches", "72"]),
    ("16 (square feet)", ["16", "16 sq ft", r"16 \text{ ft}^2"], ["16 feet", "4", "16 cubic feet"]),
    ("16 cm^2", ["16", r"16\ \text{cm}^2", "16 cm²", "16 cm2", "16㎠"], ["16 cm", "16 cm^3"]),
    (r"36\pi \text{ cm}^2", [r"36\pi", "36π", r"36\pi \text{ square cm}"],
     ["36", r"36\pi \text{ cm}"]),
    ("250 (ml)", ["250", "250 mL", "250毫升"], ["250 L", "0.25"]),
    ("3 (liters)", ["3", "3 L", "3 litres"], ["3 ml"]),
    ("2.5 kg", ["2.5", "5/2", "2.5 kilograms", "2.5千克", "2.5 公斤"], ["2.5 g", "2500"]),
    ("4 (pounds)", ["4", "4 lb", "4 lbs"], ["4 ounces"]),
    ("3 hours", ["3", "3 h", "3 hr", "3小时", "3个小时"], ["3 minutes", "180"]),
    ("45 (minutes)", ["45", "45 min", "45分钟"], ["45 seconds", "45 hours"]),
    ("7 (days)", ["7", "7天", "7 days left"], ["7 weeks", "1 week"]),
    ("12 (years old)", ["12", "12 years", "12岁"], ["12 months"]),
    ("25 (degrees)", ["25", "25°", r"25^\circ"], ["26"]),
    ("125°", ["125", r"125^\circ", r"125^{\circ}", "125 degrees"], ["125 radians", "12.5"]),
    ("20 °C", ["20", "20℃", r"20^\circ\text{C}", "20 degrees Celsius"], ["20 °F", "21"]),
    ("8 (times)", ["8", "8 times", "8次"], ["8 hours"]),
    ("1,234 (people)", ["1234", "1,234", "1 234", "1234 persons", "1234人"], ["1.234", "234"]),
    ("12,000", ["12000", "12 000", r"12{,}000", r"12\,000", "1.2万", "12 thousand"], ["12"]),
    ("3 million", ["3000000", "3,000,000", r"3\times10^6", "300万"], ["3", "3000"]),
    ("1/2 (pizza)", ["1/2", "0.5", "½", r"\frac12", "1/2 of a pizza"], ["2", "1/3"]),
    ("3 1/2 (hours)", ["3.5", "7/2", "3½", r"3\frac{1}{2}", "3 1/2 hours"],
     ["31/2", "3", "3.5 days"]),
    ("-2 1/4", ["-2.25", "-9/4", r"-\frac{9}{4}"], ["-1.75", "2.25"]),
    ("2½", ["2.5", "5/2"], ["21/2", "10.5"]),
    ("20%", ["20%", r"20\%", "0.2", "20", "20 percent", "1/5"], ["2", "0.02", "2000%"]),
    ("20 (%)", ["20", "20%", "0.2"], ["21", "80%"]),
    ("20 percent", ["20", "20%"], ["0.02"]),
    ("12.5 (percent)", ["12.5%", "0.125", "12.5"], ["125"]),
    ("4.5e33", [r"4.5 \times 10^{33}", "4.5E+33", r"45 \cdot 10^{32}"],
     ["4.5", "4.5e32", "4.6e33"]),
    ("3e8", ["300000000", "3e8 m/s", r"3\times 10^8"], ["24", "3e7"]),
    ("1.6e-19 (C)", [r"1.6\times10^{-19}", "1.6e-19"], ["1.7e-19", "0", "1.6e-18"]),
    ("0.0000001", ["1e-7", "10^{-7}", "0.0000001"], ["0.0000002", "0", "1e-8"]),
    ("√2", [r"\sqrt{2}", "√2", "2^{1/2}", "1.414214"], ["2", "-√2"]),
    ("2√3 cm", [r"2\sqrt{3}", r"2\sqrt3 \text{ cm}", "√12"], ["2√2", r"2\sqrt{3} \text{ m}"]),
    ("½", ["0.5", "1/2"], ["12", "2"]),
    ("10²", ["100", "10^2", "10^{2}"], ["102", "20"]),
    ("10⁻³", ["0.001", "1/1000"], ["-103", "1000"]),
    ("log₂8", ["3", r"\log_2 8"], ["28"]),
    ("18元", ["18", "18 元钱", "18块", "¥18", "18 yuan"], ["18 dollars", "18角", "180"]),
    ("18 元钱", ["18", "18元", "18块钱"], ["$18"]),
    ("3个", ["3", "3个苹果", "3 apples", "3只"], ["4个"]),
    ("3个苹果", ["3", "3个", "3个红苹果", "3 apples"], ["3个梨", "5个苹果"]),
    ("3只天鹅", ["3", "3只天鹅"], ["3只鸭子"]),
    ("5千克", ["5", "5公斤", "5 kg"], ["5克", "5000", "5千"]),
    ("3万元", ["30000", "3万", "30,000元"], ["3", "3元", "3万美元"]),
    ("20％", ["20%", "百分之20"], ["2%"]),
    ("6 (dogs); 4 (cats)", ["6, 4", "4, 6", "6 dogs, 4 cats"], ["6", "6, 5"]),
    ("2:3", ["2:3", "4:6", "2/3"], ["3:2"]),
    ("8:30 (am)", ["8:30", "8:30 am"], ["8:30 pm", "4:15", "9:30"]),
    (r"\boxed{1} or \boxed{2}", ["1, 2", r"1 \text{ or } 2", r"1} and \boxed{2"],
     ["1", "2", "1, 3"]),
    (r"\boxed{7}, so again \boxed{7}", ["7"], ["77"]),
    ("3:00 pm", ["3:00", "3:00 pm"], ["3:00 am", "3:30"]),
    ("5m", ["5m", "5 m", "m5"], ["5", "5 cm"]),
    ("2e-1", ["0.2", "2e - 1", "1/5"], ["2", "1"]),
    ("x = 5 meters", ["5", "x=5", "5 m"], ["5 cm", "6"]),
]
# fmt: on


@pytest.mark.parametrize(
    ("label", "right", "wrong"), WORD_PROBLEMS, ids=[row[0] for row in WORD_PROBLEMS]
)
def test_word_problems(label: str, right: list[str], wrong: list[str]) -> None:
    assert score(label if "boxed" in label else f"#### {label}", label).value == 1.0
    refused = [a for a in right if score(f"\\boxed{{{a}}}", label).value != 1.0]
    paid = [a for a in wrong if score(f"\\boxed{{{a}}}", label).value != 0.0]
    assert (refused, paid) == ([], [])


integers = st.integers(-(10**18), 10**18)
WRITTEN = st.sampled_from(
    (
        *("{0}", "{0:,}", "{0}.0", "+{0}", r"\frac{{{0}}}{{1}}", "{0}/1", "{0} apples", "${0}$"),
        *("{0}e0", r"{0} \times 10^{{0}}", r"\text{{}}{0}", "x = {0}", "{0} (apples)", "{0}个"),
        r"\boxed{{{0}}}",
    )
)


@given(integers, integers, WRITTEN)
def test_different_integers_are_never_equal(a: int, b: int, form: str) -> None:
    assert score(f"\\boxed{{{a}}}", form.format(b).replace("+-", "-")).value == float(a == b)
    assert score(f"\\boxed{{{a}}}", form.format(a).replace("+-", "-")).value == 1.0


@given(integers, st.integers(1, 10**6), st.integers(1, 9))
def test_one_value_in_several_notations(whole: int, denominator: int, digit: int) -> None:
    numerator = abs(whole) % denominator
    mixed = f"{whole} {numerator}/{denominator}"
    sum_of_both = abs(whole) * denominator + numerator
    improper = f"{'-' if whole < 0 else ''}{sum_of_both}/{denominator}"
    assert score(f"\\boxed{{{improper}}}", mixed).value == 1.0
    assert score(f"\\boxed{{{mixed}}}", improper).value == 1.0
    raised = str(whole % 100).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    assert score(f"\\boxed{{{digit}e{whole % 100}}}", f"{digit}×10{raised}").value == 1.0


@given(st.floats(1e-30, 1e30), st.floats(1e-30, 1e30))
def test_decimals_are_equal_only_if_they_are_close(a: float, b: float) -> None:
    is_equal = score(f"\\boxed{{{b!r}}}", f"{a!r}").value == 1.0
    assert is_equal or a != b
    assert not is_equal or abs(a - b) <= min(1.1e-6, 1e-4 * max(a, b))


@given(st.text(st.sampled_from("0123456789.,/ -+()^{}%$°½²√\\eEmk元个万apples;:"), max_size=20))
def test_a_readable_label_equals_itself(label: str) -> None:
    got = score(f"#### {label}", label)
    assert got.value == 1.0 or got.invalid or REWARD.explain_unusable(make_item(label))


THINGS = ["apples", "dollars", "$", "m", "cm^2", "miles per hour", "kg", "个", "元", "苹果", "小时"]


@given(st.sampled_from(THINGS), st.sampled_from(THINGS), st.sampled_from(["", "red ", "square "]))
def test_units_differ_from_each_other_and_not_from_themselves(a: str, b: str, word: str) -> None:
    assert not has_other_unit(a, a)
    assert not has_other_unit(a, "")
    assert has_other_unit(a, b) == has_other_unit(b, a)
    assert not has_other_unit(word + a, word + a)


SLOW = r"\int \sin(x^x)^{\tan(x)} e^{\cos(x)} \ln(x) dx"
HALF = Completion(r"\boxed{\frac{\sqrt{4}}{4}}")


OTHER_REWARD = MathEquality(workers=MathWorkers(2, cpu_limit_s=1.5))


def list_programs() -> set[int]:
    """Return the ids of the programs that this process has started and that run."""
    found = set[int]()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"math_workers.py" in (path / "cmdline").read_bytes():
                found.add(int(path.name))
    return found


def test_an_answer_that_takes_too_long_holds_up_no_other() -> None:
    items = [make_item(r"\int x dx"), *[make_item("0.5")] * 3]
    texts = [Completion(rf"\boxed{{{SLOW}}}"), *[HALF] * 3]
    assert OTHER_REWARD(items[1], HALF).value == 1.0
    done: list[int] = []

    def work(place: int) -> Score:
        score = OTHER_REWARD(items[place], texts[place])
        done.append(place)
        return score

    with ThreadPoolExecutor(2) as threads:
        scores = list(threads.map(work, range(4)))
    assert scores[0] == Score(0.0, "the marked answer is too slow", invalid=True)
    assert [score.value for score in scores[1:]] == [1.0] * 3
    assert done == [1, 2, 3, 0]
    assert OTHER_REWARD.score_batch(items[1:], texts[1:]) == scores[1:]


def test_processes_that_are_ended_or_stand_still_give_no_score() -> None:
    workers = MathWorkers(2)
    reward = MathEquality(workers=workers)
    item = make_item("0.5")
    for end, limit_s in ((signal.SIGKILL, 60.0), (signal.SIGSTOP, 0.2)):
        others = list_programs()
        assert reward(item, HALF).value == 1.0
        workers.wall_limit_s = limit_s
        (program,) = list_programs() - others
        os.killpg(program, end)
        got = reward(item, HALF)
        assert (got.value, got.invalid) == (None, False)
        assert list_programs() == others


def test_a_label_whose_reading_is_cut_off_is_no_error_of_the_data() -> None:
    reward = MathEquality(workers=MathWorkers(1, wall_limit_s=0.0001))
    item = make_item(r"\sqrt{2}")
    assert reward(item, HALF) == Score(None, r"reading the label \sqrt{2} timed out")
    assert reward.explain_unusable(item) is None


def test_a_program_that_cannot_work_is_an_error() -> None:
    with pytest.raises(RewardError, match="the process that compares mathematics ended"):
        MathEquality(workers=MathWorkers(1, memory_mib=20))(make_item("0.5"), HALF)


def test_forks_and_copies_have_processes_of_their_own_that_end_with_them() -> None:
    item = make_item("0.5")
    assert OTHER_REWARD(item, HALF).value == 1.0
    programs = list_programs()
    child = os.fork()
    if child == 0:
        is_right = OTHER_REWARD(item, HALF).value == 1.0
        os._exit(0 if is_right and len(list_programs()) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    copy = pickle.loads(pickle.dumps(OTHER_REWARD))
    assert copy(item, HALF).value == 1.0
    assert len(list_programs()) == len(programs) + 1
    del copy
    assert OTHER_REWARD(item, HALF).value == 1.0
    assert list_programs() == programs
