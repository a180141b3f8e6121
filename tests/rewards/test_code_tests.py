import pytest
from sandbox_host import needs_bubblewrap

from groupwise.core import Completion, Example, Message, Score, make_example
from groupwise.rewards import BatchReward, CodeTests, Reward
from groupwise.sandbox import Limits, explain_missing

pytestmark = needs_bubblewrap

CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n"
RIGHT = "def double(x):\n    return 2 * x\n"
WRONG = "def double(x):\n    return x + 2\n"


def make_item(tests: object = CHECK, entry_point: object = "double") -> Example:
    fields = {"tests": tests, "entry_point": entry_point}
    given = {name: value for name, value in fields.items() if value is not None}
    return make_example([Message("user", "Double it.")], cluster="g", fields=given)


def score(text: str, *args: object) -> Score:
    return CodeTests(limits=Limits(timeout_s=2.0))(make_item(*args), Completion(text))


@pytest.mark.parametrize(
    "text",
    [
        RIGHT,
        f"Here it is:\n```python\n{RIGHT}```\nDone.",
        f"```\n{RIGHT}```",
        f"~~~py\n{RIGHT}~~~",
        f"```python\n{RIGHT}",
        f"```python\n{WRONG}```\nNo, wait:\n```python\n{RIGHT}```",
        f"```python\n{RIGHT}```\nFor example:\n```python\nprint(double(3))\n```",
        f"```bash\nls\n```\n```python\n{RIGHT}```",
    ],
)
def test_a_program_that_passes_earns_all(text: str) -> None:
    assert score(text) == Score(1.0, "it passes its tests")


@pytest.mark.parametrize("text", [WRONG, f"```python\n{RIGHT}```\nBetter:\n```python\n{WRONG}```"])
def test_a_program_that_fails_earns_nothing(text: str) -> None:
    found = score(text)
    assert (found.value, found.invalid) == (0.0, False)
    assert found.reason.startswith("failed (AssertionError")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def double(x):\n    while True: pass", "timeout"),
        ("def other(x):\n    return 2 * x", "failed (NameError: name 'double' is not defined)"),
        ("import os\nos._exit(0)", "crashed"),
        ("while True: print('x' * 1000)", "output"),
        ("x = 'a' * 10**11", "memory (MemoryError)"),
    ],
)
def test_other_ends_earn_nothing(text: str, reason: str) -> None:
    found = score(text)
    assert (found.value, found.invalid) == (0.0, False)
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(
    "text",
    ["", "  \n", "# only words", "The answer is 4.", "```python\n```", "def double(x:", "\0"],
)
def test_what_does_not_parse_is_invalid(text: str) -> None:
    found = score(text)
    assert (found.value, found.invalid) == (0.0, True)


def test_without_tests_there_is_no_score() -> None:
    assert CodeTests()(make_item(None), Completion(RIGHT)) == Score(None, "no tests")
    assert CodeTests().explain_unusable(make_item(None)) is None


def test_a_list_of_tests_is_run_as_one() -> None:
    assert score(RIGHT, ["assert double(1) == 2", "assert double(2) == 4"], None).value == 1.0
    assert score(RIGHT, ["assert double(1) == 2", "assert double(2) == 5"], None).value == 0.0


def test_a_check_that_is_called_is_not_called_again() -> None:
    tests = f"done = []\n{CHECK}    assert not done\n    done.append(1)\ncheck(double)"
    assert score(RIGHT, tests).value == 1.0


TWO_TIMES = "assert double(double(1)) == 4"
TWICE = "items = [2]\ndouble(items)\nassert double(items) == [2, 2]\n"


@pytest.mark.parametrize(
    ("text", "tests"),
    [
        ("import os as double", CHECK),
        ("import enum as double", CHECK),
        ("import os\ndef double(x): return os", CHECK),
        ("def double(x): return double", CHECK),
        ("def double(f): return f(f)", "assert double(lambda f: double(f)) == 4"),
        ("def double(f): return double(f, f)", "assert double(lambda: 1) == 4"),
        ("def double(f): return f.secret", "assert double(lambda: 2) == 4"),
        ("def double(x): x.append(x)\n", TWICE),
        ("def double(x): x.append((x,))\n", TWICE),
        ("def double(x):\n for _ in range(400): x = [x]\n return x", TWO_TIMES),
        ("def double(x): return open('/tmp/a', 'w')", TWO_TIMES),
        ("def double(x): return iter([x])", TWO_TIMES),
        ("class Double: pass\ndef double(x): return Double", CHECK),
    ],
)
def test_no_program_has_its_score_taken_away(text: str, tests: str) -> None:
    """A program that cannot pass would rather have no score than 0."""
    assert score(text, tests).value == 0.0


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
    rewards = CodeTests(limits=Limits(timeout_s=2.0))
    item = make_example(
        [Message("user", "class Money")], cluster="g", fields={"tests": plain, "solution": right}
    )
    assert rewards(item, Completion(right)).value == 1.0
    assert rewards(item, Completion(wrong)).value == 0.0
    unproven = make_example([Message("user", "Money")], cluster="g", fields={"tests": tests})
    assert rewards(unproven, Completion(wrong)).value is None


def test_what_the_sandbox_refuses_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    explain_missing.cache_clear()
    try:
        found = score("import re\n" + RIGHT)
    finally:
        explain_missing.cache_clear()
    assert found.value is None
    assert "apt-get install -y bubblewrap" in found.reason


def test_a_batch_is_scored_in_order() -> None:
    reward = CodeTests(num_workers=2)
    assert isinstance(reward, Reward)
    assert isinstance(reward, BatchReward)
    texts = [RIGHT, WRONG, "?", RIGHT]
    scores = reward.score_batch([make_item()] * 4, [Completion(text) for text in texts])
    assert [s.value for s in scores] == [1.0, 0.0, 0.0, 1.0]
