"""Words of any language: which can be told apart, and that all that reads and writes follows."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from group_words import ENGLISH, QUESTIONS, WORDS
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from groupwise.core import Completion, Picture, load_config
from groupwise.pipeline import find_config, find_recipe
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.prompts import open_questions
from groupwise_recipes.group_qc.rewards import GroupRewards, make_rewards
from groupwise_recipes.group_qc.stage_b import find_orders, give_orders, write_target
from groupwise_recipes.group_qc.summaries import clean_summary, number_summaries
from groupwise_recipes.group_qc.verdicts import VerdictParser
from groupwise_recipes.group_qc.words import Prompts, Words

LOOSE = {"image_1": "cabinet/white×1", "image_2": "earth wire/yellow-green/not connected×1"}
QUESTIONS_EN = replace(QUESTIONS, words=ENGLISH)


def make_words(**changes: object) -> Words:
    return Words.model_validate({**ENGLISH.model_dump(), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pass_verdict": ""}, "one line of text"),
        ({"pass_verdict": "pass\nfail"}, "one line of text"),
        ({"pass_verdict": "fail"}, "'fail' begins with 'fail'"),
        ({"fail_verdict": "pass not"}, "'pass not' begins with 'pass'"),
        ({"fail_verdict": "PASS"}, "'PASS' begins with 'pass'"),
        ({"pass_verdict": "ＦＡＩＬ"}, "begins with"),
        ({"tones": ("unclear", "fail", "good")}, "'fail' begins with 'fail'"),
        ({"tones": ("bad", "bad", "good")}, "'bad' begins with 'bad'"),
        ({"reason": "Reason"}, "a word with its colon"),
        ({"reason": ": "}, "a word with its colon"),
        ({"photo": "image_"}, "without digits"),
        ({"photo": "photo 1"}, "without digits"),
        ({"fence": ("[", "[")}, "four different marks"),
        ({"inner_fence": ("(", "]")}, "four different marks"),
        ({"confirmed": "no fault"}, "a negative remark by words.negative"),
        ({"unclear": "points met"}, "by words.fulfilled"),
        ({"negative": "("}, "not a regular expression"),
        ({"negative": "x?"}, "that an empty text does not match"),
        ({"orders": ()}, "at least 1"),
        ({"orders": ("Just pass",)}, "lacks {{ verdict }}"),
    ],
)
def test_words_that_cannot_be_told_apart_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        make_words(**changes)
    [problem] = raised.value.errors()
    assert message in problem["msg"]
    assert "\n" not in problem["msg"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"photo": "{{ mission }} {{ focus }}"}, "photo: the template lacks {{ key }}"),
        ({"photo": "{{ mission }} {{ focus }} {{ key }} {{ verdict }}"}, "nothing fills"),
        ({"rules": "{{ fail }}"}, "there are fail_verdict, pass_verdict"),
        ({"group": "{{ mission "}, "group: line 1"),
        ({"group": "{{ mission }} {{ key_points }} {{ lines }}"}, "lacks {{ answers }}"),
        ({"group": "{{ lines }} {{ mission }} {{ key_points }} {{ answers }}"}, "at the end"),
    ],
)
def test_templates_that_lack_something_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Prompts(**changes)
    assert message in str(raised.value)


WORD = st.text("abcxyz 通不过合格ßИя'.:-", min_size=1, max_size=8).map(str.strip)
REASON = st.text("ab不过.:： -", min_size=1, max_size=12).filter(lambda text: text.strip(" ") != "")


@given(WORD, WORD, WORD, REASON)
def test_any_words_are_read_as_written(good: str, bad: str, mark: str, reason: str) -> None:
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


def test_both_colons_are_read_and_other_languages_are_not() -> None:
    parser = VerdictParser(ENGLISH)
    assert parser.judge("fail\nReason：not connected").reason == "not connected"
    assert parser.judge("不通过\n理由：未连接").verdict is None
    assert parser.judge("fail\n理由：未连接").problem.startswith("the second line does not start")
    assert parser.describe()["verdicts"] == ["pass", "fail"]


def test_what_is_taught_and_rewarded_follows() -> None:
    example = QUESTIONS_EN.ask_of_group("BBU接地线检查", LOOSE, group="g", label="fail")
    parser = VerdictParser(ENGLISH)
    taught = write_target(example, parser)
    assert taught == "fail\nReason: earth wire: not connected"
    reward = make_rewards(GroupRewards(), parser).rewards["consistency"]
    assert reward(example, Completion(taught)).value == 1.0
    assert reward(example, Completion("fail\nReason: all met")).value == 0.0
    assert reward(example, Completion("pass\nReason: image_3 is fine")).value == 0.0


def test_stage_a_follows() -> None:
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
def test_no_description_leaves_its_fence(text: str) -> None:
    asked = {"image_1": text, "image_2": "unit×1"}
    example = QUESTIONS_EN.ask_of_group("BBU接地线检查", asked, group="g", label=None)
    *_, first, second = example.prompt[-1].text.splitlines()
    assert first.startswith("image_1: [")
    assert first.endswith("]")
    assert first.count("[") == first.count("]") == 1
    assert second == "image_2: [unit×1]"


def test_orders_follow() -> None:
    example = QUESTIONS_EN.ask_of_group("BBU接地线检查", LOOSE, group="g", label="fail")
    for one in give_orders([example] * 2, ENGLISH):
        last = one.prompt[-1].text.splitlines()[-1]
        assert last.startswith("image_2: [earth wire/yellow-green/not connected×1, ")
        assert last.count("[") == last.count("]") == 1
        assert "pass" in last
        assert find_orders({"image_2": last}, ENGLISH) == ["image_2"]
    assert find_orders(LOOSE, ENGLISH) == []


def test_the_english_config_says_nothing_in_chinese() -> None:
    path = find_config(find_recipe("group_qc"), "english")
    config = load_config(GroupQcConfig, path)
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


def test_the_chinese_questions_are_as_they_were() -> None:
    mission, lines = "挡风板安装检查", {"图片_1": "x"}
    asked = QUESTIONS.ask_of_group(mission, lines, group="g", label=WORDS.pass_verdict)
    shown = QUESTIONS.ask_of_photo(mission, Picture(Path("a"), "0"), group="g")
    assert asked.id == "e929f8268ff39dbd328d6fdfe0a4c450"
    assert shown.id == "4949a01e71445153534ac9389228a041"
