"""A whole tiny run of on_task: what it leaves, says of itself and serves; flips of made streams."""

import importlib.util
import json
from dataclasses import replace

import pytest
import yaml
from made_predictions import predict
from PIL import Image
from plan_keys import list_done, read_config
from recipe_plans import list_all_steps
from recipe_runs import POLICIES, RecipeJob
from run_folders import list_confounding
from tables import read_tables

from groupwise.core import (
    ConfigError,
    DataError,
    RunFolder,
    digest_file,
    dump_config,
    read_json,
    read_jsonl,
    read_picture,
    write_jsonl,
)
from groupwise.data.examples import read_examples
from groupwise.evaluation.fairness import check_fairness, read_facts
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import (
    METRIC_VERSIONS,
    digest_items,
    read_policies,
    read_predictions,
)
from groupwise.evaluation.report.phrases import format_share
from groupwise.evaluation.report.run import write_report
from groupwise.evaluation.results import read_conditions
from groupwise.judges import LogitJudge, NoVerdict, Question, judge_all
from groupwise.run.evaluating import evaluate_on
from groupwise.run.predict import FinishedRun, open_judge, open_run
from groupwise.run.steps import StepContext
from groupwise.serving import Request
from groupwise_drawn.desktops.sets import write_desktops
from groupwise_recipes.on_task.prompt import TIME
from groupwise_recipes.on_task.recipe import recipe
from groupwise_recipes.on_task.screens import (
    ask_about_screen,
    prepare_screens,
    read_labelled_screens,
)
from groupwise_recipes.on_task.task import TASK

TABLES = read_tables(__file__)


def test_every_stage_works_and_the_report_shows_every_policy_measured_on_the_same_items(
    tiny_run, tmp_path
):
    assert list_done(tiny_run) == list_all_steps("on_task", tmp_path)
    rows = read_json(tiny_run / "evaluate" / "metrics.json", list)
    keys = {"name", "split", "value", "low", "high", "n", "split_digest"}
    assert all(set(row) == keys for row in rows)
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    metrics = read_metrics(tiny_run / "evaluate" / "metrics.json")
    accuracies = {m.policy: m for m in metrics if m.measure == "accuracy"}
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    assert set(accuracies) == POLICIES
    assert {m.n for m in accuracies.values()} == {len(test)}
    predictions = read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
    digest = digest_items(p for p in predictions if p.policy == "grpo")
    assert {m.split_digest for m in accuracies.values()} == {digest}
    html = (tiny_run / "report.html").read_text(encoding="utf-8")
    assert f"{accuracies['grpo'].value:.1%}".replace("%", "") in html
    assert digest[:8] in html
    assert (tiny_run / "report.md").read_text(encoding="utf-8").startswith("#")


def test_no_session_is_on_two_sides(tiny_run):
    names = ("train", "validation", "test")
    groups = {
        name: {e.cluster for e in read_examples(tiny_run / "prepare" / f"{name}.jsonl")}
        for name in names
    }
    groups["warmup"] = {row["session"] for row in read_jsonl(tiny_run / "prepare" / "warmup.jsonl")}
    seen = [group for members in groups.values() for group in members]
    assert all(groups.values())
    assert len(seen) == len(set(seen))


def test_manifest_gate_and_logs_are_written(tiny_run):
    manifest = read_json(tiny_run / "manifest.json", dict)
    assert manifest["config"]["data"]["drawn"]["num_sessions"] == 40
    assert {"torch", "transformers", "trl", "groupwise"} <= set(manifest["packages"])
    assert manifest["metric_versions"] == METRIC_VERSIONS
    gate = read_json(tiny_run / "grpo" / "on_policy.json", dict)
    assert gate["num_tokens"] > 0
    assert gate["max_log_ratio"] < 1e-4
    rows = read_jsonl(tiny_run / "grpo" / "metrics.jsonl")
    keys = {"step", "loss", "reward", "reward_std", "dead_groups", "invalid", "entropy"}
    assert keys | {"reward/classification", "reward/format", "tokens_per_s"} <= set(rows[0])
    assert any("heldout/accuracy" in row for row in rows)
    assert "language blocks 0 to 2, each" in (tiny_run / "sft" / "trainable.txt").read_text()


