"""Stage B of group_qc: prompts, completions and verdicts."""

from collections import Counter
from pathlib import Path

import pytest
from group_words import PARSER, QUESTIONS, VERDICTS, WORDS, make_question
from hypothesis import given
from hypothesis import strategies as st
from tables import read_tables

from groupwise.core import Completion, Message, Picture, RewardError, derive_seed, make_example
from groupwise.models import TrainableSettings
from groupwise.training import SftRow
from groupwise_recipes.group_qc.config import TeachSettings
from groupwise_recipes.group_qc.groups import TaughtPhoto
from groupwise_recipes.group_qc.missions import load_missions
from groupwise_recipes.group_qc.photos import PhotoGroup
from groupwise_recipes.group_qc.rewards import GroupRewards, make_rewards
from groupwise_recipes.group_qc.stage_b import choose_few, make_group_rows, write_row, write_target
from groupwise_recipes.group_qc.teach import (
    describe_thing,
    draw_photos,
    find_thing,
    make_reading_rows,
)

TABLES = read_tables(__file__)

EARTH = "BBU接地线检查"
ROOT = Path("photos")


def make_group(label="fail", name="g"):
    return PhotoGroup(f"{EARTH}/x/{name}", name, EARTH, label, (ROOT / f"{name}.jpg",))


def test_rows_of_groups_with_summaries():
    groups = [make_group("fail", "a"), make_group("pass", "b"), make_group("pass", "c")]
    summaries = {
        groups[0].key: {"图片_1": "接地线/未安装×1"},
        groups[1].key: {"图片_1": "接地线×1"},
    }
    rows = make_group_rows(groups, summaries, QUESTIONS, root=ROOT)
    assert [(row.cluster, row.label) for row in rows] == [("a", "不通过"), ("b", "通过")]
    assert rows[0].fields["images"] == ["a.jpg"]
    written = write_row(rows[0])
    assert set(written) == {"group_id", "task_type", "group_label", "stage_a_summaries", "messages"}
    assert [message["role"] for message in written["messages"]] == ["system", "user"]


@pytest.mark.parametrize(("label", "summary", "reason"), TABLES["reasons_by_rule"])
def test_reasons_by_rule(label, summary, reason):
    example = make_question(EARTH, ["x"], {"图片_1": summary}, group="g", label=label)
    reply = PARSER.judge(write_target(example, PARSER))
    assert (reply.verdict, reply.reason, reply.problem) == (label, reason, "")


PIECES = ["接地线", "合格证", "未", "不", "影响", "通过", "无法", "缺", "符合", "/", "×2", "，"]


@given(
    st.lists(st.lists(st.sampled_from(PIECES), min_size=1).map("".join), min_size=1, max_size=4),
    st.sampled_from(VERDICTS),
)
def test_what_is_taught_is_consistent(lines, label):
    summaries = {f"图片_{number}": line for number, line in enumerate(lines, start=1)}
    example = make_question(EARTH, ["接地线连接"], summaries, group="g", label=label)
    taught = Completion(write_target(example, PARSER))
    assert (
        make_rewards(GroupRewards(), PARSER).rewards["consistency"](example, taught).value == 1.0
    ), taught.text


def test_few_groups_have_every_verdict_and_mission():
    examples = [
        make_question(mission, ["x"], {"图片_1": str(n)}, group=str(n), label=VERDICTS[n % 2])
        for n in range(40)
        for mission in (EARTH, "挡风板安装检查")
    ]
    few = choose_few(examples, 8, WORDS, seed=0)
    kinds = [(example.fields["task_type"], example.label) for example in few]
    assert len(few) == 8
    assert all(kinds.count(kind) == 2 for kind in set(kinds))
    assert few == choose_few(examples, 8, WORDS, seed=0)
    assert few != choose_few(examples, 8, WORDS, seed=1)
    assert len(choose_few(examples, None, WORDS, seed=0)) == len(examples)


