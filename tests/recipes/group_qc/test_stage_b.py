"""Stage B of group_qc: prompts, completions, verdicts, its words and the sections of its report."""

import json
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from group_words import ENGLISH, FAIL, PARSER, PASS, QUESTIONS, VERDICTS, WORDS, make_question
from hypothesis import assume, given
from hypothesis import strategies as st
from made_predictions import predict
from plan_keys import read_config
from pydantic import ValidationError
from run_folders import POLICIES
from tables import read_tables

from groupwise.core import Completion, Message, Picture, RewardError, derive_seed, make_example
from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.predictions import Policies
from groupwise.models.trainable import TrainableSettings
from groupwise.training.settings import SftRow
from groupwise_recipes.group_qc.config import TeachSettings
from groupwise_recipes.group_qc.groups import TaughtPhoto
from groupwise_recipes.group_qc.measures import (
    MEASURES,
    make_sections,
    measure_missions,
    say_failed,
    score_defects,
    show_group,
)
from groupwise_recipes.group_qc.missions import load_missions
from groupwise_recipes.group_qc.photos import PhotoGroup
from groupwise_recipes.group_qc.prompts import open_questions
from groupwise_recipes.group_qc.recipe import recipe
from groupwise_recipes.group_qc.rewards import GroupRewards, make_rewards
from groupwise_recipes.group_qc.stage_b import (
    choose_few,
    find_orders,
    give_orders,
    make_group_rows,
    write_row,
    write_target,
)
from groupwise_recipes.group_qc.summaries import clean_summary, number_summaries
from groupwise_recipes.group_qc.teach import (
    describe_thing,
    draw_photos,
    find_thing,
    make_reading_rows,
)
from groupwise_recipes.group_qc.verdicts import FALSE_ALARMS, MISSED, VerdictParser
from groupwise_recipes.group_qc.words import Prompts, Words

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


def test_few_groups_have_every_verdict_mission_and_kind_of_failure():
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
    settings = TeachSettings(trainable=TrainableSettings(method="full"))

    def count(balance):
        teach = settings.model_copy(update={"balance": balance, "photos_per_epoch": 1000})
        return sum(row.target == "rare" for row in draw_photos(rows, teach, seed=0))

    assert count(0.0) == 10  # every photo once: there are only 100
    assert 200 < count(0.5) < 300  # 10 to 30
    assert 450 < count(1.0) < 550


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


@pytest.mark.parametrize(
    ("language", "key", "marks"), [("zh", "图片", "「」"), ("en", "image", "[]")]
)
@given(
    text=st.text(
        st.sampled_from("接地线「」『』[]()\n\r\u2028：: 图片_2通过image_2pass"), max_size=30
    )
)
def test_no_description_leaves_its_line_or_its_marks(language, key, marks, text):
    questions = QUESTIONS if language == "zh" else QUESTIONS_EN
    asked = {f"{key}_1": text, f"{key}_2": "BBU×1"}
    example = questions.ask_of_group(EARTH, asked, group="g", label=None)
    *_, first, second = example.prompt[-1].text.splitlines()
    begin, end = marks
    assert first.startswith(f"{key}_1: {begin}")
    assert first.endswith(end)
    assert first.count(begin) == first.count(end) == 1
    assert second == f"{key}_2: {begin}BBU×1{end}"


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
FIRM = "接地线/黄绿色/连接牢固×1，机柜/白色×1"
LOOSE = "接地线/黄绿色/未连接×1，机柜/蓝色×1"
UNCLEAR = "接地线/无法确认×1"
OTHER = "BBU设备/不正×1，机柜/黑色×1"
LINES = (FIRM, LOOSE, UNCLEAR, OTHER, "无关图片")


def make_rows(seed=0, epoch=0, num_rows=30):
    photos = [TaughtPhoto(f"{n}.jpg", EARTH, str(n), line) for n, line in enumerate(LINES)]
    return make_reading_rows(photos, QUESTIONS, num_rows=num_rows, seed=seed, epoch=epoch)


def read_lines(text):
    lines = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("图片_")]
    return [line.removeprefix("「").removesuffix("」") for line in lines]


@pytest.mark.parametrize(("lines", "answer"), TABLES["negative_remarks_come_first_and_other"])
def test_negative_remarks_come_first_and_other_things_do_not_count(lines, answer):
    assert describe_thing("接地线", lines, WORDS) == answer


