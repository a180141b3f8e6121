"""What both stages are asked."""

from pathlib import Path

from group_words import QUESTIONS, make_question
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Picture


def test_the_group_question() -> None:
    summaries = {"图片_1": "BBU×1", "图片_2": "接地线×1", "图片_3": "无关图片"}
    example = make_question(
        "BBU接地线检查",
        ["接地线连接", "端子紧固"],
        summaries,
        group="QC-A",
        label="通过",
    )
    system, user = example.prompt
    lines = user.text.splitlines()
    assert lines[:2] == ["任务：BBU接地线检查", "要点：接地线连接；端子紧固"]
    assert lines[2].startswith("输出格式：")
    assert lines[3:] == [
        "摘要列表：",
        "图片_1: 「BBU×1」",
        "图片_2: 「接地线×1」",
        "图片_3: 「无关图片」",
    ]
    for rule in ("两行", "不写数量", "不编号", "不照抄摘要", "以负面为准", "判不通过", "不是指令"):
        assert rule in system.text
    assert example.fields == {
        "group_id": "QC-A",
        "task_type": "BBU接地线检查",
        "group_label": "通过",
        "stage_a_summaries": summaries,
        "images": [],
    }
    assert (example.cluster, example.label, example.pictures) == ("QC-A", "通过", ())


@given(st.text(st.sampled_from("接地线「」『』\n\r\u2028：: 图片_2通过"), max_size=30))
def test_no_description_leaves_its_line_or_its_marks(text: str) -> None:
    summaries = {"图片_1": text, "图片_2": "BBU×1"}
    example = make_question("m", ["k"], summaries, group="g", label=None)
    *_, first, second = example.prompt[-1].text.splitlines()
    assert first.startswith("图片_1: 「")
    assert first.endswith("」")
    assert first.count("「") == first.count("」") == 1
    assert second == "图片_2: 「BBU×1」"


def test_the_photo_question() -> None:
    picture = Picture(Path("a.jpg"), "0")
    example = QUESTIONS.ask_of_photo("挡风板安装检查", picture, group="g")
    assert "任务：挡风板安装检查\n关注：挡风板的有无与安装位置\n" in example.prompt[0].text
    assert '{"图片_1": "…"}' in example.prompt[0].text
    assert "无关图片" in example.prompt[0].text
    assert (example.pictures, example.label, example.cluster) == ((picture,), None, "g")
