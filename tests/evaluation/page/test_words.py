"""Both vocabularies say the same things with the same numbers, and nothing is left unsaid."""

import re
import string
from pathlib import Path
from typing import get_args

import pytest

import groupwise
from groupwise.evaluation.monitor import AlarmName
from groupwise.evaluation.page import LANGUAGES, Language, Statement, Words
from groupwise.evaluation.page.words import explain, load_vocabulary
from groupwise.judge_calibration.report import PARTS

ROOT = Path(groupwise.__file__).parent
SOURCE = "\n".join(
    path.read_text()
    for package in ("evaluation", "judge_calibration")
    for path in sorted((ROOT / package).rglob("*.py"))
)
TEMPLATES = "\n".join(path.read_text() for path in sorted(ROOT.rglob("page/templates/*.j2")))


def list_keys(language: Language) -> set[tuple[str, str]]:
    return {(part, key) for part, words in load_vocabulary(language).items() for key in words}


def list_places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_the_same_keys() -> None:
    assert list_keys("en") == list_keys("zh")


@pytest.mark.parametrize("section", ["statements", "labels", "confounding"])
def test_both_languages_fill_in_the_same_places(section: str) -> None:
    english, chinese = load_vocabulary("en")[section], load_vocabulary("zh")[section]
    unlike = [k for k in english if list_places(english[k]) != list_places(chinese[k])]
    assert unlike == []


def test_every_statement_of_the_code_has_a_sentence_and_none_is_left_over() -> None:
    made = set(re.findall(r'"((?:notice|finding|reason|evidence|run|judge)\.(?!json)\w+)"', SOURCE))
    made |= {
        "finding.missing",
        "finding.other_items",
        "finding.inapplicable",
    }  # made from a gap's reason
    made |= {f"{kind}.{name}" for kind in ("alarm", "advice") for name in get_args(AlarmName)}
    stems = re.findall(r'f"((?:run|judge)\.\w+)\{', SOURCE)
    known = set(load_vocabulary("en")["statements"])
    built = {kind for kind in known - made if kind.startswith(tuple(stems))}
    assert made | built == known
    assert all(any(kind.startswith(stem) for kind in built) for stem in stems)


def test_every_label_is_used_and_every_used_label_is_there() -> None:
    labels = set(load_vocabulary("en")["labels"])
    quoted = set(re.findall(r"""["'](\w+)["']""", SOURCE + TEMPLATES))
    prefixes = ("level_", "kind_", "signal_")
    parts = tuple(f"{name}_" for name in PARTS)
    assert {name for name in labels - quoted if not name.startswith((*prefixes, *parts))} == set()
    assert set(re.findall(r'label\(\s*"(\w+)"', SOURCE + TEMPLATES)) - set(prefixes) <= labels


def test_forms_put_numbers_into_words() -> None:
    statement = Statement(
        "finding.clear",
        {
            "first": "0.12",
            "second": "0.15",
            "difference": -0.018,
            "low": -0.05,
            "high": 0.0,
            "p": 1e-5,
            "better": "0.15",
        },
    )
    english, chinese = (Words(name, "grpo.beta").say(statement) for name in LANGUAGES)
    assert english == (
        "That is −1.8 points (95\u00a0% interval −5.0 to ±0.0; p\u00a0<\u00a00.001 after Holm): "
        "more than chance explains, and beta 0.15 is the better."
    )
    assert "−1.8 个百分点" in chinese
    assert "−5.0 至 ±0.0" in chinese


def test_things_are_counted_in_words() -> None:
    english, chinese = Words("en"), Words("zh")
    assert english.count(1, "cell") == "1\u00a0cell"
    assert english.count(1088, "item") == "1\u202f088\u00a0items"
    assert chinese.count(1, "item") == "1\u00a0个样本"


def test_places_and_systems_are_named_by_the_last_part_of_their_keys() -> None:
    words = Words("en", "grpo.beta", ("epoch", "evaluation.num_items"))
    assert words.place(("1", "200")) == "epoch 1, num_items 200"
    assert words.title_system("0.12") == "beta 0.12"
    assert words.title_pair("0.12", "0.15") == "beta 0.12 − 0.15"
    assert Words("zh").title_pair("a", "b") == "a − b"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_of_the_gate_can_be_said(language: Language) -> None:
    words = {"key": "grpo.beta", "cause": "0.1", "cause_zh": "甲", "runs": "a", "count": "3"}
    vocabulary = load_vocabulary(language)
    for reason in (*vocabulary["reasons"], *vocabulary["confounding"]):
        said = Words(language).say(Statement("notice.gate", {"reason": reason, "words": words}))
        assert said.endswith("." if language == "en" else "。")
        assert "{" not in said


def test_a_key_at_the_start_of_a_sentence_keeps_its_letters() -> None:
    def say(key: str) -> str:
        words = {"key": key, "cause": "1, 2", "count": "8"}
        return Words("en").say(Statement("notice.gate", {"reason": "same_axis", "words": words}))

    assert say("grpo.beta").startswith("grpo.beta 1, 2")
    assert say("epoch").startswith("Epoch 1, 2")


def test_a_step_that_trains_no_policy_has_a_name() -> None:
    assert [Words(name).title_policy("teach_stage_a") for name in LANGUAGES] == [
        "Stage A taught",
        "教阶段 A",
    ]
    assert Words("zh").title_policy("mine") == "mine"


def test_runs_are_listed_in_the_words_of_the_language() -> None:
    words = {"runs": "a and b", "runs_zh": "a 与 b", "count": "3"}
    english, chinese = (explain("same_predictions", words, name) for name in LANGUAGES)
    assert english.startswith("a and b ")
    assert chinese.startswith("a 与 b ")
