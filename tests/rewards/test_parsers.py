"""What every answer parser does, of all kinds and in tags: it reads back what it writes."""

import json
from dataclasses import replace
from typing import Any

import pytest
from corpora import read_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sandbox_host import needs_bubblewrap

from groupwise.core import (
    Completion,
    Config,
    ConfigError,
    Example,
    Message,
    RewardError,
    Score,
    load_config,
    make_example,
)
from groupwise.rewards import (
    AnswerFormat,
    AnswerParser,
    AnswerSettings,
    BatchReward,
    BoxIou,
    BoxParser,
    ChoiceParser,
    CodeParser,
    CodeTests,
    ExactMatch,
    HumanOverride,
    JsonParser,
    LabelMatch,
    LabelParser,
    MathEquality,
    MathParser,
    NumberParser,
    Reward,
    RewardSet,
    TextParser,
    VqaAccuracy,
)
from groupwise.rewards.reward import find_tags, write_tags

CASES = read_cases(__file__)

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
    ("answer", "message"), CASES["settings_that_are_none_are_refused_by_their_key"]
)
def test_settings_that_are_none_are_refused_by_their_key(
    answer: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(**answer)
    assert message in str(raised.value)


def test_whatever_can_be_seen_is_a_text():
    for text in ("\u200b", " \u2060\n", "\u0301", "\ufeff."):
        assert TextParser().parse(text).label is None
    for text in ("是", "7", "👍", "b\u200b"):
        assert TextParser().parse(text).label == text
    assert TextParser().parse(" True \n").label == "True"


ITEM = make_example([Message("user", "Is it true?")], cluster="g", label="True")
THINK = TextParser(tags=TAGS)


@pytest.mark.parametrize("text", CASES["what_has_the_tags_earns_all"])
def test_what_has_the_tags_earns_all(text: str) -> None:
    assert AnswerFormat(THINK)(ITEM, Completion(text)).value == 1.0


@pytest.mark.parametrize(("text", "reason"), CASES["anything_else_is_invalid_and_says_why"])
def test_anything_else_is_invalid_and_says_why(text: str, reason: str) -> None:
    assert AnswerFormat(THINK)(ITEM, Completion(text)) == Score(0.0, reason, invalid=True)


contents = st.text(max_size=30).filter(lambda text: text.strip() and "<" not in text)


@given(contents, contents)
def test_what_is_written_is_read_back_tags(first: str, second: str) -> None:
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


def test_the_prefix_goes_up_to_the_contents_of_the_last_tag() -> None:
    text = " <think>a</think>\n<answer>\n True </answer>"
    assert THINK.parse(text).prefix == " <think>a</think>\n<answer>\n "
    assert THINK.write("True") == "<think>…</think><answer>True</answer>"


SCHEMA = {
    "type": "object",
    "properties": {
        "判定": {"enum": ["合格", "不合格"]},
        "parts": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["判定"],
    "additionalProperties": False,
}
PARSER = JsonParser(json_schema=SCHEMA)


def make_item(label: str) -> Example:
    return make_example([Message("user", "?")], cluster="g", label=label)


@pytest.mark.parametrize(("text", "prefix"), CASES["one_value_has_one_spelling"])
def test_one_value_has_one_spelling(text: str, prefix: str) -> None:
    found = PARSER.parse(text)
    assert found.label == '{"parts": [1, 2], "判定": "合格"}'
    assert found.value == {"判定": "合格", "parts": [1, 2]}
    assert found.prefix == prefix
    assert PARSER.measure(make_item('{"判定":"合格","parts":[1,2]}'), text) == 1.0
    assert PARSER.measure(make_item('{"判定": "不合格", "parts": [1, 2]}'), text) == 0.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("合格", "no JSON"),
        ('So: {"判定": "合格"}', "no JSON"),
        ('{"判定": "合格"} {"判定": "合格"}', "no JSON"),
        ('```json\n{"判定": "合格"}\n``` done', "no JSON"),
        ("{'判定': '合格'}", "no JSON"),
        ('{"判定": "合格", "判定": "不合格"}', "a key appears twice"),
        ('{"判定": NaN}', "NaN is no number"),
        ('{"判定": 1e999}', "1e999 is too large"),
        ("[" * 100_000, "no JSON"),
        ('{"判定": "好"}', "JSON of another form at 判定"),
        ('{"判定": "合格", "parts": [1, "2"]}', "JSON of another form at parts/1"),
        ('{"判定": "合格", "note": 1}', "another form: "),
        ("{}", "another form: "),
        ("null", "another form: "),
    ],
)
def test_anything_else_is_no_answer_and_says_why(text: str, reason: str) -> None:
    found = PARSER.parse(text)
    assert found.label is None
    assert reason in found.reason
    assert PARSER.measure(make_item('{"判定": "合格"}'), text) is None


