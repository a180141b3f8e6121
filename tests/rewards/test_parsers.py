"""What every answer parser does, of all kinds and in tags: it reads back what it writes."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.core import Completion, Config, ConfigError, Message, load_config, make_example
from groupwise.rewards import (
    AnswerFormat,
    AnswerParser,
    AnswerSettings,
    BoxParser,
    ChoiceParser,
    CodeParser,
    JsonParser,
    LabelParser,
    MathParser,
    NumberParser,
    TextParser,
)

TAGS = ("think", "answer")
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="<")
NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(LETTERS, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(
        LETTERS, max_size=3), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-(10**9), 10**9).map(str),
    st.decimals(-1000, 1000, places=2).map("{:f}".format),
    st.fractions(-50, 50, max_denominator=50).map(str),
    st.integers(0, 100).map("{}%".format),
    st.integers(1, 9999).map("{} dollars".format),
    st.integers(1, 9999).map("{} 元".format),
)
SIDES = st.tuples(*[st.integers(0, 99)] * 2, *[st.integers(100, 999)] * 2)
WORDS = st.text(LETTERS, max_size=8)
PROGRAMS = st.sampled_from(
    ["def f():\n    return 1", "x = '''\n```\n'''", "print('~~~~')", "# 中文\nf = lambda: '好'"]
)
KINDS: dict[str, tuple[AnswerParser, st.SearchStrategy[str]]] = {
    "labels": (
        LabelParser(labels=("合格", "不合格", "on-task")),
        st.sampled_from(["合格", "不合格", "on-task"]),
    ),
    "choice": (ChoiceParser(), st.sampled_from("ABCD")),
    "choices": (
        ChoiceParser(several=True),
        st.sets(st.sampled_from("ABCD"), min_size=1).map(sorted).map(", ".join),
    ),
    "number": (NumberParser(), NUMBERS),
    "maths": (MathParser(), NUMBERS | st.sampled_from([r"\frac{1}{2}", "x^{2}+1", "(1, 2)"])),
    "text": (TextParser(), WORDS.map("7 {}".format)),
    "json": (JsonParser(), NESTED.map(lambda value: json.dumps(value, ensure_ascii=False))),
    "code": (CodeParser(), PROGRAMS),
    "boxes": (
        BoxParser(),
        st.lists(SIDES | st.tuples(SIDES, WORDS).map(lambda pair: (*pair[0], pair[1])), max_size=4)
        .map(json.dumps),
    ),
}  # fmt: skip
every_kind = pytest.mark.parametrize("kind", KINDS)
in_tags = pytest.mark.parametrize("tags", [(), TAGS], ids=["whole", "tags"])


def open_parser(kind: str, tags: tuple[str, ...]) -> AnswerParser:
    return KINDS[kind][0].model_copy(update={"tags": tags})


@every_kind
@in_tags
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_written_is_read_back(kind: str, tags: tuple[str, ...], data: Any) -> None:
    parser = open_parser(kind, tags)
    target = data.draw(KINDS[kind][1])
    text = parser.write(target)
    found = parser.parse(text)
    assert found.label is not None
    assert found.reason == ""
    assert text.startswith(found.prefix)
    assert parser.write(found.label) == text
    assert parser.parse(f" {text}\n").label == found.label


@every_kind
@in_tags
@settings(max_examples=40)
@given(data=st.data())
def test_no_text_raises_and_one_that_is_no_answer_says_why(
    kind: str, tags: tuple[str, ...], data: Any
) -> None:
    parser = open_parser(kind, tags)
    pieces = ["<think>", "</think>", "<answer>", "</answer>", "A", "42", "合格", "\\boxed{", "}"]
    pieces += ["#### ", "```", "\n", '{"bbox_2d": [1, 2', "]", "[", '"', "def f", "：", "\ud800"]
    text = data.draw(st.text() | st.lists(st.sampled_from(pieces), max_size=8).map("".join))
    found = parser.parse(text)
    assert (found.label is None) == bool(found.reason)
    assert text.startswith(found.prefix)
    assert found.label is not None or found.prefix == ""


@pytest.mark.fuzz
@settings(max_examples=100)
@given(data=st.data())
def test_right_answers_with_something_wrong_are_read_or_say_why(data: Any) -> None:
    kind, tags = data.draw(st.sampled_from(list(KINDS))), data.draw(st.sampled_from([(), TAGS]))
    parser = open_parser(kind, tags)
    text = data.draw(disturb(parser.write(data.draw(KINDS[kind][1]))))
    found = parser.parse(text)
    assert (found.label is None) == bool(found.reason)
    assert text.startswith(found.prefix)
    if found.label is not None:
        assert parser.parse(parser.write(found.label)).label == found.label
        assert parser.parse(text) == found


def disturb(text: str) -> st.SearchStrategy[str]:
    """Draw a text with a few pieces of it doubled, left out, moved or replaced by odd ones."""
    place = st.integers(0, len(text))
    odd = st.text(max_size=4) | st.sampled_from(
        ["\0", "\u202e", "\ud800", "１", "\u2028", "{" * 50]
    )
    piece = st.tuples(place, place).map(lambda ends: text[min(ends) : max(ends)]) | odd
    return st.lists(piece, max_size=5).map("".join) | st.tuples(place, odd).map(
        lambda pair: text[: pair[0]] + pair[1] + text[pair[0] :]
    )


COMPARED = [kind for kind in KINDS if kind not in ("code", "boxes")]


@pytest.mark.parametrize("kind", COMPARED)
@in_tags
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_what_is_written_is_measured_as_right(kind: str, tags: tuple[str, ...], data: Any) -> None:
    parser = open_parser(kind, tags)
    targets = KINDS[kind][1]
    right, other = data.draw(targets), data.draw(targets)
    example = make_example([Message("user", "?")], cluster="g", label=right)
    assert parser.measure(example, parser.write(right)) == 1.0
    assert parser.measure(example, parser.write(other)) in (0.0, 1.0)
    assert parser.measure(example, "") is None


@every_kind
def test_a_blank_text_is_no_answer(kind: str) -> None:
    for text in ("", " \n", "\u3000"):
        assert open_parser(kind, ()).parse(text).reason == "empty answer"


@every_kind
def test_the_answer_is_the_last_tags_and_nothing_stands_beside_it(kind: str) -> None:
    parser = open_parser(kind, TAGS)
    example = make_example([Message("user", "?")], cluster="g")
    target = {"labels": "合格", "code": "f()", "boxes": "[[1, 2, 3, 4]]", "choices": "A"}
    text = parser.write(target.get(kind, "D" if kind == "choice" else "1"))
    assert AnswerFormat(parser)(example, Completion(text)).value == 1.0
    for broken in (f"So: {text}", f"{text} Done.", text.removesuffix("</answer>"), text * 2):
        assert parser.parse(broken).label is None


class Answering(Config):
    answer: AnswerSettings


def load(**answer: object) -> AnswerParser:
    return load_config(Answering, {"answer": answer}).answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"kind": "labels", "labels": ["合格", "不合格"]}, LabelParser(labels=("合格", "不合格"))),
        ({"kind": "choice", "num_options": 5}, ChoiceParser(num_options=5)),
        ({"kind": "number", "tags": TAGS}, NumberParser(tags=TAGS)),
        ({"kind": "maths"}, MathParser()),
        ({"kind": "text"}, TextParser()),
        ({"kind": "json", "json_schema": {"type": "object"}}, JsonParser(
            json_schema={"type": "object"})),
        ({"kind": "code"}, CodeParser()),
        ({"kind": "boxes", "match_labels": True}, BoxParser(match_labels=True)),
    ],
)  # fmt: skip
def test_a_config_chooses_a_parser(answer: dict[str, object], expected: AnswerParser) -> None:
    found = load(**answer)
    assert found == expected
    assert type(found) is type(expected)
    assert hash(found) == hash(expected)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({}, "answer.kind: missing"),
        ({"kind": "lables"}, "answer.kind: there is no 'lables'; did you mean 'labels'?"),
        ({"kind": "labels"}, "answer.labels: missing"),
        ({"kind": "choice", "labels": ["a", "b"]}, "answer.labels: unknown key"),
        ({"kind": "text", "tag": ["a"]}, "answer.tag: unknown key; did you mean 'tags'?"),
        ({"kind": "text", "tags": ["a b"]}, "answer.tags: 'a b' cannot be a tag"),
    ],
)
def test_settings_that_are_none_are_refused_by_their_key(
    answer: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(**answer)
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["\u200b", " \u2060\n", "\u0301", "\ufeff."])
def test_what_cannot_be_seen_is_no_text(text: str):
    assert TextParser().parse(text).label is None


@pytest.mark.parametrize("text", ["是", "7", "👍", "b\u200b"])
def test_whatever_can_be_seen_is_a_text(text: str):
    assert TextParser().parse(text).label == text