def test_the_thing_is_the_first_one_of_the_focus_that_is_ever_seen():
    mission = load_missions(None)[EARTH]
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


def test_the_three_answers_come_in_turn_without_a_verdict_by_epoch_and_seed():
    rows = make_rows()
    assert [row.target.splitlines()[0] for row in rows] == [UNKNOWN, NEGATIVE, POSITIVE] * 10
    # The rules of Stage B, which come first, do name them.
    texts = [row.example.prompt[-1].text + row.target for row in rows]
    assert not [text for text in texts for verdict in VERDICTS if verdict in text]
    prompts = [row.example.prompt for row in rows]
    assert prompts == [row.example.prompt for row in make_rows()]
    for other in (make_rows(epoch=1), make_rows(seed=1)):
        assert prompts != [row.example.prompt for row in other]


REASONS = st.text(min_size=1).filter(
    lambda text: len(text.splitlines()) == 1 and text.strip() and text.isprintable()
)


@pytest.mark.parametrize(
    ("text", "verdict", "reason", "problem"),
    [
        *((*row, "") for row in TABLES["replies_in_the_right_form"]),
        *((text, verdict, "", problem) for text, verdict, problem in TABLES["a_broken_form_says"]),
    ],
)
def test_a_reply_has_its_verdict_and_a_broken_form_says_what_is_broken(
    text, verdict, reason, problem
):
    found = PARSER.judge(text)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert problem in found.problem
    assert found.is_well_formed == (problem == "")


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


CABLE = "BBU线缆布放要求"
GRPO = TABLES["grpo"]
"""4 groups fail: one judged to pass and one without verdict are missed. 4 pass: one fails here."""
WARM_UP = [(mission, label, PASS) for mission, label, _ in GRPO]
MAJORITY = [(mission, label, FAIL) for mission, label, _ in GRPO]


def make_predictions(policy, rows):
    return [
        score_defects(
            predict(
                f"g{number}",
                policy,
                label,
                verdict,
                reason="" if verdict else "empty reply",
                text=PARSER.write_reply(verdict, "要点均已确认") if verdict else "",
                fields={"task_type": mission},
            ),
            PARSER,
        )
        for number, (mission, label, verdict) in enumerate(rows)
    ]


def make_all(predictions, **failed):
    found = make_sections(
        compute_metrics(predictions, labels=VERDICTS, seed=0),
        measure_missions(predictions, VERDICTS, seed=0),
        policies=Policies(POLICIES),
        verdicts=VERDICTS,
        say_stage_a=partial(say_failed, failed),
    )
    assert [one.language for one in found] == ["en"] * 2 + ["zh"] * 2
    return {section.title: section for section in found if section.language == "en"}


@pytest.fixture
def sections():
    predictions = [
        *make_predictions("majority", MAJORITY),
        *make_predictions("sft", WARM_UP),
        *make_predictions("grpo", GRPO),
    ]
    return make_all(predictions)


def read_shares(table, policy):
    """Return a row's cells by column, without their intervals."""
    (row,) = [row for row in table.rows if row[0].text == policy]
    shares = [cell.partition("\n")[0].replace("\u00a0", " ") for cell in (policy, *row[1:])]
    return dict(zip(table.head, shares, strict=True))


@pytest.mark.parametrize(
    ("label", "verdict", "scores"),
    [
        (FAIL, FAIL, {MISSED: 0.0}),
        (FAIL, PASS, {MISSED: 1.0}),
        (FAIL, None, {MISSED: 1.0}),
        (PASS, PASS, {FALSE_ALARMS: 0.0}),
        (PASS, FAIL, {FALSE_ALARMS: 1.0}),
        (PASS, None, {FALSE_ALARMS: 1.0}),
    ],
)
def test_a_group_without_a_verdict_is_counted_against_the_policy(label, verdict, scores):
    (found,) = make_predictions("majority", [(EARTH, label, verdict)])
    assert found.scores == scores


def test_a_policy_that_never_answers_has_the_worst_of_every_measure():
    silent = make_predictions("grpo", [(mission, label, None) for mission, label, _ in GRPO])
    found = {m.measure: m.value for m in compute_metrics(silent, labels=VERDICTS)}
    worst = {one.name: 0.0 if one.is_higher_better else 1.0 for one in MEASURES}
    assert {MISSED, FALSE_ALARMS, recipe.headline} <= found.keys()
    assert {name: found.get(name, value) for name, value in worst.items()} == worst