def test_running_again_reuses_every_step(tiny_run, job, command_line):
    before = (tiny_run / "evaluate" / "predictions.jsonl").read_bytes()
    again = command_line.succeed(*job.list_arguments(tiny_run))
    assert again.stderr.count("reused") == len(list_done(tiny_run))
    assert (tiny_run / "evaluate" / "predictions.jsonl").read_bytes() == before


def test_new_rows_are_answered_as_the_test_split_was(tiny_run, tmp_path, command_line):
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    rows = [{"image": str(e.pictures[0].path), "task": e.fields["task"]} for e in test]
    write_jsonl(tmp_path / "rows.jsonl", [*rows, {"task": "no screen"}])
    out = tmp_path / "answers.jsonl"
    done = command_line("predict", f"{tiny_run}:sft", tmp_path / "rows.jsonl", "--out", out)
    assert "1 not asked" in done.stderr
    predictions = read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
    known = {one.example_id: one for one in predictions if one.policy == "sft"}
    answers = read_jsonl(out)
    assert len(answers) == len(test) + 1
    assert "a row needs one screenshot" in answers[-1]["failed"]
    for example, answer in zip(test, answers, strict=False):
        one = known[example.id]
        assert (answer["text"], answer["answer"]) == (one.text, one.predicted)
        if one.probabilities:
            chance = one.probabilities[answer["answer"]]
            assert answer["confidence"] == pytest.approx(chance, abs=1e-5)


@pytest.mark.slow
def test_conditions_tell_what_the_run_read_and_did(tiny_run):
    found = read_conditions(tiny_run)
    assert found is not None
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    assert found.data["test"]["num_rows"] == len(test)
    assert found.data["warmup"]["digest"] == digest_file(tiny_run / "prepare" / "warmup.jsonl")
    assert found.data["train"]["num_rows"] > 0
    assert found.metrics == METRIC_VERSIONS
    assert found.decoding == TABLES["conditions_tell_what_the_run_read_and_did"]
    assert found.base_weights


@pytest.mark.slow
def test_policies_tell_how_they_were_trained_and_on_what(tiny_run):
    found = read_policies(tiny_run)
    grpo, sft = found.find("grpo").budget, found.find("sft").budget
    steps = read_jsonl(tiny_run / "grpo" / "metrics.jsonl")[-1]["step"]
    assert (grpo["num_steps"], grpo["num_samples"]) == (steps, steps * 4 * 2)
    assert 0 < grpo["num_tokens"] <= steps * 4 * 2 * 16
    assert sft["num_samples"] == 12
    assert [one.step for one in found.list_ancestors("grpo")] == [None, "sft", "grpo"]
    predictions = read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
    names = list(dict.fromkeys(one.policy for one in predictions))
    assert names == [one.name for one in found.listed]
    conditions = read_conditions(tiny_run)
    assert conditions is not None
    for one in found.listed:
        assert {*one.trained_on} <= set(conditions.data)
        assert one.step is None or (tiny_run / one.step / "step.json").is_file()
        assert one.weights is None or (tiny_run / one.weights).is_dir()


@pytest.mark.slow
def test_settings_that_only_other_policies_were_trained_with_are_unused(tiny_run):
    facts = {name: read_facts(tiny_run, policy=name) for name in ("prompt", "sft", "grpo")}
    used = {
        key: {name for name, one in facts.items() if f"config/{key}" not in one.unused}
        for key in ("data.test_share", "model.dtype", "sft.learning_rate", "grpo.beta")
    }
    assert used["data.test_share"] == used["model.dtype"] == {"prompt", "sft", "grpo"}
    assert used["sft.learning_rate"] == {"sft", "grpo"}
    assert used["grpo.beta"] == {"grpo"}
    both = [facts["sft"], read_facts(tiny_run, policy="sft_control")]
    assert not list_confounding(check_fairness(both, factors=("policy",)))


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None,
    reason="needs RapidOCR: pip install 'groupwise[ocr]'",
)
def test_the_verifier_pays_and_is_a_baseline(job, tmp_path, command_line):
    sizes = {"data.drawn.width": 640, "data.drawn.height": 480, "data.stored_pixels": 400_000}
    asked = {"rewards.visual_verifier": 0.2, "visual_verifier.is_baseline": True}
    seen = RecipeJob("on_task", {**job.settings, **sizes, **asked})
    run = tmp_path / "run"
    done = command_line.succeed(*seen.list_arguments(run))
    assert "visual_verifier 0.1667" in done.stderr
    assert set(one.policy for one in read_metrics(run / "evaluate" / "metrics.json")) == {
        *POLICIES,
        "visual_verifier",
    }
    counts = read_json(run / "grpo" / "judge.json", dict)["visual_verifier"]
    assert counts["num_decided"] > 0
    assert counts["num_failed"] == 0
    rows = list(read_jsonl(run / "grpo" / "metrics.jsonl"))
    assert any("reward/visual_verifier" in json.dumps(row) for row in rows)
    assert "Visual verifier" in (run / "report.md").read_text()


