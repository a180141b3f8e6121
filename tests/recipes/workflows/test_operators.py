"""What operators are: signatures, what the policy reads of them, replies read into fields."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import ConfigError
from groupwise_recipes.workflows.operators import (
    OPERATORS,
    Operator,
    OperatorError,
    Session,
    describe_operators,
    read_reply,
    signatures,
)
from groupwise_recipes.workflows.operators.results import Answer, Code, Review


@dataclasses.dataclass
class Entry:
    text: str


async def look_up(session: Session, word: str, times: int = 1) -> Entry:
    """Look a word up.

    More is not for the policy.
    """
    return Entry(word * times)


async def without_docstring(word: str) -> str:
    return word


async def without_annotation(word) -> str:
    """Look up."""
    return word


def not_async(word: str) -> str:
    """Look up."""
    return word


def test_the_nine_operators_have_the_calls_of_the_specification():
    called = {name: list(s.parameters) for name, s in signatures(OPERATORS).items()}
    assert called == {
        "custom": ["input", "instruction"],
        "answer_generate": ["input"],
        "code_generate": ["problem", "entry_point", "instruction"],
        "programmer": ["problem", "analysis"],
        "sc_ensemble": ["solutions", "problem"],
        "test": ["problem", "solution", "entry_point"],
        "review": ["problem", "solution"],
        "revise": ["problem", "solution", "feedback"],
        "format": ["problem", "solution"],
    }


def test_the_policy_reads_call_fields_and_summary():
    described = describe_operators({"review": OPERATORS["review"], "look_up": look_up})
    assert described == (
        "review(problem: str, solution: str) -> .ok: bool, .feedback: str"
        "  # Say whether a solution is right, and why.\n"
        "look_up(word: str, times: int = 1) -> .text: str  # Look a word up."
    )


@pytest.mark.parametrize("function", [without_docstring, without_annotation, not_async])
def test_a_function_that_says_too_little_is_no_operator(function: Callable[..., Any]):
    with pytest.raises(ConfigError, match="async function with a docstring and annotations"):
        signatures({"look_up": function})


@pytest.mark.parametrize(
    ("args", "kwargs", "bound"),
    [
        (["a"], {}, {"word": "a", "times": 1}),
        ([3.5], {"times": 2}, {"word": "3.5", "times": 2}),
        ([], {}, "missing a required argument: 'word'"),
        (["a", 1, 2], {}, "too many positional arguments"),
        (["a"], {"often": 2}, "unexpected keyword argument 'often'"),
        ([["a"]], {}, "valid string"),
        ([None], {}, "valid string"),
        ([{"answer": "a"}], {}, "valid string"),
    ],
)
def test_arguments_are_checked(args: list[Any], kwargs: dict[str, Any], bound: Any):
    operator = Operator("look_up", look_up)
    if isinstance(bound, dict):
        assert operator.bind(args, kwargs) == bound
    else:
        with pytest.raises(OperatorError, match=bound):
            operator.bind(args, kwargs)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("<feedback>so</feedback>\n<ok> True </ok>", Review(True, "so")),
        ("<ok>false</ok>", Review(False, "")),
        ("<answer>4</answer>", Answer("4", "")),
        ("<thought>a <b> c</thought><answer>\n<x>4</x>\n</answer>", Answer("<x>4</x>", "a <b> c")),
        ("<code>\n```python\nx = 1\n```\n</code>", Code("x = 1")),
        ("<code>if a:\n    b\n</code>", Code("if a:\n    b")),
    ],
)
def test_replies_are_read_into_fields(text: str, read: object):
    assert read_reply(text, type(read)) == read


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<ok>yes</ok>", Review),
        ("True", Review),
        ("<answer>  </answer>", Answer),
        ("<thought>4</thought>", Answer),
        ("</answer>4<answer>", Answer),
        ("```python\nx\n```", Code),
    ],
)
def test_what_is_not_in_its_tags_is_no_reply(text: str, kind: type):
    with pytest.raises(OperatorError, match="the reply has"):
        read_reply(text, kind)


PIECES = st.sampled_from(("<ok>", "</ok>", "True", "false", "<feedback>", "</feedback>", "x\n"))


@given(text=st.lists(PIECES).map("".join))
def test_any_reply_is_fields_of_their_types_or_an_error(text: str):
    try:
        review = read_reply(text, Review)
    except OperatorError:
        return
    assert type(review.ok) is bool
    assert "<ok>" in text
