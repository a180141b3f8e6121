"""The answer parser of Stage B: which replies have a verdict, which have the two-line form."""

import pytest
from group_words import PARSER, VERDICTS
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Message, RewardError, make_example

REASONS = st.text(min_size=1).filter(
    lambda text: len(text.splitlines()) == 1 and text.strip() and text.isprintable()
)


@pytest.mark.parametrize(
    ("text", "verdict", "reason"),
    [
        ("通过\n理由: 接地线已连接", "通过", "接地线已连接"),
        ("不通过\n理由：未见接地线", "不通过", "未见接地线"),
        ("不通过\n理由：未见接地线 \n\t ", "不通过", "未见接地线"),
        ("通过\r\n理由：好\r\n", "通过", "好"),
        ("通过\n理由：通过", "通过", "通过"),
        ("通过\n理由:。", "通过", "。"),
    ],
)
def test_replies_in_the_right_form(text: str, verdict: str, reason: str) -> None:
    found = PARSER.judge(text)
    assert (found.verdict, found.reason, found.problem) == (verdict, reason, "")


@pytest.mark.parametrize(
    ("text", "verdict", "problem"),
    [
        ("", None, "empty"),
        (" \n\u3000", None, "empty"),
        ("合格\n理由：好", None, "first line"),
        ("通过。\n理由：好", None, "first line"),
        ("不 通过\n理由：好", None, "first line"),
        ("**通过**\n理由：好", None, "first line"),
        ("理由：好\n通过", None, "first line"),
        ("\n通过\n理由：好", "通过", "blank line"),
        (" 通过\n理由：好", "通过", "other text"),
        ("通过", "通过", "no reason"),
        ("通过 理由：好", None, "first line"),
        ("通过\n\n理由：好", "通过", "3 lines"),
        ("通过\n理由：好\n完", "通过", "3 lines"),
        ("通过\n理由：\n好", "通过", "3 lines"),
        ("通过\n理由：", "通过", "reason is empty"),
        ("通过\n理由： \u200b", "通过", "reason is empty"),
        ("通过\n 理由：好", "通过", "second line"),
        ("通过\n理由 ：好", "通过", "second line"),
        ("通过\n原因：好", "通过", "second line"),
        ("通过\n理由：好\u2028不通过", "通过", "newline"),
    ],
)
def test_a_broken_form_says_what_is_broken(text: str, verdict: str | None, problem: str) -> None:
    found = PARSER.judge(text)
    assert found.verdict == verdict
    assert found.reason == ""
    assert problem in found.problem


@given(st.text())
def test_any_text_is_read_without_error(text: str) -> None:
    found = PARSER.judge(text)
    assert found.verdict in {None, *VERDICTS}
    assert found.is_well_formed == (not found.problem)
    if found.is_well_formed:
        first, second = text.rstrip().replace("\r\n", "\n").split("\n")
        assert first == found.verdict
        assert second[:3] in ("理由:", "理由：")
        assert second[3:].strip()


@given(st.sampled_from(VERDICTS), REASONS)
def test_what_is_written_is_read_back(verdict: str, reason: str) -> None:
    found = PARSER.judge(PARSER.write_reply(verdict, reason))
    assert (found.verdict, found.reason, found.problem) == (verdict, reason.strip(), "")


@pytest.mark.parametrize("bad", [("合格", "好"), ("通过", ""), ("通过", "好\n好")])
def test_what_could_not_be_read_is_not_written(bad: tuple[str, str]) -> None:
    with pytest.raises(RewardError, match="is not a reply"):
        PARSER.write_reply(*bad)


@given(st.sampled_from(VERDICTS), st.sampled_from(VERDICTS), REASONS, st.sampled_from(" \n\t"))
def test_the_verdict_counts_as_the_answer(said: str, label: str, reason: str, space: str) -> None:
    example = make_example([Message("user", "?")], cluster="g", label=label)
    parser, text = PARSER, f"{space}{said}\n{reason}"
    found = parser.parse(text)
    assert (found.label, found.prefix, found.reason) == (said, space, "")
    assert parser.measure(example, text) == float(said == label)
    assert parser.parse(parser.write(label)).label == label
    assert parser.measure(example, f"{reason}。\n{said}") is None