NOBODY = {"server": {"url": "http://127.0.0.1:9/v1", "model": "judge"}}


def make_run(folder, *overrides):
    config = read_config("on_task", "demo", *overrides)
    RunFolder(folder).write_manifest(
        recipe="on_task", config=dump_config(config), inputs={}, seed=0
    )
    return FinishedRun(folder, recipe, TASK, config)


def test_a_run_without_a_judge_has_none_and_a_file_names_another(tmp_path):
    assert open_judge(make_run(tmp_path), None, folder=tmp_path) is None
    path = tmp_path / "judge.yaml"
    path.write_text(yaml.safe_dump(NOBODY | {"language": "zh"}))
    judge = open_judge(make_run(tmp_path), path, folder=tmp_path)
    assert isinstance(judge, LogitJudge)
    assert judge.option_texts == ("在任务上", "不在任务上")


def test_the_runs_judge_is_asked_again_however_often_it_fails(tmp_path):
    given = NOBODY | {"settings": {"retry": {"max_attempts": 1}}}
    run = make_run(tmp_path, f"judge={json.dumps(given)}")
    judge = open_judge(run, None, folder=tmp_path)
    assert isinstance(judge, LogitJudge)
    assert TASK.has_screens
    assert judge.labels == TASK.parser(run.config).labels
    Image.new("RGB", (56, 56), "navy").save(tmp_path / "screen.png")
    shown = (read_picture(tmp_path / "screen.png"),)
    asked = [Question({"task": f"write report {number}"}, shown) for number in range(30)]
    found = judge_all(judge, asked)
    assert all(isinstance(one, NoVerdict) for one in found)
    assert isinstance(judge_all(judge, asked[:1])[0], NoVerdict)


@pytest.mark.parametrize("content", ["modell: x\n", "model: x\nserver: {url: y}\n", "- 1\n"])
def test_a_file_that_is_no_judge_is_told(tmp_path, content):
    path = tmp_path / "judge.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError):
        open_judge(make_run(tmp_path), path, folder=tmp_path)


ON, OFF = "on-task", "off-task"
REPORT = "Write the report about the wells of the northern field for the meeting on Monday"
HEADINGS = {"en": "## Flips within sessions", "zh": "## 会话内的翻转"}


def make_stream(policy, verdicts, labels, *, session="made", step_s=10):
    """Return predictions on a made stream; ``1`` is on-task, ``0`` off-task, ``.`` no answer."""
    said = {"1": ON, "0": OFF, ".": None}
    return [
        predict(
            f"{session}-{number:02}",
            policy,
            said[truth],
            said[one],
            cluster=session,
            reason="" if said[one] else "no label",
            fields={"task": REPORT + "." * (number % 2), TIME: step_s * number},
        )
        for number, (one, truth) in enumerate(zip(verdicts, labels, strict=True))
    ]


def describe(stream, folder):
    """Return what on_task adds to the report."""
    config = read_config("on_task", "demo")
    context = StepContext(folder, folder, "evaluate", False, ("sft", "grpo"), config=config)
    return list(TASK.describe(config, context, stream, [], ()))


