"""Lessons in reading: the answer is in the lines, all three answers come up, none is a verdict."""

import pytest
from group_words import QUESTIONS, VERDICTS, WORDS
from hypothesis import given
from hypothesis import strategies as st

from groupwise_recipes.group_qc.groups import TaughtPhoto
from groupwise_recipes.group_qc.missions import load_missions
from groupwise_recipes.group_qc.teach import (
    describe_thing,
    find_thing,
    make_reading_rows,
)

UNKNOWN, NEGATIVE, POSITIVE = WORDS.tones
MISSION = "BBU接地线检查"
FIRM = "接地线/黄绿色/连接牢固×1，机柜/白色×1"
LOOSE = "接地线/黄绿色/未连接×1，机柜/蓝色×1"
UNCLEAR = "接地线/无法确认×1"
OTHER = "BBU设备/不正×1，机柜/黑色×1"
LINES = (FIRM, LOOSE, UNCLEAR, OTHER, "无关图片")


def make_rows(seed: int = 0, epoch: int = 0, num_rows: int = 30):
    photos = [TaughtPhoto(f"{n}.jpg", MISSION, str(n), line) for n, line in enumerate(LINES)]
    return make_reading_rows(photos, QUESTIONS, num_rows=num_rows, seed=seed, epoch=epoch)


def read_lines(text: str) -> list[str]:
    lines = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("图片_")]
    return [line.removeprefix("「").removesuffix("」") for line in lines]


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        ([FIRM], (POSITIVE, "接地线：黄绿色、连接牢固")),
        ([FIRM, LOOSE, FIRM], (NEGATIVE, "接地线：未连接")),
        ([UNCLEAR, OTHER, FIRM], (POSITIVE, "接地线：黄绿色、连接牢固")),
        ([UNCLEAR], (UNKNOWN, "有要点无法确认")),
        ([OTHER, "无关图片"], (UNKNOWN, "有要点无法确认")),
        (["接地线/被纸板遮挡/无法确认×1", "挡风板/已安装×1"], (UNKNOWN, "有要点无法确认")),
        (["机柜/未关闭×1", FIRM], (POSITIVE, "接地线：黄绿色、连接牢固")),
        ([FIRM, "接地线/红色/颜色不符×1"], (NEGATIVE, "接地线：颜色不符")),
    ],
)
def test_negative_remarks_come_first_and_other_things_do_not_count(lines, answer):
    assert describe_thing("接地线", lines, WORDS) == answer


def test_the_thing_is_the_first_one_of_the_focus_that_is_ever_seen():
    mission = load_missions(None)[MISSION]
    assert find_thing(mission, LINES, WORDS) == "接地线"
    assert find_thing(mission, ["接地排/铜质×1", "机柜/白色×1"], WORDS) == "接地排"
    assert find_thing(mission, ["机柜/白色×1"], WORDS) == ""


@given(seed=st.integers(0, 2**32), epoch=st.integers(0, 50))
def test_every_answer_is_what_its_lines_say(seed: int, epoch: int):
    for row in make_rows(seed, epoch):
        lines = read_lines(row.example.prompt[-1].text)
        assert 1 <= len(lines) <= 5
        assert set(lines) <= set(LINES)
        assert row.target == "\n理由：".join(describe_thing("接地线", lines, WORDS))


def test_the_three_answers_come_in_turn():
    tones = [row.target.splitlines()[0] for row in make_rows()]
    assert tones == [UNKNOWN, NEGATIVE, POSITIVE] * 10


def test_no_lesson_asks_for_a_verdict_or_gives_one():
    # The rules of Stage B, which come first, do name them.
    texts = [row.example.prompt[-1].text + row.target for row in make_rows()]
    assert not [text for text in texts for verdict in VERDICTS if verdict in text]


def test_epochs_and_seeds_differ_and_repeat():
    first = [row.example.prompt for row in make_rows()]
    assert first == [row.example.prompt for row in make_rows()]
    assert first != [row.example.prompt for row in make_rows(epoch=1)]
    assert first != [row.example.prompt for row in make_rows(seed=1)]
