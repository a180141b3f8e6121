"""One table for both stages: what is in it, and what is refused."""

from pathlib import Path

import pytest

from groupwise.core import ConfigError, DataError
from groupwise_drawn.cabinets import CABINET_MISSIONS
from groupwise_recipes.group_qc.missions import Mission, load_missions

SPEC = ("BBU安装方式检查（正装）", "BBU接地线检查", "BBU线缆布放要求", "挡风板安装检查")


def write_table(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_built_in_table_has_the_missions_of_the_contract():
    table = load_missions()
    assert table.names[:4] == SPEC == CABINET_MISSIONS
    for name in SPEC:
        assert table[name].focus
        assert table[name].key_points


def test_a_file_adds_missions_and_replaces_those_of_the_same_name(tmp_path: Path):
    path = write_table(
        tmp_path / "more.yaml",
        "missions:\n"
        "  天线抱杆检查: {focus: 抱杆, key_points: [抱杆须垂直]}\n"
        "  BBU接地线检查: {focus: 新的关注, key_points: [一, 二]}\n",
    )
    table = load_missions(path)
    assert table.names == (*load_missions().names, "天线抱杆检查")
    assert table["BBU接地线检查"].key_points == ("一", "二")
    assert table["挡风板安装检查"] == load_missions()["挡风板安装检查"]


def test_a_table_of_ones_own_stands_instead_of_the_built_in_one():
    own = {"天线抱杆检查": Mission(focus="抱杆", key_points=("抱杆须垂直",))}
    assert load_missions(own).missions == own


def test_an_unknown_mission_is_refused_with_the_nearest_name():
    table = load_missions()
    table.require(SPEC)
    with pytest.raises(DataError, match=r"did you mean 'BBU安装方式检查（正装）'"):
        table.require([*SPEC, "BBU安装方式检查(正装)"])
    with pytest.raises(DataError) as raised:
        table.require(["天线", "挡风板检查", "天线"], where="stage A")
    assert str(raised.value).count("天线") == 1
    assert "did you mean '挡风板安装检查'" in str(raised.value)
    assert str(raised.value).startswith("stage A ")
    with pytest.raises(DataError):
        table["天线"]
    assert "天线" not in table


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("missions: {}", "missions"),
        ("missions: {检查: {focus: 看}}", "key_points: missing"),
        ("missions: {检查: {key_points: [看]}}", "focus: missing"),
        ("missions: {检查: {focus: 看, key_points: []}}", "key_points"),
        ("missions: {检查: {focus: ' ', key_points: [看]}}", "focus"),
        ('missions: {检查: {focus: "看\\n看", key_points: [看]}}', "focus"),
        ('missions: {检查: {focus: 看, key_points: ["看\\n"]}}', "key_points.0"),
        ("missions: {检查: {focus: 看, key_points: [看], extra: 1}}", "extra: unknown key"),
        ("missions: {a/b: {focus: 看, key_points: [看]}}", "a/b"),
        ("missions: {.a: {focus: 看, key_points: [看]}}", "leading dot"),
        ("missions: {' a': {focus: 看, key_points: [看]}}", "white space"),
        (f"missions: {{{'检' * 61}: {{focus: 看, key_points: [看]}}}}", "bytes"),
        (
            "missions: {检: {focus: 看, key_points: [看]}, 检: {focus: 看, key_points: [看]}}",
            "twice",
        ),
    ],
)
def test_a_broken_table_is_refused(tmp_path: Path, text: str, named: str):
    with pytest.raises(ConfigError, match=named):
        load_missions(write_table(tmp_path / "broken.yaml", text))