def test_flips_of_a_made_stream_stand_in_the_report_and_in_a_file(tmp_path):
    stream = [
        *make_stream("sft", "1101100", "1111100"),
        *make_stream("grpo", "110.1100", "11101100"),
        *make_stream("grpo", "101", "101", session="slow", step_s=61),
    ]
    english, chinese = describe(stream, tmp_path)
    assert (english.language, chinese.language) == ("en", "zh")
    assert english.tables[0].rows == (
        ("The labels themselves", "11", "1", "–", "–"),
        ("SFT warm-up", "7", "1", format_share(1), format_share(0)),
        ("GRPO", "11", "1", format_share(1), format_share(0)),
    )
    assert [row[1:] for row in chinese.tables[0].rows] == [r[1:] for r in english.tables[0].rows]
    assert read_jsonl(tmp_path / "flips.jsonl") == [
        {
            "policy": name,
            "example_id": "made-02",
            "session": "made",
            "task": REPORT,
            TIME: 20.0,
            "verdict": OFF,
            "label": ON,
        }
        for name in ("sft", "grpo")
    ]


def test_other_tasks_of_a_session_are_other_streams(tmp_path):
    stream = make_stream("sft", "101", "111")
    stream[1] = replace(stream[1], fields={"task": "Watch the news", TIME: 10.0})
    describe(stream, tmp_path)
    assert read_jsonl(tmp_path / "flips.jsonl") == []


def test_without_times_nothing_is_said_and_nothing_written(tmp_path):
    stream = [replace(one, fields={"task": REPORT}) for one in make_stream("sft", "101", "111")]
    assert describe(stream, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_report_of_a_made_stream_speaks_of_flips_and_that_of_a_run_without_times_does_not(
    tiny_run, tmp_path
):
    index = write_desktops(
        tmp_path / "screens", num_sessions=2, screens_per_session=3, seed=3, size=(224, 168)
    )
    rows = [
        {**row, "label": (ON, OFF)[place % 2], "time": 10 * place}
        for place, row in enumerate(read_jsonl(index))
    ]
    write_jsonl(index, rows)
    evaluate_on(open_run(tiny_run), index.parent, out=tmp_path / "out")
    assert (tmp_path / "out" / "evaluate" / "flips.jsonl").is_file()
    for language, heading in HEADINGS.items():
        with_times, without = (
            write_report(run, language=language)[1].read_text("utf-8")
            for run in (tmp_path / "out", tiny_run)
        )
        assert heading in with_times
        assert heading not in without
    assert not (tiny_run / "evaluate" / "flips.jsonl").exists()


@pytest.fixture
def index(tmp_path):
    return write_desktops(
        tmp_path / "screens", num_sessions=24, screens_per_session=2, seed=3, size=(160, 120)
    )


def prepare(index, folder):
    settings = [f"data.root={index.parent}", "data.drawn.num_sessions=0"]
    settings += ["data.warmup_share=0.2", "data.train_folds=null", "data.test_folds=null"]
    config = read_config("on_task", "screenagent-tiny", *settings)
    prepare_screens(config, folder)
    return config


def test_times_come_along_and_are_no_part_of_what_an_item_is(index, tmp_path):
    prepare(index, tmp_path / "without")
    rows = read_jsonl(index)
    timed = [{**row, "label": ON, "time": 10 * place} for place, row in enumerate(rows)]
    write_jsonl(index, [{**row, "time": 10 * place} for place, row in enumerate(rows)])
    config = prepare(index, tmp_path / "with")
    for name in ("train", "validation", "test"):
        without = read_examples(tmp_path / "without" / f"{name}.jsonl")
        found = read_examples(tmp_path / "with" / f"{name}.jsonl")
        assert [one.id for one in found] == [one.id for one in without]
        assert all(isinstance(one.fields[TIME], float) for one in found)
        assert not any(TIME in one.fields for one in without)
    warmup = [(tmp_path / name / "warmup.jsonl").read_bytes() for name in ("without", "with")]
    assert warmup[0] == warmup[1]
    write_jsonl(index, timed)
    labelled, _ = read_labelled_screens(config, index.parent, tmp_path / "labelled")
    assert {one.fields[TIME] for one in labelled} == {10.0 * place for place in range(len(rows))}
    shown = (index.parent / rows[0]["image"],)
    asked = [
        ask_about_screen(config, Request("1", {"task": "write", **more}, shown), tmp_path)
        for more in ({}, {"time": 7})
    ]
    assert asked[0] == asked[1]
    with pytest.raises(DataError, match=r"^time cannot be read \(a time is seconds, or a moment"):
        ask_about_screen(config, Request("1", {"task": "write", "time": "soon"}, shown), tmp_path)
