"""What a finished run is asked: lines of Stage A in place of photos, labelled or not."""

import json
from pathlib import Path
from typing import Any

import pytest
from group_words import FAIL, PASS, QUESTIONS
from tile_photos import write_photos

from groupwise.core import DataError, Example, load_config, write_jsonl
from groupwise.flow import prediction
from groupwise.pipeline import StepContext, find_config, find_recipe
from groupwise.serving import Request
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.predictor import GroupQcPredictor
from groupwise_recipes.group_qc.task import TASK

MISSION = "BBU接地线检查"
LINES = {"图片_1": "接地线/未连接×1", "图片_2": "无关图片"}


def load(*overrides: str) -> GroupQcConfig:
    path = find_config(find_recipe("group_qc"), "demo")
    return load_config(GroupQcConfig, path, overrides=overrides)


def make_line(name: str, **changes: object) -> dict[str, Any]:
    images = [f"{MISSION}/审核通过/{name}/{number}.jpg" for number in (1, 2)]
    known = {"group_id": name, "mission": MISSION, "label": "fail", "images": images}
    return {**known, "per_image": LINES, **changes}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> GroupQcPredictor:
    for name in ("open_policy", "make_ask", "digest_base"):
        monkeypatch.setattr(prediction, name, lambda *_: None)
    return GroupQcPredictor(TASK, load("teach=null", "data={summaries: [a.jsonl]}"), "policy")


def test_lines_are_requests_and_those_that_break_the_contract_are_counted(tmp_path: Path) -> None:
    unlabelled = make_line("b")
    del unlabelled["label"]
    wrong = [make_line("c", per_image={"图片_1": "x"}), make_line("d", mission="天线检查")]
    path = tmp_path / "new_stage_a.jsonl"
    write_jsonl(path, [make_line("a"), unlabelled, *wrong])
    requests, drops = TASK.list_requests(load(), path)
    assert [one.id for one in requests] == [f"{MISSION}/审核通过/{name}" for name in "ab"]
    assert [one.row for one in requests] == [{"mission": MISSION, "per_image": LINES}] * 2
    assert drops.counts == {"unknown mission": 1, "wrong keys": 1}


def test_lines_are_asked_about_as_in_training_even_where_no_photo_can_be(
    asked: GroupQcPredictor, tmp_path: Path
) -> None:
    question = asked.make_question(Request("g", {"mission": MISSION, "per_image": LINES}), tmp_path)
    known = QUESTIONS.ask_of_group(MISSION, LINES, group="g", label=None)
    assert question.prompt == known.prompt
    assert not question.pictures
    with pytest.raises(DataError, match="cannot describe photos"):
        asked.make_question(Request("g", {"mission": MISSION}, (tmp_path / "a.jpg",)), tmp_path)


@pytest.mark.parametrize(
    ("row", "pictures", "message"),
    [
        ({"per_image": {"图片_2": "x"}}, (), "wrong keys"),
        ({"per_image": {}}, (), "wrong keys"),
        ({"per_image": "x"}, (), "broken fields"),
        ({"per_image": {"图片_1": " "}}, (), "an empty summary"),
        ({"per_image": LINES}, ("a.jpg",), "needs photos, or per_image.* got both"),
        ({}, (), "needs photos, or per_image.* got none"),
        ({"mission": "天线", "per_image": LINES}, (), "there is no mission"),
    ],
)
def test_what_cannot_be_asked_is_said(
    asked: GroupQcPredictor, tmp_path: Path, row: dict, pictures: tuple[str, ...], message: str
) -> None:
    request = Request("g", {"mission": MISSION, **row}, tuple(map(Path, pictures)))
    with pytest.raises(DataError, match=message):
        asked.make_question(request, tmp_path)


def read_labelled(path: Path, config: GroupQcConfig) -> tuple[list[Example], dict[str, int]]:
    context = StepContext(path.parent, path.parent, "evaluate", False, ())
    found, drops = TASK.read_labelled(config, context, path, path.parent / "data")
    return list(found), drops.counts


def test_labelled_lines_are_the_questions_of_training_and_show_no_photo(tmp_path: Path) -> None:
    path = tmp_path / "other_stage_a.jsonl"
    passing = make_line("b", label="pass")
    write_jsonl(path, [make_line("a"), passing, make_line("c", label=None), make_line("a")])
    found, counts = read_labelled(path, load())
    assert [(one.cluster, one.label) for one in found] == [("a", FAIL), ("b", PASS)]
    asked = QUESTIONS.ask_of_group(MISSION, LINES, group="a", label=FAIL)
    assert (found[0].prompt, found[0].fields) == (asked.prompt, asked.fields)
    assert counts == {"no label": 1, "photo group appears twice": 1}


def test_photos_are_refused_by_a_run_that_never_saw_any(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos")
    with pytest.raises(DataError, match="cannot describe photos"):
        read_labelled(photos, load("teach=null", "data={summaries: [a.jsonl]}"))


def test_the_prompt_of_a_model_card_is_that_of_stage_b() -> None:
    rules, question = TASK.describe_prompt(load())
    known = QUESTIONS.ask_of_group(MISSION, LINES, group="g", label=None)
    assert rules == known.prompt[0]
    mission = QUESTIONS.missions[MISSION]
    filled = question.text.replace("{{ mission }}", MISSION)
    filled = filled.replace("{{ key_points }}", "；".join(mission.key_points))
    filled = filled.replace("{{ description }}", LINES["图片_1"]).replace(
        "…", "图片_2: 「无关图片」"
    )
    asked = known.prompt[1].text.replace("…", "图片_2: 「无关图片」")
    assert json.dumps(filled) == json.dumps(asked)