def test_missed_defects_stand_first_and_are_those_not_judged_to_fail(sections):
    assert list(sections) == ["Missed defects", "By mission"]
    assert [one.is_first for one in sections.values()] == [True, False]
    section = sections["Missed defects"]
    text = section.text.replace("\u00a0", " ")
    assert text.startswith("After GRPO, 50.0 % (")
    for part in ("; after its warm-up, 100.0 % (", "n = 4 failing groups", "95 %"):
        assert part in text
    (table,) = section.tables
    assert table.head[1] == "Missed defects"
    assert [row[0].text for row in table.rows] == ["Majority label", "SFT warm-up", "GRPO"]
    assert read_shares(table, "GRPO") == TABLES["every_policy_has_its_row"]
    assert read_shares(table, "Majority label") == TABLES["every_policy_has_its_row_2"]


def test_every_mission_has_its_own_numbers(sections):
    tables = sections["By mission"].tables
    titles = [title for name in (EARTH, CABLE) for title in (name, f"{name}, by verdict")]
    assert [table.title for table in tables] == titles
    earth = read_shares(tables[0], "GRPO")
    assert (earth["Missed defects"], earth["False alarms"], earth["n"]) == ("50.0 %", "0.0 %", "3")
    cable = read_shares(tables[2], "GRPO")
    assert (cable["Missed defects"], cable["False alarms"], cable["n"]) == ("50.0 %", "33.3 %", "5")
    assert read_shares(tables[1], "GRPO") == TABLES["every_mission_has_its_own_numbers"]
    assert read_shares(tables[1], "SFT warm-up")["Precision 不通过"] == "–"


def test_groups_that_stage_a_failed_on_are_said():
    predictions = make_predictions("grpo", GRPO)
    said = make_all(predictions, **{EARTH: 1, CABLE: 3})["By mission"].text
    text = said.replace("\u00a0", " ")
    assert f"1 photo group of {EARTH}, 3 photo groups of {CABLE}" in text
    assert "Stage A" not in make_all(predictions)["By mission"].text


def test_nothing_is_claimed_where_no_group_fails():
    rows = [row for row in GRPO if row[1] == PASS]
    predictions = [*make_predictions("sft", rows), *make_predictions("grpo", rows)]
    section = make_all(predictions)["Missed defects"]
    assert section.text.startswith("No photo group of the test split fails")
    assert read_shares(section.tables[0], "GRPO")["Missed defects"] == "–"


def test_a_prediction_shows_its_photos_and_what_was_asked(tmp_path):
    [one, *_] = make_predictions("grpo", GRPO)
    summaries = {"图片_1": "接地线/未安装×1", "图片_2": "无关图片"}
    fields = {**one.fields, "stage_a_summaries": summaries, "images": ["a/1.jpg", "a/2.jpg"]}
    shown = show_group(replace(one, fields=fields), tmp_path)
    assert shown.pictures == (str(tmp_path / "a/1.jpg"), str(tmp_path / "a/2.jpg"))
    assert shown.fields["task"] == f"{GRPO[0][0]}：图片_1 接地线/未安装×1；图片_2 无关图片"
    assert shown.scores == one.scores


ENGLISH_LINES = {
    "image_1": "cabinet/white×1",
    "image_2": "earth wire/yellow-green/not connected×1",
}
QUESTIONS_EN = replace(QUESTIONS, words=ENGLISH)


def make_words(**changes):
    return Words.model_validate({**ENGLISH.model_dump(), **changes})


@pytest.mark.parametrize(("changes", "message"), TABLES["words_that_cannot_be_told_apart"])
def test_words_that_cannot_be_told_apart_are_refused(changes, message):
    with pytest.raises(ValidationError) as raised:
        make_words(**changes)
    [problem] = raised.value.errors()
    assert message in problem["msg"]
    assert "\n" not in problem["msg"]


@pytest.mark.parametrize(("changes", "message"), TABLES["templates_that_lack_something"])
def test_templates_that_lack_something_are_refused(changes, message):
    with pytest.raises(ValidationError) as raised:
        Prompts(**changes)
    assert message in str(raised.value)


