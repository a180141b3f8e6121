"""Programs, and their tests in every form that data sets have, run or refused."""

from typing import Any

import pytest
from corpora import read_cases
from sandbox_host import needs_bubblewrap

from groupwise.core import Completion, Example, Message, Score, make_example
from groupwise.rewards import CodeTests
from groupwise.rewards.code import compare_output
from groupwise.sandbox import Limits, explain_missing

CASES = read_cases(__file__)

pytestmark = needs_bubblewrap

RIGHT = "def double(x):\n    return 2 * x\n"
WRONG = "def double(x):\n    return x + 2\n"
NOTHING = "x = 1"
EXITS = "import os\nos._exit(0)"


def make_item(tests: object, prompt: str = "Write double.", **fields: object) -> Example:
    return make_example([Message("user", prompt)], cluster="g", fields={"tests": tests, **fields})


def score(example: Example, *texts: str, timeout_s: float = 5.0) -> list[Score]:
    reward = CodeTests(limits=Limits(timeout_s=timeout_s))
    return reward.score_batch([example] * len(texts), [Completion(text) for text in texts])


CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n"


def check(text: str, tests: object = CHECK) -> Score:
    return score(make_item(tests, entry_point="double"), text, timeout_s=2.0)[0]


FUNCTIONS = (
    "def test_two():\n    assert double(3) == 6\ndef test_five():\n    assert double(5) == 10\n"
)
CASE = """
import unittest
class TestDouble(unittest.TestCase):
    def setUp(self):
        self.found = double(3)
    def test_three(self):
        self.assertEqual(self.found, 6)
    def test_text(self):
        with self.assertRaises(ZeroDivisionError):
            double(1 / 0)
"""
IN_A_LOOP = "for given, wanted in [(3, 6), (5, 10)]:\n    assert double(given) == wanted"
FORMS: dict[str, Any] = {
    "functions": FUNCTIONS,
    "functions_that_are_called": f"{FUNCTIONS}test_two()\ntest_five()",
    "a_coroutine": "async def test_two():\n    assert double(3) == 6",
    "a_case": CASE,
    "a_case_of_a_case": f"{CASE}class TestMore(TestDouble):\n    pass",
    "a_case_with_main": f"{CASE}if __name__ == '__main__':\n    unittest.main()",
    "check": "def check(candidate):\n    assert candidate(3) == 6",
    "check_by_hand": "def check(f):\n    assert f(3) == 6\ncheck(double)",
    "check_once": f"done = []\n{CHECK}    assert not done\n    done.append(1)\ncheck(double)",
    "asserts": ["assert double(2) == 4", "assert double(3) == 6"],
    "in_a_loop": IN_A_LOOP,
    "by_a_helper": "def expect(a, b):\n    assert double(a) == b\nexpect(3, 6)",
    "by_a_helper_test": "def test(a, b):\n assert a == b\ndef main():\n test(double(3), 6)\nmain()",
    "check_in_a_function": "def check(f):\n    assert f(3) == 6\ndef test_it():\n    check(double)",
    "from_the_future": f"from __future__ import annotations\n{CASE}",
    "by_a_match": "match double(3):\n  case 6: pass\n  case other:\n    assert other == 6",
    "exits": "import sys\nif double(3) != 6:\n    sys.exit(1)",
    "raises": "if double(3) != 6:\n    raise ValueError('no')",
}


@pytest.mark.parametrize("form", FORMS)
def test_whatever_tests_define_is_run(form: str) -> None:
    example = make_item(FORMS[form], entry_point="double")
    found = score(example, RIGHT, WRONG, NOTHING, EXITS)
    assert [(s.value, s.invalid) for s in found] == [(1.0, False)] + [(0.0, False)] * 3, found


PRINTS = "n = int(input())\nprint(*[str(2 * int(input())) + ' ' for _ in range(n)], sep='\\n')"
MAIN = f"def main():\n    {PRINTS}\nif __name__ == '__main__':\n    main()".replace(
    "\npr", "\n    pr"
)
TABLE = {"inputs": ["2\n3\n5\n", ["1", "4"]], "outputs": ["6\n10\n", ["8"]]}


@pytest.mark.parametrize("tests", CASES["a_program_reads_inputs_and_prints_outputs"])
def test_a_program_reads_inputs_and_prints_outputs(tests: object) -> None:
    right = [PRINTS, f"{PRINTS}\nexit()", MAIN]
    wrong = [PRINTS.replace("2 *", "3 *"), f"{PRINTS}\nprint(1)", f"{PRINTS}\n1 / 0"]
    found = score(make_item(tests), *right, *wrong, NOTHING, EXITS)
    assert [s.value for s in found] == [1.0] * 3 + [0.0] * 5, found
    assert found[3].reason == "failed (input 1 of 2: line 1 differs)"


UNUSABLE = {name: row for name, *row in CASES["unusable"]}


@pytest.mark.parametrize("name", UNUSABLE)
def test_tests_that_cannot_decide_score_nothing_whatever_the_program(name: str) -> None:
    tests, reason = UNUSABLE[name]
    example = make_item(tests, entry_point="double")
    found = score(example, RIGHT, WRONG, NOTHING, "?")
    assert [s.value for s in found] == [None] * 4, found
    assert {s.reason for s in found} == {CodeTests().explain_unusable(example)}
    assert found[0].reason.startswith(reason)


@pytest.mark.parametrize("entry_point", ["a b", 3])
def test_an_entry_point_that_is_no_name_is_unusable(entry_point: object) -> None:
    example = make_item(FUNCTIONS, entry_point=entry_point)
    assert "is no name" in str(CodeTests().explain_unusable(example))


