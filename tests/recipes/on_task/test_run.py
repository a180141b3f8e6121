"""The whole way of on_task on a handful of drawn screens."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from plan_keys import list_done
from recipe_plans import list_all_steps
from recipe_runs import POLICIES, RecipeJob

from groupwise.core import read_jsonl, write_jsonl
from groupwise.data import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import digest_items, read_predictions


def test_every_stage_there_is_did_its_work_with_what_it_declares(
    tiny_run: Path, tmp_path: Path
) -> None:
    assert list_done(tiny_run) == list_all_steps("on_task", tmp_path)


def test_every_policy_is_measured_on_the_same_items(tiny_run: Path) -> None:
    metrics = read_metrics(tiny_run / "evaluate" / "metrics.json")
    accuracies = {m.policy: m for m in metrics if m.measure == "accuracy"}
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    assert set(accuracies) == POLICIES
    assert {m.n for m in accuracies.values()} == {len(test)}
    predictions = read_predictions(tiny_run / "evaluate" / "predictions.jsonl")
    digest = digest_items(p for p in predictions if p.policy == "grpo")
    assert {m.split_digest for m in accuracies.values()} == {digest}


def test_metrics_file_has_the_documented_keys(tiny_run: Path) -> None:
    rows = json.loads((tiny_run / "evaluate" / "metrics.json").read_text())
    assert isinstance(rows, list)
    keys = {"name", "split", "value", "low", "high", "n", "split_digest"}
    assert all(set(row) == keys for row in rows)
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)


def test_no_session_is_on_two_sides(tiny_run: Path) -> None:
    names = ("train", "validation", "test")
    groups = {
        name: {e.cluster for e in read_examples(tiny_run / "prepare" / f"{name}.jsonl")}
        for name in names
    }
    groups["warmup"] = {row["session"] for row in read_jsonl(tiny_run / "prepare" / "warmup.jsonl")}
    seen = [group for members in groups.values() for group in members]
    assert all(groups.values())
    assert len(seen) == len(set(seen))


def test_manifest_and_gate_are_written(tiny_run: Path) -> None:
    manifest = json.loads((tiny_run / "manifest.json").read_text())
    assert manifest["config"]["data"]["drawn"]["num_sessions"] == 40
    assert {"torch", "transformers", "trl", "groupwise"} <= set(manifest["packages"])
    gate = json.loads((tiny_run / "grpo" / "on_policy.json").read_text())
    assert gate["num_tokens"] > 0
    assert gate["max_log_ratio"] < 1e-4


def test_training_logs_what_the_report_reads(tiny_run: Path) -> None:
    rows = read_jsonl(tiny_run / "grpo" / "metrics.jsonl")
    keys = {"step", "loss", "reward", "reward_std", "dead_groups", "invalid", "entropy"}
    assert keys | {"reward/classification", "reward/format", "tokens_per_s"} <= set(rows[0])
    assert any("heldout/accuracy" in row for row in rows)
    assert "language blocks 0 to 2, each" in (tiny_run / "sft" / "trainable.txt").read_text()


def test_report_shows_the_measured_numbers(tiny_run: Path) -> None:
    html = (tiny_run / "report.html").read_text(encoding="utf-8")
    metrics = read_metrics(tiny_run / "evaluate" / "metrics.json")
    grpo = next(m for m in metrics if m.name == "grpo/accuracy")
    assert f"{grpo.value:.1%}".replace("%", "") in html
    assert grpo.split_digest[:8] in html
    assert (tiny_run / "report.md").read_text(encoding="utf-8").startswith("#")


def test_running_again_reuses_every_step(
    tiny_run: Path, job: RecipeJob, command_line: CommandLine
) -> None:
    before = (tiny_run / "evaluate" / "predictions.jsonl").read_bytes()
    again = command_line(*job.list_arguments(tiny_run))
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("reused") == len(list_done(tiny_run))
    assert (tiny_run / "evaluate" / "predictions.jsonl").read_bytes() == before


def test_new_rows_are_answered_as_the_test_split_was(
    tiny_run: Path, tmp_path: Path, command_line: CommandLine
) -> None:
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
