"""A Task of somebody else, from Python: the whole way, with a warm-up and without one."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_task import GreedyTask, SmallConfig, SmallTask

from groupwise.core import ConfigError, read_json, read_jsonl, write_jsonl
from groupwise.data import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import read_policies, read_predictions
from groupwise.flow import open_run, predict_rows, rate_baselines, run
from groupwise.flow.running import find_address
from groupwise.pipeline import find_recipe

SMALL: dict[str, Any] = {
    "model": {"base": "tiny-qwen2", "max_pixels": 784},
    "data": {"budget": {"max_prompt_tokens": 128}},
    "grpo": {
        "epochs": 1,
        "prompts_per_step": 4,
        "group_size": 2,
        "max_new_tokens": 4,
        "learning_rate": 1e-4,
        "beta": 0.0,
    },
    "evaluation": {"num_latency_items": 1, "num_heldout_items": 2, "batch_size": 8},
}
WARMUP = {"epochs": 1, "batch_size": 4, "learning_rate": 1e-3}


def test_a_task_with_a_warmup_runs_the_whole_way(tmp_path: Path) -> None:
    said: list[str] = []
    grpo = SMALL["grpo"] | {"validation": {"every_steps": 1}}
    warmup = WARMUP | {"validation": {"every_steps": 1, "select": "last"}}
    config = SmallConfig(**SMALL | {"grpo": grpo, "sft": warmup})
    out = run(SmallTask, config, out=tmp_path / "run", say=said.append)
    metrics = read_metrics(out / "evaluate" / "metrics.json")
    policies = {metric.policy for metric in metrics if metric.measure == "accuracy"}
    assert policies == {"majority", "text_only", "joint", "prompt", "sft", "sft_control", "grpo"}
    assert said[0] == "[1/9] prepare: data into splits"
    assert any("evaluate run in" in line for line in said)
    assert json.loads((out / "manifest.json").read_text())["recipe"] == "small_task:SmallTask"
    described = read_policies(out)
    assert [one.name for one in described.listed] == described.sort(policies)
    assert described.find("sft").budget["num_samples"] == 8
    for name in ("sft", "sft_control", "grpo"):
        one, looked = described.find(name), read_json(out / name / "selection.json", dict)
        assert one.budget["num_looks"] == one.budget["num_steps"] == len(looked["looks"])
        assert one.budget["num_validation_items"] == 2
        step = (
            f"weights of step {looked['kept_step']} of {looked['last_step']}, chosen on validation"
        )
        assert step in one.note
        assert looked["select"] == ("last" if name == "sft" else "best")
    assert "chosen on validation" in (out / "report.html").read_text()
    assert described.find("text_only").blind_to == ()
    assert [one.name for one in described.list_ancestors("grpo")] == ["prompt", "sft", "grpo"]
    check_predictions(out)
    rated = rate_baselines(SmallTask(), config, out)
    assert set(rated) == {"words", "words in their order", "majority"}
    assert all(0 <= share <= 1 for share in rated.values())
    said.clear()
    run(SmallTask, config, out=out, say=said.append)
    assert sum("reused" in line for line in said) == 9


def check_predictions(out: Path) -> None:
    """Compare what each policy predicts for the test rows with what was evaluated."""
    test = read_examples(out / "prepare" / "test.jsonl")
    questions = [{"question": example.prompt[0].text} for example in test]
    write_jsonl(out / "asked.jsonl", questions)
    evaluated = read_predictions(out / "evaluate" / "predictions.jsonl")
    for name in ("prompt", "sft", "grpo"):
        answers = out / f"{name}.jsonl"
        predict_rows(open_run(out), out / "asked.jsonl", out=answers, policy=name)
        rows = read_jsonl(answers)
        known = {one.example_id: one for one in evaluated if one.policy == name}
        for row, example in zip(rows, test, strict=True):
            one = known[example.id]
            assert (row["text"], row["answer"]) == (one.text, one.predicted)
            chance = None if one.predicted is None else (one.probabilities or {})[one.predicted]
            assert row["confidence"] == pytest.approx(chance, abs=1e-5)


def test_without_a_warmup_grpo_starts_from_the_base(tmp_path: Path) -> None:
    out = run(SmallTask, SmallConfig(**SMALL), out=tmp_path / "run", say=lambda _: None)
    policies = {metric.policy for metric in read_metrics(out / "evaluate" / "metrics.json")}
    assert policies == {"majority", "text_only", "joint", "prompt", "grpo"}
    assert not (out / "sft").exists()
    assert [one.step for one in read_policies(out).list_ancestors("grpo")] == [None, "grpo"]


def test_a_stage_that_reads_what_is_not_declared_stops(tmp_path: Path) -> None:
    message = "step 'evaluate' reads extra but does not list it in reads"
    with pytest.raises(ValueError, match=message):
        run(GreedyTask, SmallConfig(**SMALL), out=tmp_path / "run", say=lambda _: None)


def test_a_task_without_an_import_path_is_told(tmp_path: Path) -> None:
    class Local(SmallTask):
        """Only here."""

    said: list[str] = []
    run(Local, SmallConfig(**SMALL), out=tmp_path / "run", until="prepare", say=said.append)
    assert said[0].startswith("Local has no import path, so only this process can")
    assert find_address(Local) is None
    assert find_address(SmallTask) == "small_task:SmallTask"


def test_a_recipe_is_found_by_its_import_path() -> None:
    assert find_recipe("small_task:SmallTask").summary == "Is the bolt tight?"
    with pytest.raises(ConfigError, match="nowhere:Task cannot be imported"):
        find_recipe("nowhere:Task")
    with pytest.raises(ConfigError, match="small_task:Absent cannot be imported"):
        find_recipe("small_task:Absent")