def test_few_groups_fail_for_what_is_seen_and_for_what_is_not():
    examples = [
        make_question(EARTH, ["x"], {"图片_1": text}, group=f"{text} {n}", label="不通过")
        for text, num_groups in (("接地线/未安装×1", 30), ("机柜/白色×1", 2))
        for n in range(num_groups)
    ]
    few = choose_few(examples, 4, WORDS, seed=0)
    assert sum(example.cluster.startswith("机柜") for example in few) == 2


@pytest.mark.parametrize("seed", range(5))
def test_few_groups_show_every_kind_in_any_order_of_the_data(seed):
    missions = load_missions().names[:4]
    kinds = {
        "pass": ("通过", "机柜/白色×1"),
        "seen": ("不通过", "接地线/未安装×1"),
        "unseen": ("不通过", "机柜/白色×1"),
    }
    examples = [
        make_question(mission, ["x"], {"图片_1": text}, group=f"{kind} {n}", label=label)
        for kind, (label, text) in kinds.items()
        for mission in missions
        for n in range(4)
    ]
    examples.sort(key=lambda example: derive_seed(seed, "order", example.id))
    few = choose_few(examples, 8, WORDS, seed=seed)
    by_kind = Counter(example.cluster.split()[0] for example in few)
    assert by_kind == {"pass": 4, "seen": 2, "unseen": 2}
    for kind, num_groups in by_kind.items():
        own = [e.fields["task_type"] for e in few if e.cluster.startswith(f"{kind} ")]
        assert len(set(own)) == num_groups


def test_balance_draws_rare_descriptions_more_often():
    example = make_question(EARTH, ["x"], {"图片_1": "x"}, group="g", label="通过")
    rows = [SftRow(example, "often")] * 90 + [SftRow(example, "rare")] * 10
    settings = load_demo_teaching()

    def count(balance):
        teach = settings.model_copy(update={"balance": balance, "photos_per_epoch": 1000})
        return sum(row.target == "rare" for row in draw_photos(rows, teach, seed=0))

    assert count(0.0) == 10  # every photo once: there are only 100
    assert 200 < count(0.5) < 300  # 10 to 30
    assert 450 < count(1.0) < 550


def load_demo_teaching():
    return TeachSettings(trainable=TrainableSettings(method="full"))


def test_the_group_question():
    summaries = {"图片_1": "BBU×1", "图片_2": "接地线×1", "图片_3": "无关图片"}
    example = make_question(
        "BBU接地线检查", ["接地线连接", "端子紧固"], summaries, group="QC-A", label="通过"
    )
    system, user = example.prompt
    lines = user.text.splitlines()
    assert lines[:2] == ["任务：BBU接地线检查", "要点：接地线连接；端子紧固"]
    assert lines[2].startswith("输出格式：")
    assert lines[3:] == TABLES["the_group_question"]
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
def test_no_description_leaves_its_line_or_its_marks(text):
    summaries = {"图片_1": text, "图片_2": "BBU×1"}
    example = make_question("m", ["k"], summaries, group="g", label=None)
    *_, first, second = example.prompt[-1].text.splitlines()
    assert first.startswith("图片_1: 「")
    assert first.endswith("」")
    assert first.count("「") == first.count("」") == 1
    assert second == "图片_2: 「BBU×1」"


def test_the_photo_question():
    picture = Picture(Path("a.jpg"), "0")
    example = QUESTIONS.ask_of_photo("挡风板安装检查", picture, group="g")
    for part in (
        "任务：挡风板安装检查\n关注：挡风板的有无与安装位置\n",
        '{"图片_1": "…"}',
        "无关图片",
    ):
        assert part in example.prompt[0].text
    assert (example.pictures, example.label, example.cluster) == ((picture,), None, "g")


