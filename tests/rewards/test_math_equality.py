import json
import os
import pickle
import signal
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.core import Completion, Example, Message, RewardError, Score, make_example
from groupwise.rewards import MathEquality, Reward
from groupwise.rewards.math_answers import clean_math_answer, find_math_answer
from groupwise.rewards.math_process import MathProcess

DATA = Path(os.environ.get("GROUPWISE_DATA", Path(__file__).parents[2] / ".." / "shared" / "data"))
REWARD = MathEquality()


def make_item(label: str | None) -> Example:
    return make_example([Message("user", "How many?")], group="g", label=label)


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
        ("#### 18 元", "18"),
        (r"\boxed{１８个苹果}", "18"),
        (r"\boxed{1 000 000}", "1000000"),
        ("#### \t1,000 \r\n", "1,000"),
    ],
)
def test_the_last_marked_answer_is_found(text: str, answer: str) -> None:
    assert find_math_answer(text) == (answer, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no answer in"),
        ("the answer is 7", "no answer in"),
        ("### 7", "no answer in"),
        (r"\boxed 7", "no answer in"),
        (r"\boxed{7", "braces"),
        (r"\boxed{1} \boxed{\frac{1}{2}", "braces"),
        (r"\boxed{}", "is empty"),
        ("####\n7", "is empty"),
        ("#### 1 8", "two numbers stand side by side"),
        ("#### 1 0000", "two numbers stand side by side"),
        ("#### 18 19", "two numbers stand side by side"),
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


def test_a_label_that_cannot_be_parsed_is_an_error() -> None:
    with pytest.raises(RewardError, match=r"is unparsable; got '\?\?\?'"):
        score("#### 1", "???")


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
    answer, _ = find_math_answer(f"#### {text}")
    if answer is not None and "####" not in text and "boxed" not in text:
        assert clean_math_answer(clean_math_answer(answer)) == clean_math_answer(answer)


@settings(max_examples=60)
@given(st.text(max_size=40))
def test_any_text_is_scored_in_range_and_invalid_never_pays(text: str) -> None:
    got = score(f"#### {text}", "7919")
    assert got.value in (0.0, 1.0)
    assert not (got.invalid and got.value)


SLOW = r"\boxed{\int \sin(x^x)^{\tan(x)} e^{\cos(x)} \ln(x) dx}"


def test_an_answer_that_takes_too_long_is_invalid_and_the_next_one_works() -> None:
    reward = MathEquality(MathProcess(cpu_limit_s=0.5))
    item = make_item(r"\int x dx")
    got = reward(item, Completion(SLOW))
    assert got == Score(0.0, "the marked answer is too slow", invalid=True)
    assert reward(make_item("18"), Completion("#### 18")).value == 1.0


def test_a_process_that_somebody_else_ends_gives_no_score() -> None:
    process = MathProcess()
    reward = MathEquality(process)
    assert reward(make_item("18"), Completion("#### 18")).value == 1.0
    os.kill(process._process.pid, signal.SIGKILL)
    got = reward(make_item("18"), Completion("#### 18"))
    assert (got.value, got.invalid) == (None, False)
    assert reward(make_item("18"), Completion("#### 18")).value == 1.0


def test_a_machine_that_stands_still_gives_no_score() -> None:
    process = MathProcess()
    reward = MathEquality(process)
    assert reward(make_item("18"), Completion("#### 18")).value == 1.0
    for label in ("18", "19"):
        process.wall_limit_s = 0.2
        os.kill(process._process.pid, signal.SIGSTOP)
        got = reward(make_item(label), Completion("#### 18"))
        assert (got.value, got.invalid) == (None, False)
        process.wall_limit_s = 60
        assert reward(make_item("18"), Completion("#### 18")).value == 1.0


def test_a_process_that_cannot_work_is_an_error() -> None:
    with pytest.raises(RewardError, match="the process that compares mathematics ended"):
        MathEquality(MathProcess(memory_mib=20))(make_item("18"), Completion("#### 18"))


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


def test_a_pickled_reward_and_a_forked_one_work() -> None:
    copy = pickle.loads(pickle.dumps(MathEquality(MathProcess(cpu_limit_s=3))))
    assert copy(make_item("18"), Completion("#### 18")).value == 1.0
    process = REWARD._process
    assert score("#### 18", "18").value == 1.0
    of_parent = process._process.pid
    child = os.fork()
    if child == 0:
        is_right = score("#### 19", "19").value == 1.0
        os._exit(0 if is_right and process._process.pid != of_parent else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert score("#### 18", "18").value == 1.0


def test_it_follows_the_protocol() -> None:
    assert isinstance(REWARD, Reward)


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