WORD = st.text("abcxyz 通不过合格ßИя'.:-", min_size=1, max_size=8).map(str.strip)
REASON = st.text("ab不过.:： -", min_size=1, max_size=12).filter(lambda text: text.strip(" ") != "")


@given(WORD, WORD, WORD, REASON)
def test_any_words_are_read_as_written(good, bad, mark, reason):
    try:
        words = make_words(pass_verdict=good, fail_verdict=bad, reason=f"{mark}: ")
    except ValidationError:
        assume(False)
        raise
    parser = VerdictParser(words)
    for verdict in words.verdicts:
        found = parser.judge(parser.write_reply(verdict, reason))
        assert (found.verdict, found.reason, found.problem) == (verdict, reason.strip(), "")
        assert parser.parse(parser.write(verdict)).label == verdict


def test_replies_in_english_are_read_taught_and_rewarded():
    parser = VerdictParser(ENGLISH)
    assert parser.judge("fail\nReason：not connected").reason == "not connected"
    assert parser.judge("不通过\n理由：未连接").verdict is None
    assert parser.judge("fail\n理由：未连接").problem.startswith("the second line does not start")
    assert parser.describe()["verdicts"] == ["pass", "fail"]
    example = QUESTIONS_EN.ask_of_group("BBU接地线检查", ENGLISH_LINES, group="g", label="fail")
    taught = write_target(example, parser)
    assert taught == "fail\nReason: earth wire: not connected"
    reward = make_rewards(GroupRewards(), parser).rewards["consistency"]
    for text, value in (
        (taught, 1.0),
        ("fail\nReason: all met", 0.0),
        ("pass\nReason: image_3 is fine", 0.0),
    ):
        assert reward(example, Completion(text)).value == value


def test_stage_a_and_orders_follow():
    example = QUESTIONS_EN.ask_of_photo("BBU接地线检查", Picture(Path("a"), "0"), group="g")
    assert '{"image_1": "…"}' in example.prompt[0].text
    for reply, line in (
        (QUESTIONS_EN.write_photo_reply("cabinet/white×1"), "cabinet/white×1"),
        ("Image 1: cabinet×1", "cabinet×1"),
        ("Irrelevant photo.", "Irrelevant photo."),
        ("irrelevant photo.", "irrelevant photo"),
    ):
        assert clean_summary(reply, ENGLISH) == line
    assert not isinstance(clean_summary("image_2: cabinet×1", ENGLISH), str)
    assert list(number_summaries(["a", "b"], ENGLISH)) == ["image_1", "image_2"]
    example = QUESTIONS_EN.ask_of_group("BBU接地线检查", ENGLISH_LINES, group="g", label="fail")
    for one in give_orders([example] * 2, ENGLISH):
        last = one.prompt[-1].text.splitlines()[-1]
        assert last.startswith("image_2: [earth wire/yellow-green/not connected×1, ")
        assert last.count("[") == last.count("]") == 1
        assert "pass" in last
        assert find_orders({"image_2": last}, ENGLISH) == ["image_2"]
    assert find_orders(ENGLISH_LINES, ENGLISH) == []


def test_the_english_config_says_nothing_in_chinese():
    config = read_config("group_qc", "english")
    questions = open_questions(config)
    asked = [
        questions.ask_of_group("BBU earth wire", ENGLISH_LINES, group="g", label="fail"),
        questions.ask_of_photo("BBU earth wire", Picture(Path("a"), "0"), group="g"),
    ]
    texts = [message.text for example in asked for message in example.prompt]
    words = [config.words.model_dump_json(), config.prompts.model_dump_json()]
    words += [config.model_dump_json(exclude={"data"}), json.dumps(config.data.folders)]
    values = [*texts, *words]
    assert not re.search("[\u4e00-\u9fff]", "".join(values))
    assert not set(config.data.load_missions().names) & set(QUESTIONS.missions.names)
    assert 'first line pass or fail, second line "Reason: …"' in texts[1]


def test_the_chinese_questions_are_as_they_were():
    mission, lines = "挡风板安装检查", {"图片_1": "x"}
    asked = QUESTIONS.ask_of_group(mission, lines, group="g", label=WORDS.pass_verdict)
    shown = QUESTIONS.ask_of_photo(mission, Picture(Path("a"), "0"), group="g")
    assert asked.id == "e929f8268ff39dbd328d6fdfe0a4c450"
    assert shown.id == "4949a01e71445153534ac9389228a041"