UNKNOWN, NEGATIVE, POSITIVE = WORDS.tones
MISSION = "BBU接地线检查"
FIRM = "接地线/黄绿色/连接牢固×1，机柜/白色×1"
LOOSE = "接地线/黄绿色/未连接×1，机柜/蓝色×1"
UNCLEAR = "接地线/无法确认×1"
OTHER = "BBU设备/不正×1，机柜/黑色×1"
LINES = (FIRM, LOOSE, UNCLEAR, OTHER, "无关图片")


def make_rows(seed=0, epoch=0, num_rows=30):
    photos = [TaughtPhoto(f"{n}.jpg", MISSION, str(n), line) for n, line in enumerate(LINES)]
    return make_reading_rows(photos, QUESTIONS, num_rows=num_rows, seed=seed, epoch=epoch)


def read_lines(text):
    lines = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("图片_")]
    return [line.removeprefix("「").removesuffix("」") for line in lines]


@pytest.mark.parametrize(("lines", "answer"), TABLES["negative_remarks_come_first_and_other"])
def test_negative_remarks_come_first_and_other_things_do_not_count(lines, answer):
    assert describe_thing("接地线", lines, WORDS) == answer


def test_the_thing_is_the_first_one_of_the_focus_that_is_ever_seen():
    mission = load_missions(None)[MISSION]
    assert find_thing(mission, LINES, WORDS) == "接地线"
    assert find_thing(mission, ["接地排/铜质×1", "机柜/白色×1"], WORDS) == "接地排"
    assert find_thing(mission, ["机柜/白色×1"], WORDS) == ""


@given(seed=st.integers(0, 2**32), epoch=st.integers(0, 50))
def test_every_answer_is_what_its_lines_say(seed, epoch):
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


REASONS = st.text(min_size=1).filter(
    lambda text: len(text.splitlines()) == 1 and text.strip() and text.isprintable()
)


@pytest.mark.parametrize(("text", "verdict", "reason"), TABLES["replies_in_the_right_form"])
def test_replies_in_the_right_form(text, verdict, reason):
    found = PARSER.judge(text)
    assert (found.verdict, found.reason, found.problem) == (verdict, reason, "")


@pytest.mark.parametrize(("text", "verdict", "problem"), TABLES["a_broken_form_says"])
def test_a_broken_form_says_what_is_broken(text, verdict, problem):
    found = PARSER.judge(text)
    assert (found.verdict, found.reason) == (verdict, "")
    assert problem in found.problem


@given(st.text())
def test_any_text_is_read_without_error(text):
    found = PARSER.judge(text)
    assert found.verdict in {None, *VERDICTS}
    assert found.is_well_formed == (not found.problem)
    if found.is_well_formed:
        first, second = text.rstrip().replace("\r\n", "\n").split("\n")
        assert first == found.verdict
        assert second[:3] in ("理由:", "理由：")
        assert second[3:].strip()


@given(st.sampled_from(VERDICTS), REASONS)
def test_what_is_written_is_read_back(verdict, reason):
    found = PARSER.judge(PARSER.write_reply(verdict, reason))
    assert (found.verdict, found.reason, found.problem) == (verdict, reason.strip(), "")


@pytest.mark.parametrize("bad", [("合格", "好"), ("通过", ""), ("通过", "好\n好")])
def test_what_could_not_be_read_is_not_written(bad):
    with pytest.raises(RewardError, match="is not a reply"):
        PARSER.write_reply(*bad)


@given(st.sampled_from(VERDICTS), st.sampled_from(VERDICTS), REASONS, st.sampled_from(" \n\t"))
def test_the_verdict_counts_as_the_answer(said, label, reason, space):
    example = make_example([Message("user", "?")], cluster="g", label=label)
    parser, text = PARSER, f"{space}{said}\n{reason}"
    found = parser.parse(text)
    assert (found.label, found.prefix, found.reason) == (said, space, "")
    assert parser.measure(example, text) == float(said == label)
    assert parser.parse(parser.write(label)).label == label
    assert parser.measure(example, f"{reason}。\n{said}") is None
