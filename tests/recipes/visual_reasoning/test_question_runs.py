"""Questions with choices from A-OKVQA and DrivingVQA: prepared, taught, rewarded, measured."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from question_sets import list_settings, write_aokvqa, write_drivingvqa
from recipe_runs import TINY_SCENES, RecipeJob

from groupwise.core import Completion, Example, load_config, read_json
from groupwise.data import read_examples
from groupwise.evaluation.predictions import read_predictions
from groupwise.rewards import audit_rewards
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER
from groupwise_recipes.visual_reasoning.asking import prepare_rows
from groupwise_recipes.visual_reasoning.box_rivals import predict_one_place, predict_other_scene
from groupwise_recipes.visual_reasoning.choices import name_longest
from groupwise_recipes.visual_reasoning.config import VisualConfig
from groupwise_recipes.visual_reasoning.measuring import mark_answer, measure_boxes
from groupwise_recipes.visual_reasoning.task import VisualReasoning
from groupwise_recipes.visual_reasoning.teaching import (
    make_warmup_rows,
    read_warmup,
    write_target,
)

GROUNDING = (
    Path(__file__).parents[3] / "src/groupwise_recipes/visual_reasoning/configs/grounding.yaml"
)
SHARED = {"vision_epochs": 0, "model.max_pixels": 65536, "data.budget.max_prompt_tokens": 256}


def configure(folder: Path, *, num_train: int) -> dict[str, object]:
    aokvqa = write_aokvqa(folder / "aokvqa", num_train=num_train, num_val=6)
    drivingvqa = write_drivingvqa(folder / "driving", num_train=2, num_test=6)
    return {**list_settings(aokvqa, drivingvqa), **SHARED}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> VisualConfig:
    settings = configure(tmp_path_factory.mktemp("sets"), num_train=24)
    overrides = [f"{key}={value}" for key, value in settings.items()]
    return load_config(VisualConfig, GROUNDING, overrides=overrides)


@pytest.fixture(scope="module")
def prepared(config: VisualConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare_rows(config, folder)
    return folder


@pytest.fixture
def test_items(prepared: Path) -> list[Example]:
    return read_examples(prepared / "test.jsonl")


def test_choices_stand_on_lines_and_both_sets_are_tested(test_items: list[Example]) -> None:
    assert Counter(one.fields["source"] for one in test_items) == {"aokvqa": 6, "drivingvqa": 6}
    by_source = {str(one.fields["source"]): one for one in test_items}
    text = by_source["drivingvqa"].prompt[-1].text
    assert "I can:\nA. turn\nB. stop\nC. pass\n" in text
    assert {one.label for one in test_items} == {"A", "B", "C", "D", "A, C"}


def test_people_s_reasoning_is_taught_behind_the_boxes(prepared: Path) -> None:
    rows = make_warmup_rows(read_warmup(prepared), "boxes")
    assert len(rows) > 8
    for row in rows:
        example, number = row.example, int(str(row.example.prompt[-1].text).split()[4])
        assert QUESTION_PARSER.measure(example, row.target) == 1
        assert ("The thing shines.</think>" in row.target) == bool(number % 2)
        assert ("<think>[" in row.target) == bool(number % 3)
        if number % 3:
            assert measure_boxes(example, row.target)["box_iou"] > 0.8


def test_rows_without_boxes_are_told_and_left_out_of_boxes_alone(
    config: VisualConfig, prepared: Path, test_items: list[Example]
) -> None:
    found = {one.name: one for one in VisualReasoning().find_in_data(config, prepared)}
    boxless = found["rows_without_boxes"]
    assert (boxless.level, boxless.where[-1]) == ("info", "test: 2 of 12")
    assert found["rows_without_reasoning"].level == "info"
    rewards = VisualReasoning().rewards(config)
    for example in test_items:
        right = QUESTION_PARSER.write(str(example.label))
        score = rewards.score(example, Completion(right))
        has_boxes = "boxes" in example.fields
        assert score.value == pytest.approx(0.4 if has_boxes else 1)
        assert (score.breakdown["box_iou"] is None) != has_boxes
        assert measure_boxes(example, right) == ({"box_iou": 0.0} if has_boxes else {})


def test_boxes_of_answers_are_marked_where_the_picture_has_them(test_items: list[Example]) -> None:
    verdict = {"aligns": False, "type": "irrelevant", "why": "It is of another thing."}
    for example in test_items:
        marks = mark_answer(example, write_target(example, "boxes"), verdict)
        assert marks["remark"]["en"].endswith("does not entail the answer: It is of another thing.")
        assert ("answer" in marks) == ("boxes" in example.fields)
        width, height = example.fields.get("picture_size", (0, 0))
        boxes = example.fields.get("boxes", [])
        for box, reference, said in zip(
            boxes, marks.get("reference", []), marks.get("answer", []), strict=True
        ):
            sides = [box[0] / width, box[1] / height, box[2] / width, box[3] / height]
            assert reference == [*(round(side, 4) for side in sides), box[4]]
            assert said[:4] == pytest.approx(sides, abs=0.01)
    assert mark_answer(test_items[0], "nothing", None).get("answer", []) == []


def test_names_count_in_drawn_scenes_alone(test_items: list[Example]) -> None:
    boxed = [one for one in test_items if "boxes" in one.fields]
    for example in boxed:
        target = write_target(example, "boxes")
        other = re.sub(r"(\d) \w+\]", r"\1 thing]", target)
        assert other != target
        assert measure_boxes(example, other) == measure_boxes(example, target)
        drawn = replace(example, fields={**example.fields, "source": "drawn_flat"})
        assert measure_boxes(drawn, target) == measure_boxes(example, target)
        assert measure_boxes(drawn, other) == {"box_iou": 0}


def test_another_scene_answers_what_it_can(test_items: list[Example]) -> None:
    found = predict_other_scene(test_items)
    assert [one.example_id for one in found] == [one.id for one in test_items]
    for example, one in zip(test_items, found, strict=True):
        iou = measure_boxes(example, one.text)
        assert bool(iou) == ("boxes" in example.fields)
        assert iou.get("box_iou", 0) < 0.95
        assert one.predicted == QUESTION_PARSER.parse(one.text, example).label


def test_one_place_answers_what_it_can(test_items: list[Example]) -> None:
    for example, one in zip(test_items, predict_one_place(test_items, test_items), strict=True):
        assert bool(measure_boxes(example, one.text)) == ("boxes" in example.fields)


def test_choices_alone_are_a_rival_of_questions(
    config: VisualConfig, test_items: list[Example]
) -> None:
    train = [replace(one, label=name_longest(one)) for one in test_items]
    context: Any = None
    found = VisualReasoning().predict_baselines(config, context, train, test_items)
    answers = {one.example_id: one.predicted for one in found if one.policy == "choices"}
    assert answers == {one.id: one.label for one in train}
    assert "choices" in [one.name for one in VisualReasoning.baselines]


def test_the_rewards_of_the_study_pass_their_audit(config: VisualConfig, prepared: Path) -> None:
    assert audit_rewards(VisualReasoning().make_case(config, prepared)).errors == ()


def test_a_reward_that_is_stricter_or_laxer_than_the_metric_is_refused(
    config: VisualConfig, prepared: Path
) -> None:
    case = VisualReasoning().make_case(config, prepared)

    def is_written_so(example: Example, answer: Completion) -> float:
        return float(answer.text == case.write(example, str(example.label)))

    def names_it(example: Example, answer: Completion) -> float:
        return float(str(example.label) in answer.text.partition("<answer>")[2])

    for rewards, fault in ((is_written_so, "stricter"), (names_it, "laxer")):
        errors = audit_rewards(replace(case, rewards=rewards)).errors
        assert f"reward/{fault}-than-metric" in {finding.name for finding in errors}


def test_a_dry_run_knows_rows_and_lengths(config: VisualConfig) -> None:
    found = VisualReasoning().estimate(config)
    assert found.sources["test"] == {"aokvqa": 6, "drivingvqa": 6}
    # The training half of DrivingVQA is not even read.
    assert ("rows", "36 of 36 used") in found.facts
    assert 60 < found.tokens_per_prompt < 120


def test_the_real_study_is_previewed_without_its_model() -> None:
    real = GROUNDING.with_name("grounding-qwen2.5-vl-3b.yaml")
    for overrides in ([], ["sft.epochs=10", "rewards.format=0", "rewards.box_iou=0"]):
        preview = VisualReasoning().preview(load_config(VisualConfig, real, overrides=overrides))
        assert preview.problems == []


@pytest.mark.slow
def test_a_run_on_both_sets_measures_boxes_in_and_out_of_domain(tmp_path: Path) -> None:
    tiny = {key: value for key, value in TINY_SCENES.items() if "drawn" not in key}
    settings = {**configure(tmp_path, num_train=60), **tiny}
    run = RecipeJob("visual_reasoning", settings, "grounding").finish(tmp_path / "run")
    rows = {one["name"]: one for one in read_json(run / "evaluate" / "metrics.json", list)}
    for policy in ("sft", "grpo", "majority"):
        for source in ("aokvqa", "drivingvqa"):
            found = rows[f"{policy}/accuracy[source={source}]"]
            assert found["n"] == 6
            assert found["low"] <= found["value"] <= found["high"]
    assert rows["other_scene/box_iou"]["n"] == rows["one_place/box_iou"]["n"] == 10
    predictions = read_predictions(run / "evaluate" / "predictions.jsonl")
    assert all(
        ("box_iou" in one.scores) == ("boxes" in one.fields)
        for one in predictions
        if one.policy == "grpo"
    )
    assert "rows have no reference boxes" in (run / "report.md").read_text(encoding="utf-8")
