import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from groupwise.core import Completion, Message, Score, make_example
from groupwise.rewards import TagContract, TagFormat
from groupwise.rewards.tags import read_answer

ITEM = make_example([Message("user", "Is it true?")], group="g", label="True")
THINK = TagContract()
JUDGE = TagContract(tags=("analysis", "true_false"))


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>True</answer>",
        " \n<think>\na\n</think>\n\n<answer> True </answer>\n",
        "<think>看图</think><answer>对</answer>",
        "<think>a < b, <b>bold</b></think><answer>False</answer>",
    ],
)
def test_what_follows_the_contract_earns_all(text: str) -> None:
    assert TagFormat(THINK)(ITEM, Completion(text)).value == 1.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty answer"),
        (" \n", "empty answer"),
        ("True", "<think> is missing"),
        ("<answer>True</answer>", "<think> is missing"),
        ("<think>a<answer>True</answer>", "</think> is missing"),
        ("<think>a</think>True", "<answer> is missing"),
        ("<think>a</think><answer>True", "</answer> is missing"),
        ("<think>a</think><answer>T</answer><answer>F</answer>", "<answer> stands 2 times"),
        ("<think><think>a</think></think><answer>T</answer>", "<think> stands 2 times"),
        ("<answer>T</answer><think>a</think>", "<answer> stands before </think>"),
        ("<think>a<answer>T</answer></think>", "<answer> stands before </think>"),
        ("</think>a<think><answer>T</answer>", "</think> stands before <think>"),
        ("Sure! <think>a</think><answer>T</answer>", "text stands before <think>"),
        ("<think>a</think> so <answer>T</answer>", "text stands before <answer>"),
        ("<think>a</think><answer>T</answer> Done.", "text stands after </answer>"),
        ("<think> </think><answer>T</answer>", "<think> is empty"),
        ("<think>a</think><answer></answer>", "<answer> is empty"),
        ("<THINK>a</THINK><answer>T</answer>", "<think> is missing"),
    ],
)
def test_anything_else_is_invalid_and_says_why(text: str, reason: str) -> None:
    assert TagFormat(THINK)(ITEM, Completion(text)) == Score(0.0, reason, invalid=True)


contents = st.text(max_size=30).filter(lambda text: text.strip() and "<" not in text)


@given(contents, contents)
def test_what_is_written_is_read_back(first: str, second: str) -> None:
    text = JUDGE.write(first, second)
    assert JUDGE.parse(text).parts == {"analysis": first.strip(), "true_false": second.strip()}
    assert read_answer(text, JUDGE) == (second.strip(), "")


pieces = st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "a", " ", "\n", "<", ">"])


@given(st.lists(pieces, max_size=10).map("".join))
def test_only_one_shape_is_valid(text: str) -> None:
    import re

    shape = re.fullmatch(
        r"\s*<think>(.+?)</think>\s*<answer>(.+?)</answer>\s*", text, flags=re.DOTALL
    )
    marks = [text.count(mark) for mark in ("<think>", "</think>", "<answer>", "</answer>")]
    is_valid = bool(shape and marks == [1] * 4 and all(part.strip() for part in shape.groups()))
    tagged = THINK.parse(text)
    assert (tagged.reason == "") == is_valid
    assert bool(tagged.parts) == is_valid


@pytest.mark.parametrize("tags", [(), ("a", "a"), ("a b",), ("",), ("1",), ("a>",)])
def test_tags_that_cannot_be_told_apart_are_refused(tags: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        TagContract(tags=tags)


def test_without_a_contract_the_whole_text_is_the_answer() -> None:
    assert read_answer(" True \n", None) == ("True", "")
    assert read_answer(" \n", None) == (None, "empty answer")
