"""Labels as collections of word problems have them: a number and what is counted or measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, Message, Score, make_example
from groupwise.rewards import MathEquality
from groupwise.rewards.math_units import has_other_unit

REWARD = MathEquality()

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


def score(text: str, label: str) -> Score:
    return REWARD(make_example([Message("user", "?")], cluster="g", label=label), Completion(text))


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
    item = make_example([Message("user", "?")], cluster="g", label=label)
    got = REWARD(item, Completion(f"#### {label}"))
    assert got.value == 1.0 or got.invalid or REWARD.explain_unusable(item)


THINGS = ["apples", "dollars", "$", "m", "cm^2", "miles per hour", "kg", "个", "元", "苹果", "小时"]


@given(st.sampled_from(THINGS), st.sampled_from(THINGS), st.sampled_from(["", "red ", "square "]))
def test_units_differ_from_each_other_and_not_from_themselves(a: str, b: str, word: str) -> None:
    assert not has_other_unit(a, a)
    assert not has_other_unit(a, "")
    assert has_other_unit(a, b) == has_other_unit(b, a)
    assert not has_other_unit(word + a, word + a)
