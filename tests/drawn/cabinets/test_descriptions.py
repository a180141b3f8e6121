"""Lines about photos: written and read back, and the verdict that they determine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import DataError
from groupwise_drawn.cabinets import (
    CABINET_MISSIONS,
    IRRELEVANT,
    SeenObject,
    judge_descriptions,
    read_objects,
    write_objects,
)
from groupwise_drawn.cabinets.vocabulary import KEY_THINGS

UNIT, WIRE, CABLES, DEFLECTOR = CABINET_MISSIONS

WORDS = st.text("机柜线缆A1（）-. ", min_size=1, max_size=6).filter(
    lambda word: word == word.strip()
)
OBJECTS = st.builds(
    SeenObject,
    name=WORDS,
    attributes=st.lists(WORDS, max_size=3).map(tuple),
    count=st.integers(1, 999_999),
)


@given(st.lists(OBJECTS, max_size=5))
def test_lines_are_read_as_they_were_written(objects: list[SeenObject]):
    assert read_objects(write_objects(objects)) == tuple(objects)


def test_the_style_is_that_of_the_contract():
    seen = [SeenObject("BBU设备", ("正装", "安装牢固")), SeenObject("螺丝", ("已拧紧",), 4)]
    assert write_objects(seen) == "BBU设备/正装/安装牢固×1，螺丝/已拧紧×4"
    assert write_objects([]) == IRRELEVANT == "无关图片"
    assert read_objects("机柜×12") == (SeenObject("机柜", (), 12),)


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "机柜",
        "机柜x1",
        "机柜×",
        "机柜×0",
        "机柜×01",
        "机柜×-1",
        "机柜×1.",
        "机柜×１",
        "机柜×1,螺丝×2",
        "机柜×1，",
        "，机柜×1",
        "机柜×1， 螺丝×2",
        "机柜//白色×1",
        "/白色×1",
        "机柜/×1",
        "机柜 ×1",
        "机柜×1×2",
        "机柜×1\n",
        "机柜×1，无关图片",
        "无关图片。",
    ],
)
def test_other_styles_are_refused(line: str):
    with pytest.raises(DataError, match="not in the style"):
        read_objects(line)


@pytest.mark.parametrize(
    "seen", [SeenObject("机/柜"), SeenObject("机×"), SeenObject(""), SeenObject("机柜", (), 0)]
)
def test_objects_that_could_not_be_read_back_are_refused(seen: SeenObject):
    with pytest.raises(DataError):
        write_objects([seen])


@pytest.mark.parametrize(
    ("mission", "lines", "passes"),
    [
        (UNIT, ["BBU设备/正装/安装牢固×1，机柜/白色×1", "无关图片"], True),
        (UNIT, ["BBU设备/正装/安装牢固×1", "BBU设备/未正装/上下倒置×1"], False),
        (UNIT, ["BBU设备/正装/安装牢固×1，BBU设备/未正装/左右歪斜×1"], False),
        (UNIT, ["无关图片", "纸板/遮挡视线×1，机柜/白色×1"], False),
        (UNIT, ["BBU设备/正装×1"], False),
        (UNIT, ["接地线/黄绿色/连接牢固×1"], False),
        (WIRE, ["接地线/黄绿色/连接牢固×1"], True),
        (WIRE, ["接地线/黄绿色/一端未连接×1"], False),
        (WIRE, ["接地线/黄绿色/连接牢固×1", "接地线/红色/颜色不符×1"], False),
        (WIRE, ["接地线/黄绿色/连接牢固×1", "线缆束/未绑扎/散开×1"], True),
        (CABLES, ["线缆束/布放整齐/扎带固定×2，机柜/黑色×1"], True),
        (CABLES, ["线缆束/布放不整齐/交叉缠绕×1"], False),
        (DEFLECTOR, ["挡风板/已安装/位置正确×1", "机柜/白色/柜门关闭×1，门锁×1"], True),
        (DEFLECTOR, ["挡风板/未安装×1"], False),
        (DEFLECTOR, ["挡风板/安装不到位/左右歪斜×1", "挡风板/已安装/位置正确×1"], False),
        (DEFLECTOR, [], False),
    ],
)
def test_the_rule(mission: str, lines: list[str], passes: bool):
    assert judge_descriptions(mission, lines) is passes


def test_wrong_states_are_said_with_a_negation_and_right_ones_never():
    for thing in KEY_THINGS.values():
        assert not any(mark in word for mark in "未不" for word in thing.right)
        for words in thing.wrong.values():
            assert any(mark in word for mark in "未不" for word in words)
    assert len({thing.name for thing in KEY_THINGS.values()}) == len(CABINET_MISSIONS) == 4
