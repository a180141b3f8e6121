"""Whole tiny runs of visual_reasoning, studies of several, and what steps read."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from faulty_server import MODEL, Fault
from made_once import make_once
from made_predictions import predict
from PIL import Image
from plan_keys import list_done, read_config
from recipe_plans import list_all_steps
from recipe_runs import TINY_SCENES as TINY
from recipe_runs import RecipeJob
from statement_sets import draw_two, make_row, write_rel3d, write_spatialsense, write_vsr

from groupwise.core import open_picture, read_json, write_jsonl
from groupwise.data.examples import read_examples
from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.predictions import Policies, RunPolicy, read_policies, read_predictions
from groupwise.evaluation.report.page import Table
from groupwise.rewards import Box, BoxParser
from groupwise.rewards.audit.audit import audit_rewards
from groupwise_recipes.visual_reasoning.asking import prepare_rows
from groupwise_recipes.visual_reasoning.config import LABELS
from groupwise_recipes.visual_reasoning.inputs import prepare_inputs
from groupwise_recipes.visual_reasoning.rows import RowError, write_rows
from groupwise_recipes.visual_reasoning.sections import make_source_sections
from groupwise_recipes.visual_reasoning.study_tables import read_tables
from groupwise_recipes.visual_reasoning.task import TASK


@pytest.mark.slow
def test_a_reward_without_the_answer_is_refused(tmp_path):
    job = RecipeJob("visual_reasoning", {**TINY, "rewards.accuracy": 0}, "grounding")
    done = job.run(tmp_path / "run", "--until", "audit_rewards")
    assert done.returncode == 2
    assert "the reward audit found" in done.stderr


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """A finished run of the study; only to be read."""
    job = RecipeJob("visual_reasoning", TINY, "grounding")
    return make_once("scenes", tmp_path_factory, lambda to: job.finish(to / "run")) / "run"


@pytest.mark.slow
def test_every_policy_is_measured_by_its_boxes(scenes, tmp_path):
    run = scenes
    assert list_done(run) == list_all_steps("visual_reasoning", tmp_path)
    found = read_predictions(run / "evaluate" / "predictions.jsonl")
    assert {"sft", "sft_control", "grpo", "other_scene", "majority"} <= {o.policy for o in found}
    assert all("box_iou" in one.scores for one in found if one.policy in ("sft", "other_scene"))
    assert all(one.pair for one in found)
    named = {row["name"] for row in read_json(run / "evaluate" / "metrics.json", list)}
    assert {"other_scene/box_iou", "other_scene/alignment", "grpo/pair_accuracy"} <= named
    assert "sft_control/alignment" not in named
    assert "Does the reasoning entail the answer?" in (run / "report.md").read_text()


@pytest.mark.slow
def test_a_policy_is_measured_on_labelled_rows_of_somebody_else(scenes, tmp_path, command_line):
    known = next(one for one in read_examples(scenes / "prepare" / "train.jsonl"))
    shown = str(known.pictures[0].path)
    rows = [{"picture": shown, "text": "A cup is left of a box.", "answers": True}]
    for number in range(5):
        draw_two(tmp_path / f"{number}.png", number, is_left=True)
        told = {"picture": f"{number}.png", "text": f"The cup {number} is left of the box."}
        rows.append({**told, "answers": "True" if number % 2 else [False], "relation": "left of"})
    rows += [{**rows[1]}, {"picture": "0.png", "text": "No answer."}]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    done = command_line.succeed("evaluate", scenes, "rows.jsonl", "--out", "out")
    assert "8 rows, 6 asked" in done.stdout
    assert "not used: 1 no column answers" in done.stderr
    assert "not used: 1 repeats another row" in done.stderr
    assert "seen in training: 1 rows" in done.stdout
    sizes = {r["name"]: r["n"] for r in read_json(tmp_path / "out/evaluate/metrics.json", list)}
    assert sizes["grpo/accuracy"] == sizes["majority/accuracy"] == 6
    assert sizes["grpo/accuracy[seen_in_training=no]"] == 5
    # Rows have no boxes, and rules judge the words of drawn scenes alone.
    assert not any("box_iou" in name or "alignment" in name for name in sizes)
    page = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    [left] = [line for line in page.splitlines() if "what these rows cannot tell" in line]
    for part in ("IoU of boxes in the reasoning", "Reasoning entails the answer", "Pair accuracy"):
        assert part in left


@pytest.fixture
def server(serve):
    """A judge whose third reply to a question is a verdict, after two that are none.

    It counts by question: which of those asked at once comes first is chance.
    """
    asked = Counter()

    def answer(request):
        question = json.dumps(request["messages"])
        asked[question] += 1
        return Fault(("aligned", "{}", FAULTY)[(asked[question] - 1) % 3])

    return serve(answer)


FAULTY = '{"aligns": false, "type": "other", "why": "so"}'


@pytest.mark.slow
def test_a_model_judges_what_is_rewarded_and_what_is_measured(server, tmp_path):
    judged = {
        "sft.targets": "words",
        "rewards.box_iou": 0,
        "rewards.alignment": 0.2,
        "alignment.judge": "model",
        "alignment.model.server": json.dumps({"url": server.url, "model": MODEL}),
        "alignment.settings.retry.base_delay_s": 0.001,
    }
    job = RecipeJob("visual_reasoning", {**TINY, **judged}, "grounding")
    run = job.finish(tmp_path / "run")
    found = read_predictions(run / "evaluate" / "predictions.jsonl")
    said = [one.fields["entailment"] for one in found if "entailment" in one.fields]
    assert {one["type"] for one in said if one["aligns"] is False} == {"other"}
    assert all(one["type"] is None for one in said if one["aligns"] is None)
    assert all(
        ("alignment" in o.scores) == (o.fields["entailment"]["aligns"] is not None)
        for o in found
        if "entailment" in o.fields
    )
    assert f"by the model `{MODEL} at {server.url}`" in (run / "report.md").read_text()
    assert read_json(run / "grpo" / "judge.json", dict)["judge"] == "entailment judge"


@pytest.mark.slow
def test_grpo_can_start_from_the_base(tmp_path):
    settings = {name: value for name, value in TINY.items() if not name.startswith("sft.")}
    job = RecipeJob(
        "visual_reasoning", {**settings, "sft": "null", "vision_epochs": 0}, "grounding"
    )
    run = job.finish(tmp_path / "run")
    assert not (run / "prepare" / "warmup.jsonl").exists()
    source = read_json(run / "prepare" / "source.json", dict)
    splits = [read_examples(run / f"prepare/{n}.jsonl") for n in ("train", "validation", "test")]
    assert sum(map(len, splits)) == source["num_rows"]
    listed = {one.name: one.inapplicable for one in read_policies(run).listed}
    assert listed["grpo"] == listed["prompt"] == ()
    assert listed["majority"] == ("alignment",)


SMALL = ("model.base=tiny-qwen2.5-vl", "data.drawn.num_pairs=12", "data.drawn.num_test_pairs=3")


def is_written_so(case):
    return lambda example, answer: float(answer.text == case.write(example, str(example.label)))


def is_named(case):
    return lambda example, answer: float(str(example.label) in answer.text)


@pytest.mark.parametrize(
    "study", ["bias", "grounding", pytest.param("transfer", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("make", "fault"),
    [(is_written_so, "reward/stricter-than-metric"), (is_named, "reward/laxer-than-metric")],
)
def test_rewards_that_differ_from_the_metric_are_refused(tmp_path, study, make, fault):
    config = read_config("visual_reasoning", study, *SMALL)
    prepare_rows(config, tmp_path)
    case = TASK.make_case(config, tmp_path)
    assert audit_rewards(case).errors == ()
    errors = audit_rewards(replace(case, rewards=make(case))).errors
    assert fault in {finding.name for finding in errors}


def run_tiny(study, folder, **settings):
    """Run a study to its end and return the names of its metrics."""
    run = RecipeJob("visual_reasoning", {**TINY, **settings}, study).finish(folder / "run")
    return {row["name"] for row in read_json(run / "evaluate" / "metrics.json", list)}


CHANGES = (["data.keep=0"], ["inputs=[depth, boxes]", "sft.epochs=50"])


@pytest.mark.parametrize(
    ("study", "changes"),
    [
        ("bias", CHANGES),
        ("transfer", CHANGES),
        ("grounding", [["sft.epochs=10", "rewards.format=0", "rewards.box_iou=0"]]),
    ],
)
def test_the_real_study_is_previewed_without_its_model(study, changes):
    for overrides in ([], *changes):
        config = read_config("visual_reasoning", f"{study}-qwen2.5-vl-3b", *overrides)
        assert TASK.preview(config).problems == []


@pytest.mark.slow
@pytest.mark.parametrize("table", read_tables(), ids=lambda table: table.name)
def test_no_arm_of_a_table_is_refused(table, vision_folder):
    """Prompts of some arms are longer than those of the others."""
    base = "tiny-qwen2.5-vl" if table.name == "grounding" else vision_folder
    small = [f"model.base={base}", "data.drawn.num_pairs=40", "data.drawn.num_test_pairs=8"]
    arms = {(*table.settings, *row.settings) for row in table.rows}
    for settings in sorted(arms):
        if not any(one.startswith("sft.traces=") for one in settings):  # of a finished run
            config = read_config("visual_reasoning", table.config, *settings, *small)
            assert TASK.preview(config).problems == []


def test_data_that_are_not_there_are_named_in_a_sentence(command_line, tmp_path):
    settings = {"data.drawn": "null", "data.vsr.path": tmp_path / "nowhere"}
    job = RecipeJob("visual_reasoning", settings, "bias")
    done = command_line(*job.list_arguments(tmp_path / "run"))
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_biased_training_is_told_by_what_the_bias_says(tmp_path):
    names = run_tiny("bias", tmp_path)
    for policy in ("majority", "sft", "grpo"):
        assert {f"{policy}/accuracy[bias={side}]" for side in ("aligned", "conflicting")} <= names
    found = read_json(tmp_path / "run" / "audit" / "audit.json", dict)["findings"]
    assert "text_probe_of_relation_in_sample" in {one["name"] for one in found}
    assert "aligned" in (tmp_path / "run" / "report.md").read_text("utf-8")


@pytest.mark.slow
def test_transfer_is_told_by_test_set(tmp_path):
    names = run_tiny("transfer", tmp_path)
    for measure in ("accuracy", "pair_accuracy", "invalid_rate"):
        for style in ("flat", "textured"):
            assert {f"{p}/{measure}[source=drawn_{style}]" for p in ("sft", "grpo")} <= names
    page = (tmp_path / "run" / "report.md").read_text("utf-8")
    assert "Each test set by itself" in page
    assert "Pair accuracy on drawn\\_textured" in page


@pytest.mark.slow
def test_a_published_checkpoint_is_measured_by_one_command(vision_folder, command_line):
    small = {name: value for name, value in TINY.items() if name.startswith(("data", "eval"))}
    settings = {**small, "checkpoint": "grpo", "rewards.alignment": 0}
    words = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command_line.succeed(
        *("sweep", "visual_reasoning", "--config", "alignment", *words),
        *("--grid", f"model.base={vision_folder}", "--out", "study"),
    )
    [run] = [path.parent for path in Path("study").glob("**/evaluate")]
    assert not {"sft", "grpo", "sft_control"} & {path.name for path in run.iterdir()}
    page = (run / "report.md").read_text(encoding="utf-8")
    assert "Published checkpoint" in page
    [line, *_] = [
        line
        for line in Path("study/study.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| GRPO |")
    ]
    assert "| 0.00\u00a0% (0.00–" in line
    assert "86.47\u00a0% (−86.47 points measured − published · n 340)" in line
    done = command_line("run", "visual_reasoning", "--config", "alignment", *words, "--dry-run")
    assert "grpo steps" not in done.stdout


def run_published(study, folder, settings):
    """Run a study on made sets, tiny, and return the number of items by metric."""
    tiny = {name: value for name, value in TINY.items() if "drawn" not in name}
    shared = {"data.drawn": "null", "sft.targets": "answer", "data.budget.max_prompt_tokens": 256}
    job = RecipeJob("visual_reasoning", {**tiny, **shared, **settings}, study)
    run = job.finish(folder / "run")
    rows = read_json(run / "evaluate" / "metrics.json", list)
    return {row["name"]: row["n"] for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "num_dropped"), [("0.6", 9), ("0", 18)])
def test_biased_vsr_runs_with_pictures(tmp_path, keep, num_dropped):
    settings = write_vsr(tmp_path / "vsr", num_train=54, num_others=18)
    sizes = run_published("bias", tmp_path, {**settings, "data.keep": keep})
    assert sizes["grpo/accuracy[bias=aligned]"] == 12
    assert sizes["grpo/accuracy[bias=conflicting]"] == 6
    drops = read_json(tmp_path / "run" / "prepare" / "source.json", dict)["drops"]
    assert list(drops["counts"].values()) == [num_dropped]


@pytest.mark.slow
@pytest.mark.parametrize("inputs", ["[]", "[boxes]", "[depth, boxes]"])
def test_rel3d_to_spatialsense_runs_with_pictures(tmp_path, inputs):
    settings = write_rel3d(tmp_path / "rel3d", num_train=24, num_others=6)
    settings |= write_spatialsense(tmp_path / "sense", num_pictures=6)
    splits = {"data.spatialsense.splits": "{test: test}", "inputs": inputs}
    sizes = run_published("transfer", tmp_path, {**settings, **splits})
    assert sizes["grpo/accuracy[source=rel3d]"] == 12
    assert sizes["grpo/pair_accuracy[source=rel3d]"] == 6
    assert "grpo/pair_accuracy[source=spatialsense]" not in sizes
    has_photos = "grpo/accuracy[source=spatialsense]" in sizes
    assert has_photos == ("depth" not in inputs)
    drops = read_json(tmp_path / "run" / "prepare" / "source.json", dict)["drops"]["counts"]
    assert drops == ({} if has_photos else {"no depth picture": 12})


POLICIES = Policies((RunPolicy(name="grpo", title="GRPO", title_zh="GRPO", kind="trained"),))


def answer(source, answers):
    """Answer pairs whose first half is true and whose second is false."""
    return [
        predict(
            f"{source}-{n}",
            "grpo",
            LABELS[n % 2],
            said,
            cluster=f"{n // 2}",
            reason="" if said else "no answer",
            pair=f"{source} {n // 2}",
            fields={"source": source},
        )
        for n, said in enumerate(answers)
    ]


def make(predictions):
    metrics = compute_metrics(predictions, labels=LABELS, slices=("source",))
    return make_source_sections(metrics, POLICIES)


def test_each_test_set_has_its_own_columns():
    flat = answer("flat", ["True", "False", "True", "False", "True", "True"])
    textured = answer("textured", ["True", "True", "False", None, "False", "False"])
    english, chinese = make([*flat, *textured])
    assert (english.language, chinese.language) == ("en", "zh")
    (table,) = english.tables
    assert isinstance(table, Table)
    assert [str(name) for name in table.head[1:]] == [
        f"{measure} on {source}"
        for measure in ("Accuracy", "Pair accuracy", "Invalid answers")
        for source in ("flat", "textured")
    ]
    (row,) = table.rows
    shares = [str(cell).split()[0] for cell in row[1:]]
    assert shares == ["83.3", "33.3", "66.7", "0.0", "0.0", "16.7"]


def test_the_iou_of_boxes_is_told_by_test_set_and_one_set_needs_no_table():
    rows = [*answer("flat", ["True", "False"]), *answer("textured", ["True", "False"])]
    rows = [replace(one, scores={"box_iou": n / 4}) for n, one in enumerate(rows)]
    (table,) = make([*rows, *answer("no boxes", ["True", "False"])])[0].tables
    assert isinstance(table, Table)
    columns = dict(zip(table.head, map(str, table.rows[0]), strict=True))
    assert columns["IoU of boxes on flat"].startswith("12.5")
    assert columns["IoU of boxes on textured"].startswith("62.5")
    assert "IoU of boxes on no boxes" not in columns
    assert make(answer("flat", ["True", "False"])) == []


def configure(*overrides):
    return read_config("visual_reasoning", "transfer", *SMALL, *overrides)


def test_depth_is_the_second_picture_and_boxes_end_the_question(tmp_path):
    plain, more = configure(), configure("inputs=[depth, boxes]")
    prepare_rows(plain, tmp_path / "plain")
    prepare_rows(more, tmp_path / "more")
    pairs = zip(
        *(read_examples(tmp_path / name / "test.jsonl") for name in ("plain", "more")), strict=True
    )
    for one, two in pairs:
        picture, depth = two.pictures
        assert [picture] == list(one.pictures)
        assert set(np.unique(np.asarray(open_picture(depth)))) <= {0, 128, 255}
        question, places = two.prompt[-1].text.rsplit("\n", 1)
        assert question == one.prompt[-1].text
        found = BoxParser(words=True).parse(places).value
        assert found == tuple(Box(*box) for box in two.fields["boxes"])
    assert TASK.estimate(more).tokens_per_prompt > TASK.estimate(plain).tokens_per_prompt


def make_shown(folder, number, size=(200, 100)):
    path, depth = folder / f"{number}.png", folder / f"{number}-depth.png"
    Image.new("RGB", size, (number, 0, 0)).save(path)
    Image.new("L", size, number).save(depth)
    shown = {"picture": path, "depth": depth, "picture_size": (400, 200), "relation": "left of"}
    boxes = (Box(100, 50, 200, 150, "cup"), Box(300, 20, 400, 200, "box"))
    return make_row(number, "The cup is left of the box.", bool(number % 2), boxes=boxes, **shown)


def test_boxes_are_written_as_the_model_counts_and_rows_without_inputs_are_dropped(tmp_path):
    for offset, split in enumerate(("train", "validation", "test")):
        rows = [make_shown(tmp_path, 10 * offset + n) for n in range(8)]
        rows[0] = replace(rows[0], depth=None)
        rows[1] = replace(rows[1], boxes=None)
        write_rows(tmp_path / f"{split}.jsonl", rows)
    places = ("data.drawn=null", f"data.rows.path={tmp_path}", "model.max_pixels=65536")
    prepare_rows(configure(*places, "inputs=[depth, boxes]"), tmp_path / "out")
    drops = read_json(tmp_path / "out" / "source.json", dict)["drops"]["counts"]
    assert drops == {"no boxes to show": 3, "no depth picture": 3}
    for example in read_examples(tmp_path / "out" / "test.jsonl"):
        width, height = example.fields["seen_size"]
        assert (width, height) != (400, 200)
        line = example.prompt[-1].text.splitlines()[-1]
        first = f"[{width // 4},{height // 4},{width // 2},{3 * height // 4} cup]"
        assert line.startswith(first), line


@pytest.mark.parametrize(("kind", "end"), [(np.float32, "tiff"), (np.uint16, "png")])
def test_depth_of_more_than_8_bits_is_stretched(tmp_path, kind, end):
    row = make_shown(tmp_path, 1)
    depth = tmp_path / f"depth.{end}"
    values = np.linspace(2.5, 20002.5, 20000).astype(kind).reshape(100, 200)
    Image.fromarray(values).save(depth)
    shown = prepare_inputs(replace(row, depth=depth), ("depth",), tmp_path / "stored")
    assert shown.depth is not None
    seen = np.asarray(Image.open(shown.depth))
    assert (seen.dtype, seen.min(), seen.max(), seen.shape) == (np.uint8, 0, 255, (100, 200))
    assert (np.diff(seen.reshape(-1).astype(int)) >= 0).all()
    assert prepare_inputs(row, ("depth",), tmp_path) == row
    assert prepare_inputs(replace(row, depth=None), (), tmp_path).depth is None
    with pytest.raises(RowError, match="has no depth picture"):
        prepare_inputs(replace(row, depth=None), ("depth",), tmp_path)


def test_boxes_that_are_shown_are_not_paid_for():
    with pytest.raises(Exception, match=r"rewards\.box_iou would pay for copying"):
        configure("inputs=[boxes]", "rewards.box_iou=0.5")