def test_without_a_schema_any_value_is_an_answer_and_true_is_not_1() -> None:
    assert JsonParser().measure(make_item("1"), "1.0") == 1.0
    assert JsonParser().measure(make_item("1"), "true") == 0.0
    assert JsonParser().measure(make_item('["a", "b"]'), '["b", "a"]') == 0.0
    with pytest.raises(ValueError, match=r"this is no JSON Schema .*at 'type'"):
        JsonParser(json_schema={"type": "objct"})


@pytest.mark.parametrize("label", ["合格", '{"判定": "好"}', ""])
def test_a_label_that_no_answer_can_give_is_an_error(label: str) -> None:
    with pytest.raises(RewardError, match="no answer can be"):
        PARSER.write(label)
    with pytest.raises(RewardError, match="a label that no answer can give"):
        LabelMatch(PARSER)(make_item(label), Completion('{"判定": "合格"}'))


ASKED = make_example([Message("user", "?")], cluster="g")


@pytest.mark.parametrize(
    ("reward", "there"),
    [
        (LabelMatch(LabelParser(labels=("a", "b"))), {"label": "a"}),
        (LabelMatch(ChoiceParser()), {"label": "A"}),
        (ExactMatch(), {"label": "x"}),
        (ExactMatch(), {"fields": {"answers": ["x"]}}),
        (MathEquality(), {"label": "1"}),
        (VqaAccuracy(), {"fields": {"answers": ["a", "b"]}}),
        (BoxIou(), {"fields": {"boxes": [[0, 0, 1, 1]]}}),
        (CodeTests(), {"fields": {"tests": "assert f() == 1", "entry_point": "f"}}),
        (HumanOverride(ExactMatch()), {"fields": {"human_label": "x"}}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_librarys_rewards_say_where_they_apply(reward: Reward, there: dict) -> None:
    assert isinstance(reward, Reward)
    if isinstance(reward, MathEquality | CodeTests):
        assert isinstance(reward, BatchReward)
        assert reward.explain_unusable(ASKED) is None
    rewards = RewardSet({"it": (reward, 1.0)})
    assert rewards.weigh(make_example([Message("user", "?")], cluster="g", **there)) == {"it": 1.0}
    assert rewards.weigh(ASKED) == {}


TWO = "First\n```python\ndef add(a, b):\n    return a + b\n```\nand\n```\nadd(1, 2)\n```\n"


def test_the_block_of_the_entry_point_is_the_program() -> None:
    item = make_example([Message("user", "Write add.")], cluster="g", fields={"entry_point": "add"})
    found = CodeParser().parse(TWO, item)
    assert (found.label, found.prefix) == ("def add(a, b):\n    return a + b", "First\n")
    last = CodeParser().parse(TWO)
    assert last.label == "add(1, 2)"
    assert TWO[len(last.prefix) :].startswith("```\nadd(1, 2)")
    assert CodeParser(entry_point="name").parse(TWO, item).label == last.label
    named = replace(item, fields={"name": "add"})
    assert CodeParser(entry_point="name").parse(TWO, named).label == found.label


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
    tests = {"tests": "assert add(1, 2) == 3", "entry_point": "add"}
    example = make_example([Message("user", "Write add.")], cluster="g", fields=tests)
    parser = CodeParser(tags=("think", "answer"))
    text = f"<think>Easy.</think><answer>{TWO}</answer>"
    assert parser.measure(example, text) == 1.0
    assert parser.measure(example, text.replace("a + b", "a - b")) == 0.0
    assert parser.measure(example, TWO) is None
    assert CodeTests(parser)(example, Completion(TWO)).reason == "<think> is missing"
