import pytest
from sandbox_host import needs_bubblewrap

from groupwise.core import Completion, Message, make_example
from groupwise.rewards import CodeParser, CodeTests

TWO = "First\n```python\ndef add(a, b):\n    return a + b\n```\nand\n```\nadd(1, 2)\n```\n"


def make_item(**fields: object):
    return make_example([Message("user", "Write add(a, b).")], cluster="g", fields=fields)


def test_the_block_of_the_entry_point_is_the_program() -> None:
    found = CodeParser().parse(TWO, make_item(entry_point="add"))
    assert (found.label, found.prefix) == ("def add(a, b):\n    return a + b", "First\n")
    last = CodeParser().parse(TWO)
    assert last.label == "add(1, 2)"
    assert TWO[len(last.prefix) :].startswith("```\nadd(1, 2)")
    named = CodeParser(entry_point="name")
    assert named.parse(TWO, make_item(name="add")).label == found.label


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("I cannot write that.", "the program does not parse"),
        ("# nothing", "there is no program"),
        ("```python\n```", "there is no program"),
        ("x = '\ud800'", "the program does not parse"),
        ("```\ndef f(:\n```", "the program does not parse"),
    ],
)
def test_what_is_no_program_says_why(text: str, reason: str) -> None:
    assert reason in CodeParser().parse(text).reason


@needs_bubblewrap
def test_programs_are_measured_by_their_tests() -> None:
    example = make_item(tests="assert add(1, 2) == 3", entry_point="add")
    parser = CodeParser(tags=("think", "answer"))
    text = f"<think>Easy.</think><answer>{TWO}</answer>"
    assert parser.measure(example, text) == 1.0
    assert parser.measure(example, text.replace("a + b", "a - b")) == 0.0
    assert parser.measure(example, TWO) is None
    assert CodeTests(parser)(example, Completion(TWO)).reason == "<think> is missing"
