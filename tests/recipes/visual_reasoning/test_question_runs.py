"""Runs of visual_reasoning on questions, and their traces."""

import re
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from plan_keys import read_config
from question_sets import list_settings, write_aokvqa, write_drivingvqa
from recipe_runs import TINY_SCENES, RecipeJob

from groupwise.core import (
    Completion,
    ConfigError,
    DataError,
    Message,
    digest_file,
    make_example,
    read_json,
    write_json,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.predictions import read_predictions
from groupwise.models.base_model import find_weights
from groupwise.models.tiny import write_tiny_policy
from groupwise.rewards.audit.audit import audit_rewards
from groupwise.training.settings import SftRow
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER
from groupwise_recipes.visual_reasoning.asking import prepare_rows
from groupwise_recipes.visual_reasoning.box_rivals import predict_one_place, predict_other_scene
from groupwise_recipes.visual_reasoning.choices import name_longest
from groupwise_recipes.visual_reasoning.measuring import mark_answer, measure_boxes
from groupwise_recipes.visual_reasoning.task import TASK, VisualReasoning
from groupwise_recipes.visual_reasoning.teaching import make_warmup_rows, read_warmup, write_target
from groupwise_recipes.visual_reasoning.traces import add_trace, find_traced, teach_traces

SHARED = {"vision_epochs": 0, "model.max_pixels": 65536, "data.budget.max_prompt_tokens": 256}


def configure(folder, *, num_train):
    aokvqa = write_aokvqa(folder / "aokvqa", num_train=num_train, num_val=6)
    drivingvqa = write_drivingvqa(folder / "driving", num_train=2, num_test=6)
    return {**list_settings(aokvqa, drivingvqa), **SHARED}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    settings = configure(tmp_path_factory.mktemp("sets"), num_train=24)
    overrides = [f"{key}={value}" for key, value in settings.items()]
    return read_config("visual_reasoning", "grounding", *overrides)


@pytest.fixture(scope="module")
def prepared(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    prepare_rows(config, folder)
    return folder


@pytest.fixture
def test_items(prepared):
    return read_examples(prepared / "test.jsonl")


def test_choices_stand_on_lines_and_both_sets_are_tested(test_items):
    assert Counter(one.fields["source"] for one in test_items) == {"aokvqa": 6, "drivingvqa": 6}
    by_source = {str(one.fields["source"]): one for one in test_items}
    text = by_source["drivingvqa"].prompt[-1].text
    assert "I can:\nA. turn\nB. stop\nC. pass\n" in text
    assert {one.label for one in test_items} == {"A", "B", "C", "D", "A, C"}


def test_people_s_reasoning_is_taught_behind_the_boxes(prepared):
    rows = make_warmup_rows(read_warmup(prepared), "boxes")
    assert len(rows) > 8
    for row in rows:
        example, number = row.example, int(str(row.example.prompt[-1].text).split()[4])
        assert QUESTION_PARSER.measure(example, row.target) == 1
        assert ("The thing shines.</think>" in row.target) == bool(number % 2)
        assert ("<think>[" in row.target) == bool(number % 3)
        if number % 3:
            assert measure_boxes(example, row.target)["box_iou"] > 0.8


def test_rows_without_boxes_are_told_and_left_out_of_boxes_alone(config, prepared, test_items):
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


def test_boxes_of_answers_are_marked_where_the_picture_has_them(test_items):
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


def test_names_count_in_drawn_scenes_alone(test_items):
    boxed = [one for one in test_items if "boxes" in one.fields]
    for example in boxed:
        target = write_target(example, "boxes")
        other = re.sub(r"(\d) \w+\]", r"\1 thing]", target)
        assert other != target
        assert measure_boxes(example, other) == measure_boxes(example, target)
        drawn = replace(example, fields={**example.fields, "source": "drawn_flat"})
        assert measure_boxes(drawn, target) == measure_boxes(example, target)
        assert measure_boxes(drawn, other) == {"box_iou": 0}


def test_another_scene_and_one_place_answer_what_they_can(test_items):
    found = predict_other_scene(test_items)
    assert [one.example_id for one in found] == [one.id for one in test_items]
    place = predict_one_place(test_items, test_items)
    for example, one, same in zip(test_items, found, place, strict=True):
        iou = measure_boxes(example, one.text)
        assert bool(iou) == bool(measure_boxes(example, same.text)) == ("boxes" in example.fields)
        assert iou.get("box_iou", 0) < 0.95
        assert one.predicted == QUESTION_PARSER.parse(one.text, example).label


def test_choices_alone_are_a_rival_of_questions(config, test_items):
    train = [replace(one, label=name_longest(one)) for one in test_items]
    context = None
    found = VisualReasoning().predict_baselines(config, context, train, test_items)
    answers = {one.example_id: one.predicted for one in found if one.policy == "choices"}
    assert answers == {one.id: one.label for one in train}
    assert "choices" in [one.name for one in VisualReasoning.baselines]


def test_a_reward_that_is_stricter_or_laxer_than_the_metric_is_refused(config, prepared):
    case = VisualReasoning().make_case(config, prepared)
    assert audit_rewards(case).errors == ()

    def is_written_so(example, answer):
        return float(answer.text == case.write(example, str(example.label)))

    def names_it(example, answer):
        return float(str(example.label) in answer.text.partition("<answer>")[2])

    for rewards, fault in ((is_written_so, "stricter"), (names_it, "laxer")):
        errors = audit_rewards(replace(case, rewards=rewards)).errors
        assert f"reward/{fault}-than-metric" in {finding.name for finding in errors}


def test_a_dry_run_knows_rows_and_lengths(config):
    found = VisualReasoning().estimate(config)
    assert found.sources["test"] == {"aokvqa": 6, "drivingvqa": 6}
    # The training half of DrivingVQA is not even read.
    assert ("rows", "36 of 36 used") in found.facts
    assert 60 < found.tokens_per_prompt < 120


@pytest.mark.slow
def test_a_run_on_both_sets_measures_boxes_in_and_out_of_domain(tmp_path):
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


TINY = {**TINY_SCENES, "data.drawn.num_pairs": 40, "sft.epochs": 3}
FULL = {"sft.trainable.method": "full", "grpo.trainable.method": "full"}


def run_until(step, out, **settings):
    done = RecipeJob("visual_reasoning", {**TINY, **settings}, "prompts").run(out, "--until", step)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def examples():
    """Three statements with a trace of each grade; the last is cut off."""
    asked = [
        make_example([Message("user", text)], cluster=text, label="True")
        for text in ("a", "b", "c")
    ]
    right, wrong = (QUESTION_PARSER.write(label) for label in ("True", "False"))
    return [
        add_trace(asked[0], right, is_finished=True),
        add_trace(asked[1], wrong, is_finished=True),
        add_trace(asked[2], "Well", is_finished=False),
    ]


def test_traces_are_taught_all_or_the_correct_ones(examples):
    right, wrong = (QUESTION_PARSER.write(label) for label in ("True", "False"))
    first = SftRow(examples[0], right)
    assert teach_traces(examples, kept="correct") == [first]
    assert teach_traces(examples, kept="all") == [
        first,
        SftRow(examples[1], wrong),
        SftRow(examples[2], "Well", is_finished=False),
    ]
    with pytest.raises(DataError, match=r"no trace is correct; got 2 traces"):
        teach_traces(examples[1:], kept="correct")


def test_a_run_without_a_finished_grpo_is_refused(tmp_path):
    (tmp_path / "grpo" / "policy").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"sft\.traces is no run with a finished GRPO"):
        find_traced(tmp_path)
    (tmp_path / "grpo" / "step.json").touch()
    assert find_traced(tmp_path) == tmp_path / "grpo" / "policy"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run with a finished GRPO; only to be read."""
    return run_until("grpo", tmp_path_factory.mktemp("traced") / "source", **FULL)


@pytest.mark.slow
def test_virtual_tokens_are_taught_the_traces_of_a_run(source, tmp_path):
    settings = {
        "sft.traces": source,
        "sft.traces_kept": "all",
        "model.base": source / "sft" / "policy",
        "sft.trainable.method": "prompt",
        "sft.epochs": 1,
    }
    taught = run_until("sft", tmp_path / "taught", **settings)
    counts = read_json(taught / "prepare" / "traces.json", dict)
    warmup = read_examples(taught / "prepare" / "warmup.jsonl")
    assert sum(counts.values()) == len(warmup) == len(teach_traces(warmup, kept="all"))
    parts = read_json(taught / "sft" / "trainable.json", list)
    assert {row["part"] for row in parts if row["num_trainable"]} == {"virtual tokens"}


@pytest.mark.slow
def test_traces_are_known_by_what_they_say_and_not_by_where_they_lie(source, tmp_path):
    """As of other data: the digest of the warm-up is compared, and the path is not."""
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(source, copy)

    def prepare(name, run):
        settings = [f"{key}={value}" for key, value in {**TINY, "sft.traces": run}.items()]
        config = read_config("visual_reasoning", "prompts", *settings)
        TASK.prepare(config, tmp_path / name)
        return digest_file(tmp_path / name / "warmup.jsonl"), TASK.inputs(config)

    once = prepare("once", source)
    assert prepare("again", copy) == once
    manifest = read_json(copy / "manifest.json", dict)
    del manifest["digest"]
    manifest["config"]["grpo"]["max_new_tokens"] = 3
    write_json(copy / "manifest.json", manifest)
    assert prepare("shorter", copy)[0] != once[0]


SMALL = ("data.drawn.num_pairs=24", "data.drawn.num_test_pairs=3")
SHAPE = "model.shape={num_parameters: 9, num_blocks: 1}"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The local cache of the hub, with nothing in it; the hub itself is out of reach."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


@pytest.fixture
def call(command_line, cache, tmp_path):
    """Run the study of prompts with a base of the hub; return what it says, and why not."""

    def call(*words):
        settings = [part for one in (*SMALL, "model.base=some/model") for part in ("--set", one)]
        told = ["run", "visual_reasoning", "--config", "prompts", *settings]
        done = command_line(*told, "--out", tmp_path / "run", *words)
        refused = done.stderr if done.returncode else ""
        return " ".join(done.stdout.split()), " ".join(refused.split())

    return call


def test_a_base_out_of_reach_is_one_sentence_and_nothing_is_written(call, tmp_path):
    unknown = "model.base: the model some/model is not on this machine, and the hub cannot be reach"
    gone = "model.base: it is neither a folder nor in the local cache, and the hub cannot be asked"
    assert unknown in call("--dry-run")[1]
    assert unknown in call()[1]
    said, refused = call("--set", SHAPE, "--dry-run")
    assert refused == ""
    assert gone in said
    assert said.endswith("ready: nothing was written")
    refused = call("--set", SHAPE)[1]
    assert gone in refused
    assert "download it first (hf download), or give a folder" in refused
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_base_in_the_cache_is_loaded_by_its_hub_id(call, cache, tmp_path):
    base = write_tiny_policy("tiny-qwen2.5-vl", tmp_path / "base", max_pixels=16384)
    repository = cache / "models--some--model"
    shutil.copytree(base, repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    said, refused = call("--dry-run")
    assert "ready: nothing was written" in said
    assert "at its start" not in said
    assert refused == call("--until", "baselines")[1] == ""
    out = tmp_path / "run"
    assert read_json(out / "manifest.json", dict)["inputs"]["model.base"] == "abc"
    found = read_predictions(out / "baselines" / "predictions.jsonl")
    assert sum(one.policy == "prompt" for one in found) == 6
    assert find_weights("some/model") == repository / "snapshots" / "abc"
