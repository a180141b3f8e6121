import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from groupwise.core import Completion, Message, Score, make_example
from groupwise.rewards import AnswerFormat, TextParser
from groupwise.rewards.parser import find_tags, write_tags

ITEM = make_example([Message("user", "Is it true?")], cluster="g", label="True")
TAGS = ("think", "answer")
THINK = TextParser(tags=TAGS)


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>True</answer>",
        " \n<think>\na\n</think>\n\n<answer> True </answer>\n",
        "<think>看图</think><answer>对</answer>",
        "<think>a < b, <b>bold</b></think><answer>False</answer>",
    ],
)
def test_what_has_the_tags_earns_all(text: str) -> None:
    assert AnswerFormat(THINK)(ITEM, Completion(text)).value == 1.0


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
        ("<think>a</think><answer>T</answer><answer>F</answer>", "<answer> appears 2 times"),
        ("<think><think>a</think></think><answer>T</answer>", "<think> appears 2 times"),
        ("<answer>T</answer><think>a</think>", "<answer> is before </think>"),
        ("<think>a<answer>T</answer></think>", "<answer> is before </think>"),
        ("</think>a<think><answer>T</answer>", "</think> is before <think>"),
        ("Sure! <think>a</think><answer>T</answer>", "there is text before <think>"),
        ("<think>a</think> so <answer>T</answer>", "there is text before <answer>"),
        ("<think>a</think><answer>T</answer> Done.", "there is text after </answer>"),
        ("<think> </think><answer>T</answer>", "<think> is empty"),
        ("<think>a</think><answer></answer>", "<answer> is empty"),
        ("<THINK>a</THINK><answer>T</answer>", "<think> is missing"),
    ],
)
def test_anything_else_is_invalid_and_says_why(text: str, reason: str) -> None:
    assert AnswerFormat(THINK)(ITEM, Completion(text)) == Score(0.0, reason, invalid=True)


contents = st.text(max_size=30).filter(lambda text: text.strip() and "<" not in text)


@given(contents, contents)
def test_what_is_written_is_read_back(first: str, second: str) -> None:
    text = write_tags({"analysis": first, "true_false": second})
    places, problem = find_tags(text, ("analysis", "true_false"))
    assert problem == ""
    assert [text[slice(*place)] for place in places.values()] == [first.strip(), second.strip()]


pieces = st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "a", " ", "\n", "<", ">"])


@given(st.lists(pieces, max_size=10).map("".join))
def test_only_one_shape_is_valid(text: str) -> None:
    import re

    shape = re.fullmatch(
        r"\s*<think>(.+?)</think>\s*<answer>(.+?)</answer>\s*", text, flags=re.DOTALL
    )
    marks = [text.count(mark) for mark in ("<think>", "</think>", "<answer>", "</answer>")]
    is_valid = bool(shape and marks == [1] * 4 and all(part.strip() for part in shape.groups()))
    places, problem = find_tags(text, TAGS)
    assert (problem == "") == bool(places) == is_valid


@pytest.mark.parametrize("tags", [("a", "a"), ("a b",), ("",), ("1",), ("a>",)])
def test_tags_that_cannot_be_told_apart_are_refused(tags: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        TextParser(tags=tags)


def test_without_tags_the_whole_text_is_the_answer() -> None:
    assert TextParser().parse(" True \n").label == "True"
    assert TextParser().parse(" \n").reason == "empty answer"


def test_the_prefix_goes_up_to_the_contents_of_the_last_tag() -> None:
    text = " <think>a</think>\n<answer>\n True </answer>"
    assert THINK.parse(text).prefix == " <think>a</think>\n<answer>\n "
    assert THINK.write("True") == "<think>…</think><answer>True</answer>"
