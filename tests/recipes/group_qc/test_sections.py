"""Sections of the report of group_qc, and its words."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from group_words import ENGLISH, FAIL, PARSER, PASS, QUESTIONS, VERDICTS, WORDS
from hypothesis import assume, given
from hypothesis import strategies as st
from made_predictions import predict
from plan_keys import read_config
from pydantic import ValidationError
from run_folders import POLICIES
from tables import read_tables

from groupwise.core import Completion, Picture
from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.policies import Policies
from groupwise_recipes.group_qc.measures import (
    MEASURES,
    make_sections,
    measure_missions,
    say_failed,
    score_defects,
    show_group,
)
from groupwise_recipes.group_qc.prompts import open_questions
from groupwise_recipes.group_qc.recipe import recipe
from groupwise_recipes.group_qc.rewards import GroupRewards, make_rewards
from groupwise_recipes.group_qc.stage_b import find_orders, give_orders, write_target
from groupwise_recipes.group_qc.summaries import clean_summary, number_summaries
from groupwise_recipes.group_qc.verdicts import FALSE_ALARMS, MISSED, VerdictParser
from groupwise_recipes.group_qc.words import Prompts, Words

TABLES = read_tables(__file__)

EARTH, CABLE = "BBU接地线检查", "BBU线缆布放要求"
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


def make_all(folder, predictions, **failed):
    trained = [
        {"part": "vision", "num_trainable": 0, "num_frozen": 62},
        {"part": "language block 2", "num_trainable": 28, "num_frozen": 430},
    ]
    (folder / "trainable.json").write_text(json.dumps(trained))
    found = make_sections(
        compute_metrics(predictions, labels=VERDICTS, seed=0),
        measure_missions(predictions, VERDICTS, seed=0),
        policies=Policies(POLICIES),
        verdicts=VERDICTS,
        say_stage_a=partial(say_failed, failed),
        trainable=folder / "trainable.json",
    )
    assert [one.language for one in found] == ["en"] * 3 + ["zh"] * 3
    return {section.title: section for section in found if section.language == "en"}


@pytest.fixture
def sections(tmp_path):
    predictions = [
        *make_predictions("majority", MAJORITY),
        *make_predictions("sft", WARM_UP),
        *make_predictions("grpo", GRPO),
    ]
    return make_all(tmp_path, predictions)


def read_shares(table, policy):
    """Return a row's cells by column, without their intervals."""
    (row,) = [row for row in table.rows if row[0] == policy]
    shares = [cell.partition("\n")[0].replace("\u00a0", " ") for cell in row]
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
    assert {MISSED, FALSE_ALARMS} <= found.keys()
    assert {name: found.get(name, value) for name, value in worst.items()} == worst


def test_missed_defects_stand_first_and_are_those_not_judged_to_fail(sections):
    assert list(sections) == ["Missed defects", "By mission", "What trained in GRPO"]
    text = sections["Missed defects"].text.replace("\u00a0", " ")
    assert text.startswith("After GRPO, 50.0 % (")
    for part in ("; after its warm-up, 100.0 % (", "n = 4 failing groups", "95 %"):
        assert part in text


def test_the_page_begins_with_missed_defects(sections):
    (tile,) = sections["Missed defects"].tiles
    assert tile.value.replace("\u00a0", " ") == "50.0 %"
    assert tile.text == "of the failing photo groups missed by GRPO on test"
    assert tile.note.endswith("(95 %), n = 4")


def test_every_policy_has_its_row(sections):
    (table,) = sections["Missed defects"].tables
    assert table.head[1] == "Missed defects"
    assert [row[0] for row in table.rows] == ["Majority label", "SFT warm-up", "GRPO"]
    assert read_shares(table, "GRPO") == TABLES["every_policy_has_its_row"]
    assert read_shares(table, "Majority label") == TABLES["every_policy_has_its_row_2"]


def test_every_mission_has_its_own_numbers(sections):
    tables = sections["By mission"].tables
    assert [table.title for table in tables] == [
        EARTH,
        f"{EARTH}, by verdict",
        CABLE,
        f"{CABLE}, by verdict",
    ]
    earth = read_shares(tables[0], "GRPO")
    assert (earth["Missed defects"], earth["False alarms"], earth["n"]) == ("50.0 %", "0.0 %", "3")
    cable = read_shares(tables[2], "GRPO")
    assert (cable["Missed defects"], cable["False alarms"], cable["n"]) == ("50.0 %", "33.3 %", "5")
    assert read_shares(tables[1], "GRPO") == TABLES["every_mission_has_its_own_numbers"]
    assert read_shares(tables[1], "SFT warm-up")["Precision 不通过"] == "–"


def test_what_trained_is_read_from_the_training(sections):
    (table,) = sections["What trained in GRPO"].tables
    assert table.rows == (
        ("vision", "0", "62"),
        ("language block 2", "28", "430"),
        ("total", "28", "492"),
    )


def test_groups_that_stage_a_failed_on_are_said(tmp_path):
    predictions = make_predictions("grpo", GRPO)
    said = make_all(tmp_path, predictions, **{EARTH: 1, CABLE: 3})["By mission"].text
    text = said.replace("\u00a0", " ")
    assert f"1 photo group of {EARTH}, 3 photo groups of {CABLE}" in text
    assert "Stage A" not in make_all(tmp_path, predictions)["By mission"].text


def test_a_finished_run_prints_a_measure_that_there_is():
    metrics = compute_metrics(make_predictions("grpo", GRPO), labels=VERDICTS)
    assert recipe.headline in {metric.measure for metric in metrics}


