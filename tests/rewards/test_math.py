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
from corpora import read_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import MathEquality, MathParser, NumberParser
from groupwise.rewards.math_text import has_other_unit, write_plainly
from groupwise.rewards.math_workers import MathWorkers

CASES = read_cases(__file__)

DATA = Path(os.environ.get("GROUPWISE_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
REWARD = MathEquality()


def make_item(label: str | None) -> Example:
    return make_example([Message("user", "How many?")], cluster="g", label=label)


def score(text: str, label: str | None) -> Score:
    return REWARD(make_item(label), Completion(text))


@pytest.mark.parametrize(("text", "answer"), CASES["the_last_marked_answer_is_found"])
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


@pytest.mark.parametrize(("answer", "label"), CASES["equal_answers"])
def test_equal_answers(answer: str, label: str) -> None:
    got = score(f"\\boxed{{{answer}}}", label)
    assert (got.value, got.invalid) == (1.0, False)


@pytest.mark.parametrize(("answer", "label"), CASES["near_misses_earn_nothing"])
def test_near_misses_earn_nothing(answer: str, label: str) -> None:
    got = score(f"\\boxed{{{answer}}}", label)
    assert (got.value, got.invalid) == (0.0, False)


@pytest.mark.parametrize("answer", [r"\frac{", r"18 \\ 19", "∑∑", "+", "18 \\in {", "十八"])
def test_what_cannot_be_parsed_is_invalid(answer: str) -> None:
    got = score(f"#### {answer}", "18")
    assert (got.value, got.invalid) == (0.0, True)


@pytest.mark.parametrize(
    ("label", "problem"), CASES["a_label_that_cannot_be_read_is_an_error_of_the_data"]
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


@pytest.mark.parametrize(("text", "label", "prefix"), CASES["a_number_alone_is_an_answer"])
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


@pytest.mark.parametrize(("text", "label", "value"), CASES["numbers_are_measured_by_their_values"])
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


WORD_PROBLEMS = CASES["word_problems"]


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