def test_check_without_an_entry_point_takes_that_of_the_prompt_or_is_unusable() -> None:
    tests = FORMS["check"]
    prompt = "def half(x): ...\n\ndef double(x):\n    '''Double it.'''\n"
    assert [s.value for s in score(make_item(tests, prompt), RIGHT, WRONG)] == [1.0, 0.0]
    assert "no entry point" in score(make_item(tests), RIGHT)[0].reason


@pytest.mark.parametrize(("solution", "value"), CASES["a_reference_solution_has_to_pass"])
def test_a_reference_solution_has_to_pass(solution: str, value: float | None) -> None:
    found = score(make_item("assert double(3) == 6", solution=solution), RIGHT)[0]
    assert found.value == value
    if value is None:
        assert found.reason.startswith("the reference solution does not pass: failed (AssertionE")


def test_a_reference_that_does_not_parse_does_not_pass() -> None:
    found = score(make_item(TABLE, solution="def f(:"), PRINTS)[0]
    assert (found.value, "SyntaxError" in found.reason) == (None, True)


def test_a_label_that_is_a_program_is_a_reference() -> None:
    def make(label: str) -> Example:
        prompt = [Message("user", "double")]
        return make_example(prompt, cluster="g", label=label, fields={"tests": FUNCTIONS})

    assert CodeTests().explain_unusable(make(WRONG))
    assert CodeTests().explain_unusable(make(RIGHT)) is None
    assert CodeTests().explain_unusable(make("42")) is None


def test_a_reference_shows_names_and_builtins_that_tests_use() -> None:
    reference = (
        "import enum\ndef sum(a, b):\n    return helper(a) + b\ndef helper(a):\n    return a"
    )
    example = make_item("assert sum(1, 2) == 3 and helper(1) == 1", "Add.", solution=reference)
    assert [s.value for s in score(example, reference, "def sum(a, b): return 3")] == [1.0, 0.0]


def test_modules_that_tests_forgot_are_imported_for_them() -> None:
    example = make_item("assert math.isclose(double(3), 6)", entry_point="double")
    assert [s.value for s in score(example, RIGHT, WRONG)] == [1.0, 0.0]


def test_no_program_makes_its_tests_unusable() -> None:
    example = make_item("assert double(3) == 6", entry_point="double")
    found = score(example, "import os as double", "import queue as double\n", "raise SystemExit")
    assert [s.value for s in found] == [0.0, 0.0, 0.0], found


def test_usability_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise.rewards import code

    read: list[str] = []
    prepare_tests = code.prepare_tests

    def prepare(source: str, *args: Any, **kwargs: Any) -> Any:
        read.append(source)
        return prepare_tests(source, *args, **kwargs)

    monkeypatch.setattr(code, "prepare_tests", prepare)
    example = make_item("assert double(3) == 6", entry_point="double")
    reward = CodeTests()
    assert reward.score_batch([example] * 3, [Completion(RIGHT)] * 3)[2].value == 1.0
    assert reward.explain_unusable(example) is None
    assert len(read) == 1


@pytest.mark.parametrize(
    ("found", "wanted", "is_same"), CASES["outputs_are_compared_by_lines_and_numbers"]
)
def test_outputs_are_compared_by_lines_and_numbers(found: str, wanted: str, is_same: bool) -> None:
    assert (compare_output(found, wanted) == "") == is_same


@pytest.mark.parametrize("text", CASES["a_program_that_passes_earns_all"])
def test_a_program_that_passes_earns_all(text: str) -> None:
    assert check(text) == Score(1.0, "it passes its tests")


@pytest.mark.parametrize(("text", "reason"), CASES["a_program_that_fails_earns_nothing"])
def test_a_program_that_fails_earns_nothing(text: str, reason: str) -> None:
    found = check(text)
    assert (found.value, found.invalid) == (0.0, False)
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(
    "text",
    ["", "  \n", "# only words", "The answer is 4.", "```python\n```", "def double(x:", "\0"],
)
def test_what_does_not_parse_is_invalid(text: str) -> None:
    found = check(text)
    assert (found.value, found.invalid) == (0.0, True)


def test_without_tests_there_is_no_score() -> None:
    bare = make_example([Message("user", "Double it.")], cluster="g")
    assert CodeTests()(bare, Completion(RIGHT)) == Score(None, "no tests")
    assert CodeTests().explain_unusable(bare) is None


TWO_TIMES = "assert double(double(1)) == 4"
TWICE = "items = [2]\ndouble(items)\nassert double(items) == [2, 2]\n"


@pytest.mark.parametrize(("text", "tests"), CASES["no_program_has_its_score_taken_away"])
def test_no_program_has_its_score_taken_away(text: str, tests: str) -> None:
    """A program that cannot pass would rather have no score than 0."""
    assert check(text, tests).value == 0.0


MONEY = """
class Money:
    def __init__(self, amount): self.amount = amount
    def __eq__(self, other): return self.amount == other.amount
"""


def test_what_only_the_program_makes_unprovable_earns_nothing_where_the_reference_passes() -> None:
    tests = (
        "a = Money(2)\nassert a.amount == 2 and a == Money(2) and a == a.amount * Money(1).amount"
    )
    wrong = MONEY.replace("self.amount == other.amount", "True")
    plain = "a = Money(2)\nassert a == Money(2) and not (a == 4)"
    right = MONEY.replace("other.amount", "getattr(other, 'amount', None)")
    item = make_item(plain, "class Money", solution=right)
    assert [found.value for found in score(item, right, wrong, right)] == [1.0, 0.0, 1.0]
    assert score(make_item(tests, "Money"), wrong)[0].value is None


def test_what_the_sandbox_refuses_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    explain_missing.cache_clear()
    try:
        found = check("import re\n" + RIGHT)
    finally:
        explain_missing.cache_clear()
    assert found.value is None
    assert "apt-get install -y bubblewrap" in found.reason