def test_nothing_is_claimed_where_no_group_fails(tmp_path):
    rows = [row for row in GRPO if row[1] == PASS]
    predictions = [*make_predictions("sft", rows), *make_predictions("grpo", rows)]
    section = make_all(tmp_path, predictions)["Missed defects"]
    assert section.text.startswith("No photo group of the test split fails")
    assert section.tiles == ()
    assert read_shares(section.tables[0], "GRPO")["Missed defects"] == "–"


def test_a_prediction_shows_its_photos_and_what_was_asked(tmp_path):
    [one, *_] = make_predictions("grpo", GRPO)
    summaries = {"图片_1": "接地线/未安装×1", "图片_2": "无关图片"}
    fields = {**one.fields, "stage_a_summaries": summaries, "images": ["a/1.jpg", "a/2.jpg"]}
    shown = show_group(replace(one, fields=fields), tmp_path)
    assert shown.pictures == (str(tmp_path / "a/1.jpg"), str(tmp_path / "a/2.jpg"))
    assert shown.fields["task"] == f"{GRPO[0][0]}：图片_1 接地线/未安装×1；图片_2 无关图片"
    assert shown.scores == one.scores


LOOSE = {"image_1": "cabinet/white×1", "image_2": "earth wire/yellow-green/not connected×1"}
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


def test_both_colons_are_read_and_other_languages_are_not():
    parser = VerdictParser(ENGLISH)
    assert parser.judge("fail\nReason：not connected").reason == "not connected"
    assert parser.judge("不通过\n理由：未连接").verdict is None
    assert parser.judge("fail\n理由：未连接").problem.startswith("the second line does not start")
    assert parser.describe()["verdicts"] == ["pass", "fail"]


def test_what_is_taught_and_rewarded_follows():
    example = QUESTIONS_EN.ask_of_group("BBU接地线检查", LOOSE, group="g", label="fail")
    parser = VerdictParser(ENGLISH)
    taught = write_target(example, parser)
    assert taught == "fail\nReason: earth wire: not connected"
    reward = make_rewards(GroupRewards(), parser).rewards["consistency"]
    assert reward(example, Completion(taught)).value == 1.0
    assert reward(example, Completion("fail\nReason: all met")).value == 0.0
    assert reward(example, Completion("pass\nReason: image_3 is fine")).value == 0.0


def test_stage_a_follows():
    example = QUESTIONS_EN.ask_of_photo("BBU接地线检查", Picture(Path("a"), "0"), group="g")
    assert '{"image_1": "…"}' in example.prompt[0].text
    reply = QUESTIONS_EN.write_photo_reply("cabinet/white×1")
    assert clean_summary(reply, ENGLISH) == "cabinet/white×1"
    assert clean_summary("Image 1: cabinet×1", ENGLISH) == "cabinet×1"
    assert clean_summary("Irrelevant photo.", ENGLISH) == "Irrelevant photo."
    assert clean_summary("irrelevant photo.", ENGLISH) == "irrelevant photo"
    assert not isinstance(clean_summary("image_2: cabinet×1", ENGLISH), str)
    assert list(number_summaries(["a", "b"], ENGLISH)) == ["image_1", "image_2"]


@given(st.text("wire[]()\n\r image_2pass:", max_size=30))
def test_no_description_leaves_its_fence(text):
    asked = {"image_1": text, "image_2": "unit×1"}
    example = QUESTIONS_EN.ask_of_group("BBU接地线检查", asked, group="g", label=None)
    *_, first, second = example.prompt[-1].text.splitlines()
    assert first.startswith("image_1: [")
    assert first.endswith("]")
    assert first.count("[") == first.count("]") == 1
    assert second == "image_2: [unit×1]"


def test_orders_follow():
    example = QUESTIONS_EN.ask_of_group("BBU接地线检查", LOOSE, group="g", label="fail")
    for one in give_orders([example] * 2, ENGLISH):
        last = one.prompt[-1].text.splitlines()[-1]
        assert last.startswith("image_2: [earth wire/yellow-green/not connected×1, ")
        assert last.count("[") == last.count("]") == 1
        assert "pass" in last
        assert find_orders({"image_2": last}, ENGLISH) == ["image_2"]
    assert find_orders(LOOSE, ENGLISH) == []


def test_the_english_config_says_nothing_in_chinese():
    config = read_config("group_qc", "english")
    questions = open_questions(config)
    asked = [
        questions.ask_of_group("BBU earth wire", LOOSE, group="g", label="fail"),
        questions.ask_of_photo("BBU earth wire", Picture(Path("a"), "0"), group="g"),
    ]
    texts = [message.text for example in asked for message in example.prompt]
    values = [*texts, config.model_dump_json(exclude={"data"}), json.dumps(config.data.folders)]
    assert not re.search("[\u4e00-\u9fff]", "".join(values))
    assert not set(config.data.load_missions().names) & set(QUESTIONS.missions.names)
    assert 'first line pass or fail, second line "Reason: …"' in texts[1]


def test_the_chinese_questions_are_as_they_were():
    mission, lines = "挡风板安装检查", {"图片_1": "x"}
    asked = QUESTIONS.ask_of_group(mission, lines, group="g", label=WORDS.pass_verdict)
    shown = QUESTIONS.ask_of_photo(mission, Picture(Path("a"), "0"), group="g")
    assert asked.id == "e929f8268ff39dbd328d6fdfe0a4c450"
    assert shown.id == "4949a01e71445153534ac9389228a041"
