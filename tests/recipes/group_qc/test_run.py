"""The whole way of group_qc on a handful of drawn groups."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from group_words import FAIL, PARSER, QUESTIONS
from plan_keys import list_done
from recipe_plans import list_all_steps
from recipe_runs import POLICIES

from groupwise.core import load_config, read_jsonl
from groupwise.data import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import read_predictions
from groupwise.flow import open_policy
from groupwise.inference import LocalBackend, LocalEngine
from groupwise.pipeline import find_config, find_recipe
from groupwise_drawn.cabinets import write_cabinets
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import find_root, read_groups
from groupwise_recipes.group_qc.stage_a import StageAJob, read_summaries, run_stage_a

pytestmark = pytest.mark.slow


def test_every_stage_there_is_did_its_work_with_what_it_declares(
    tiny_run: Path, tmp_path: Path
) -> None:
    assert list_done(tiny_run) == list_all_steps("group_qc", tmp_path)


def test_every_policy_is_measured_on_the_same_groups(tiny_run: Path) -> None:
    metrics = read_metrics(tiny_run / "evaluate" / "metrics.json")
    test = read_examples(tiny_run / "stage_b_data" / "test.jsonl")
    accuracies = {m.policy: m.n for m in metrics if m.measure == "accuracy"}
    assert accuracies == dict.fromkeys(POLICIES, len(test))
    missed = {m.policy: m.n for m in metrics if m.measure == "missed_defects"}
    assert missed == dict.fromkeys(POLICIES, sum(e.label == FAIL for e in test))
    assert {m.policy for m in metrics if m.measure == "two_lines"} == {
        "prompt",
        "sft",
        "sft_control",
        "grpo",
    }


def test_groups_add_up_and_no_id_is_on_two_sides(tiny_run: Path) -> None:
    rows = read_jsonl(tiny_run / "prepare" / "groups.jsonl")
    source = json.loads((tiny_run / "prepare" / "source.json").read_text())
    failed = json.loads((tiny_run / "stage_b_data" / "failed.json").read_text())
    assert len(rows) == source["num_groups"] == 64
    sides = {(row["group_id"], row["split"]) for row in rows}
    assert len(sides) == len({row["group_id"] for row in rows})
    names = ("warmup", "train", "validation", "test")
    data = [read_examples(tiny_run / "stage_b_data" / f"{name}.jsonl") for name in names]
    num_taught = sum(row["split"] == "teach" for row in rows)
    assert sum(map(len, data)) + sum(failed.values()) == 64 - num_taught


def test_lines_are_measured_by_what_was_drawn(tiny_run: Path) -> None:
    kept = json.loads((tiny_run / "evaluate" / "stage_a.json").read_text())
    (right,) = [one for one in kept[""] if one["name"] == "stage_a/accuracy"]
    test = read_examples(tiny_run / "stage_b_data" / "test.jsonl")
    assert right["n"] == sum(len(one.fields["images"]) for one in test)
    assert "## Stage A's lines" in (tiny_run / "report.md").read_text()


def test_only_the_adapter_trains_in_stage_b(tiny_run: Path) -> None:
    for step in ("sft", "grpo"):
        rows = json.loads((tiny_run / step / "trainable.json").read_text())
        by_part = {row["part"]: row["num_trainable"] for row in rows}
        assert by_part["vision"] == by_part["aligner"] == by_part["embeddings and head"] == 0
        assert sum(by_part.values()) > 0
        assert (tiny_run / step / "policy" / "adapter_config.json").is_file()
    gate = json.loads((tiny_run / "grpo" / "on_policy.json").read_text())
    assert gate["max_log_ratio"] < 1e-4


def test_predictions_are_read_by_the_contract(tiny_run: Path) -> None:
    for one in read_predictions(tiny_run / "evaluate" / "predictions.jsonl"):
        if one.policy in ("sft", "grpo"):
            reply = PARSER.judge(one.text)
            assert one.predicted == reply.verdict
            assert one.scores["two_lines"] == float(reply.is_well_formed)


def test_both_reports_say_missed_defects_before_accuracy(tiny_run: Path) -> None:
    for name, mark in (("report.md", "## {}\n"), ("report.html", "<h2>{}</h2>")):
        text = (tiny_run / name).read_text()
        # What has no number at the top of the page stands behind the accuracy.
        titles = ("Missed defects", "Accuracy", "By mission", "What trained in GRPO")
        places = [text.index(mark.format(title)) for title in titles]
        assert places == sorted(places)
        for part in ("BBU接地线检查", "language block 2", "Recall 不通过"):
            assert part in text[places[2] :]
    assert (tiny_run / "evaluate" / "conditions.json").is_file()


def test_stage_a_with_the_adapter_off_says_what_the_base_said(
    tiny_run: Path, tmp_path: Path
) -> None:
    found = find_recipe("group_qc")
    values = json.loads((tiny_run / "manifest.json").read_text())["config"]
    config = load_config(GroupQcConfig, find_config(found, "demo")).model_validate(values)
    prepared = tiny_run / "prepare"
    groups = read_groups(config, prepared)["test"][:4]
    root = find_root(config.data, prepared)
    job = StageAJob(groups, root, tmp_path, QUESTIONS, config.summaries)
    policy = open_policy(config, tiny_run / "grpo" / "policy")
    with policy.adapter_off():
        run_stage_a(job, LocalBackend(LocalEngine(policy)))
    before = read_summaries(tiny_run / "summarize", QUESTIONS)
    again = read_summaries(tmp_path, QUESTIONS)
    assert again
    assert again == {key: before[key] for key in again}


def test_new_groups_are_judged_as_the_test_split_was(
    tiny_run: Path, tmp_path: Path, command_line: CommandLine
) -> None:
    out = tmp_path / "answers.jsonl"
    root = tiny_run / "prepare" / "drawn"
    done = command_line("predict", tiny_run, root, "--out", out)
    answers = {row["id"]: row for row in read_jsonl(out)}
    assert len(answers) == 64, done.stderr
    test = read_examples(tiny_run / "stage_b_data" / "test.jsonl")
    predictions = read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
    known = {one.example_id: one for one in predictions if one.policy == "grpo"}
    assert test
    for example in test:
        answer = answers[str(example.fields["images"][0]).rpartition("/")[0]]
        one = known[example.id]
        assert answer["details"]["summaries"] == example.fields["stage_a_summaries"]
        assert (answer["text"], answer["answer"]) == (one.text, one.predicted)


def test_other_labelled_photos_and_their_lines_are_measured_alike(
    tiny_run: Path, tmp_path: Path, command_line: CommandLine
) -> None:
    photos = tmp_path / "photos"
    write_cabinets(photos, num_groups=8, seed=7, size=(112, 84), folders=("审核通过", "审核不通过"))
    done = command_line("evaluate", tiny_run, photos, "--out", tmp_path / "photos-out")
    assert done.returncode == 0, done.stderr
    [lines] = list((tmp_path / "photos-out" / "data").glob("described/BBU接地线*_stage_a.jsonl"))
    done = command_line("evaluate", tiny_run, lines, "--out", tmp_path / "lines-out")
    assert done.returncode == 0, done.stderr
    mission = read_jsonl(lines)[0]["mission"]
    found = {
        name: {
            (one.cluster, one.policy): (one.text, one.label)
            for one in read_predictions(tmp_path / name / "evaluate" / "predictions.jsonl")
            if one.fields["task_type"] == mission and one.policy != "picture_only"
        }
        for name in ("photos-out", "lines-out")
    }
    assert found["photos-out"] == found["lines-out"]
    shown = read_predictions(tmp_path / "photos-out" / "evaluate" / "predictions.jsonl")
    assert all(Path(path).is_relative_to(photos) for one in shown for path in one.pictures)
    assert any(one.policy == "picture_only" and one.pictures for one in shown)
