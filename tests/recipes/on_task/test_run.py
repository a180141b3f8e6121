"""Whole tiny runs of on_task: what they leave, say of themselves, serve, and how they resume."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from PIL import Image
from plan_keys import list_done
from recipe_plans import list_all_steps
from recipe_runs import POLICIES, RecipeJob, is_training, read_numbers
from tables import read_tables

from groupwise.core import (
    ConfigError,
    RunFolder,
    digest_file,
    dump_config,
    read_json,
    read_jsonl,
    read_picture,
    write_jsonl,
)
from groupwise.data.example_files import read_examples
from groupwise.evaluation.fairness import check_fairness, read_facts
from groupwise.evaluation.metrics import METRIC_VERSIONS, read_metrics
from groupwise.evaluation.predictions import digest_items, read_policies, read_predictions
from groupwise.evaluation.results import read_conditions
from groupwise.flow.finished import FinishedRun
from groupwise.flow.sources import open_judge
from groupwise.judges import LogitJudge, NoVerdict, Question, judge_all
from groupwise.pipeline.sweep import read_sweep
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.recipe import recipe
from groupwise_recipes.on_task.task import TASK

TABLES = read_tables(__file__)


def test_every_stage_there_is_did_its_work_with_what_it_declares(tiny_run, tmp_path):
    assert list_done(tiny_run) == list_all_steps("on_task", tmp_path)


def test_every_policy_is_measured_on_the_same_items(tiny_run):
    metrics = read_metrics(tiny_run / "evaluate" / "metrics.json")
    accuracies = {m.policy: m for m in metrics if m.measure == "accuracy"}
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    assert set(accuracies) == POLICIES
    assert {m.n for m in accuracies.values()} == {len(test)}
    predictions = read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
    digest = digest_items(p for p in predictions if p.policy == "grpo")
    assert {m.split_digest for m in accuracies.values()} == {digest}


def test_metrics_file_has_the_documented_keys(tiny_run):
    rows = json.loads((tiny_run / "evaluate" / "metrics.json").read_text())
    assert isinstance(rows, list)
    keys = {"name", "split", "value", "low", "high", "n", "split_digest"}
    assert all(set(row) == keys for row in rows)
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)


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


def test_manifest_and_gate_are_written(tiny_run):
    manifest = json.loads((tiny_run / "manifest.json").read_text())
    assert manifest["config"]["data"]["drawn"]["num_sessions"] == 40
    assert {"torch", "transformers", "trl", "groupwise"} <= set(manifest["packages"])
    gate = json.loads((tiny_run / "grpo" / "on_policy.json").read_text())
    assert gate["num_tokens"] > 0
    assert gate["max_log_ratio"] < 1e-4


def test_training_logs_what_the_report_reads(tiny_run):
    rows = read_jsonl(tiny_run / "grpo" / "metrics.jsonl")
    keys = {"step", "loss", "reward", "reward_std", "dead_groups", "invalid", "entropy"}
    assert keys | {"reward/classification", "reward/format", "tokens_per_s"} <= set(rows[0])
    assert any("heldout/accuracy" in row for row in rows)
    assert "language blocks 0 to 2, each" in (tiny_run / "sft" / "trainable.txt").read_text()


def test_report_shows_the_measured_numbers(tiny_run):
    html = (tiny_run / "report.html").read_text(encoding="utf-8")
    metrics = read_metrics(tiny_run / "evaluate" / "metrics.json")
    grpo = next(m for m in metrics if m.name == "grpo/accuracy")
    assert f"{grpo.value:.1%}".replace("%", "") in html
    assert grpo.split_digest[:8] in html
    assert (tiny_run / "report.md").read_text(encoding="utf-8").startswith("#")


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


# Enough of a warm-up that answers are valid and some are right: then GRPO has something to learn.
TAUGHT = (
    *("--set", "data.drawn.num_sessions=60", "--set", "data.warmup_share=0.5"),
    *("--set", "data.validation_share=0.1", "--set", "sft.labelled_share=1.0"),
    *("--set", "sft.epochs=25", "--set", "sft.batch_size=6"),
)


@pytest.mark.slow
def test_conditions_tell_what_the_run_read_and_did(tiny_run):
    found = read_conditions(tiny_run) or {}
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    assert found["data"]["test"]["num_rows"] == len(test)
    assert found["data"]["warmup"]["digest"] == digest_file(tiny_run / "prepare" / "warmup.jsonl")
    assert found["data"]["train"]["num_rows:on-task"] > 0
    assert found["metrics"] == METRIC_VERSIONS
    assert found["decoding"] == TABLES["conditions_tell_what_the_run_read_and_did"]
    assert found["base_weights"]


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
    data = (read_conditions(tiny_run) or {})["data"]
    for one in found.listed:
        assert {*one.trained_on} <= set(data)
        assert one.step is None or (tiny_run / one.step / "step.json").is_file()
        assert one.weights is None or (tiny_run / one.weights).is_dir()


@pytest.mark.slow
def test_settings_that_only_other_policies_were_trained_with_are_unused(tiny_run):
    unused = {name: read_facts(tiny_run, policy=name).unused for name in ("prompt", "sft", "grpo")}
    used = {
        key: {name for name, found in unused.items() if f"config/{key}" not in found}
        for key in ("data.test_share", "model.dtype", "sft.learning_rate", "grpo.beta")
    }
    assert used["data.test_share"] == used["model.dtype"] == {"prompt", "sft", "grpo"}
    assert used["sft.learning_rate"] == {"sft", "grpo"}
    assert used["grpo.beta"] == {"grpo"}


@pytest.mark.slow
def test_the_manifest_names_metric_versions(tiny_run):
    manifest = json.loads((tiny_run / "manifest.json").read_text())
    assert manifest["metric_versions"] == METRIC_VERSIONS


@pytest.mark.slow
def test_policies_of_one_run_can_be_held_together(tiny_run):
    runs = [read_facts(tiny_run, policy=name) for name in ("sft", "sft_control")]
    assert check_fairness(runs, factors=("policy",)).confounding == ()


@pytest.mark.slow
def test_runs_of_one_rate_and_another_are_fair_and_of_other_data_are_not(
    tmp_path, job, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # A commit in the repository while this runs is a difference.
    folders = [tmp_path / "one", tmp_path / "elsewhere" / "two", tmp_path / "three"]
    extra = [(), ("grpo.learning_rate=1e-3",), ("data.drawn.num_sessions=64",)]
    for folder, settings in zip(folders, extra, strict=True):
        more = [part for setting in settings for part in ("--set", setting)]
        done = job.run(folder, *TAUGHT, *more)
        assert done.returncode == 0, done.stderr
    one, two, three = map(read_facts, folders)
    rate = check_fairness([one, two], factors=("grpo.learning_rate",))
    assert rate.is_fair, (rate.confounding, rate.remarks)
    data = check_fairness([one, three], factors=("grpo.learning_rate",))
    assert not data.is_fair
    assert {"data", "items", "prompts"} <= {one.aspect for one in data.confounding}


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


CONFIG = Path(__file__).parents[3] / "src/groupwise_recipes/on_task/configs/demo.yaml"
DEMO = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
NOBODY = {"server": {"url": "http://127.0.0.1:9/v1", "model": "judge"}}
ONCE = {"settings": {"retry": {"max_attempts": 1}}}


def make_run(folder, **more):
    config = OnTaskConfig.model_validate(DEMO | more)
    RunFolder(folder).write_manifest(
        recipe="on_task", config=dump_config(config), inputs={}, seed=0
    )
    return FinishedRun(folder, recipe, TASK, config)


def test_a_run_without_a_judge_has_none(tmp_path):
    assert TASK.has_screens
    assert open_judge(make_run(tmp_path), None, folder=tmp_path) is None


def test_the_runs_judge_is_asked_again_however_often_it_fails(tmp_path):
    judge = open_judge(make_run(tmp_path, judge=NOBODY | ONCE), None, folder=tmp_path)
    assert isinstance(judge, LogitJudge)
    assert judge.labels == TASK.parser(OnTaskConfig.model_validate(DEMO)).labels
    Image.new("RGB", (56, 56), "navy").save(tmp_path / "screen.png")
    shown = (read_picture(tmp_path / "screen.png"),)
    asked = [Question({"task": f"write report {number}"}, shown) for number in range(30)]
    found = judge_all(judge, asked)
    assert all(isinstance(one, NoVerdict) for one in found)
    assert isinstance(judge_all(judge, asked[:1])[0], NoVerdict)


def test_a_file_names_another_judge(tmp_path):
    path = tmp_path / "judge.yaml"
    path.write_text(yaml.safe_dump(NOBODY | {"language": "zh"}))
    judge = open_judge(make_run(tmp_path), path, folder=tmp_path)
    assert isinstance(judge, LogitJudge)
    assert judge.option_texts == ("在任务上", "不在任务上")


@pytest.mark.parametrize("content", ["modell: x\n", "model: x\nserver: {url: y}\n", "- 1\n"])
def test_a_file_that_is_no_judge_is_told(tmp_path, content):
    path = tmp_path / "judge.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError):
        open_judge(make_run(tmp_path), path, folder=tmp_path)


AXES = {
    "grpo.beta": ("0.0", "0.12", "0.15"),
    "evaluation.num_items": ("5", "10", "15", "20"),
    "seed": ("0", "1", "2", "3"),
}
SMALL = TABLES["small"]
NUM_CELLS = 3 * 4 * 4


def start(folder):
    grids = [part for k, values in AXES.items() for part in ("--grid", f"{k}={','.join(values)}")]
    settings = [part for k, v in SMALL.items() for part in ("--set", f"{k}={v}")]
    program = [sys.executable, "-m", "groupwise.cli", "sweep", "on_task", "--config", "demo"]
    with (folder.parent / "sweep.log").open("ab") as log:
        return subprocess.Popen(
            [*program, *grids, *settings, "--out", str(folder), "--jobs", "2"],
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def kill_when(folder, is_reached):
    """Start or continue the sweep and ``kill -9`` it as soon as the moment is there."""
    process = start(folder)
    deadline_s = time.monotonic() + 3000
    while not is_reached():
        assert process.poll() is None, "the sweep ended before it could be killed"
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()


def list_done_cells(folder):
    return [cell.name for cell in read_sweep(folder).cells if cell.state == "done"]


def count_starts(folder):
    found = read_sweep(folder).cells
    histories = {cell.name: cell.folder / "history.jsonl" for cell in found}
    return {name: len(read_jsonl(path)) for name, path in histories.items() if path.is_file()}


def count_trainings(sweep, step):
    """Return in how many cells a step was really done, not taken from another."""
    markers = [json.loads((cell.folder / step / "step.json").read_text()) for cell in sweep.cells]
    return sum("taken_from" not in marker for marker in markers)


@pytest.mark.slow
def test_a_grid_that_is_killed_twice_ends_complete_with_every_cell_finished_once(tmp_path):
    grid = tmp_path / "grid"
    kill_when(grid, lambda: any(grid.glob("cells/*/sft/started.json")))
    assert list_done_cells(grid) == []
    kill_when(
        grid, lambda: len(list_done_cells(grid)) >= 10 and any(grid.glob("cells/*/grpo/started*"))
    )
    kept = list_done_cells(grid)
    starts = count_starts(grid)
    assert 10 <= len(kept) < NUM_CELLS

    assert start(grid).wait(3000) == 0
    sweep = read_sweep(grid)
    assert Counter(cell.state for cell in sweep.cells) == {"done": NUM_CELLS}
    after = count_starts(grid)
    assert {name: after[name] for name in kept} == {name: starts[name] for name in kept}
    # No more than the two that ran when it was killed were started again, each time.
    assert sum(after.values()) <= NUM_CELLS + 2 * 2
    trainings = {step: count_trainings(sweep, step) for step in ("sft", "grpo", "sft_control")}
    assert trainings == {"sft": 4, "grpo": 12, "sft_control": 4}
    for cell in sweep.cells:
        metrics = json.loads((cell.folder / "evaluate" / "metrics.json").read_text())
        assert cell.coordinates["evaluation.num_items"] in {str(m["n"]) for m in metrics}
        assert (cell.folder / "report.html").is_file()


def is_evaluating(run):
    return (run / "evaluate" / "sft.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_reached",
    [is_training("sft"), is_training("grpo"), is_evaluating],
    ids=["sft", "grpo", "evaluate"],
)
def test_killed_run_ends_with_the_same_numbers(is_reached, tiny_run, tmp_path, job):
    run = tmp_path / "run"
    job.kill_and_resume(run, is_reached)
    assert read_numbers(run) == read_numbers(tiny_run)
