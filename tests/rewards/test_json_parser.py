import pytest

from groupwise.core import Completion, Example, Message, RewardError, make_example
from groupwise.rewards import JsonParser, LabelMatch

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


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ('{"判定": "合格", "parts": [1, 2]}', ""),
        (' {"parts":[1,2.0],"判定":"合格"}\n', " "),
        ('{"parts": [1e0, 2], "判定": "\\u5408格"}', ""),
        ('```json\n{"判定": "合格", "parts": [1, 2]}\n```', "```json\n"),
        ('```\n{"判定": "合格",\n "parts": [1, 2]}\n```\n', "```\n"),
    ],
)
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


@pytest.mark.parametrize("label", ["合格", '{"判定": "好"}', ""])
def test_a_label_that_no_answer_can_give_is_an_error(label: str) -> None:
    with pytest.raises(RewardError, match="no answer can be"):
        PARSER.write(label)
    with pytest.raises(RewardError, match="a label that no answer can give"):
        LabelMatch(PARSER)(make_item(label), Completion('{"判定": "合格"}'))


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"this is no JSON Schema .*at 'type'"):
        JsonParser(json_schema={"type": "objct"})
