"""Tasks without a reference answer: functions of the user's own pay and measure."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.core import (
    Completion,
    Message,
    RewardError,
    Score,
    load_config,
    make_example,
    read_json,
    read_jsonl,
    write_jsonl,
)
from groupwise.data import read_examples
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import read_policies, read_predictions
from groupwise.evaluation.results import read_headline
from groupwise.evaluation.statistics import read_comparisons
from groupwise.flow import RivalSettings, tell_rivals
from groupwise.flow.rivals import Drawn, show_before
from groupwise.pipeline import run_recipe
from groupwise_recipes.task.config import TaskConfig
from groupwise_recipes.task.measuring import list_measures, score_answers
from groupwise_recipes.task.recipe import recipe
from groupwise_recipes.task.task import TASK as TASK_RECIPE

CHECKS = """
def near(example, completion):
    wanted = example.fields["n"]
    return max(0.0, 1 - abs(len(completion.text.split()) - wanted) / wanted)

def exact(example, completion):
    return len(completion.text.split()) == example.fields["n"]

def whole(example, completion):
    return completion.finish_reason == "stop"

def unsure(example, completion):
    return None if example.fields["n"] == 3 else 1.0
"""
TASK: dict[str, Any] = {
    "recipe": "task",
    "model": {"base": "tiny-qwen2", "max_pixels": 784},
    "data": {
        "files": "rows.jsonl",
        "columns": {"prompt": "Write one sentence of exactly {{ n }} words about {{ topic }}."},
    },
    "rewards": {"checks.py:near": 1.0},
    "grpo": {
        "prompts_per_step": 2,
        "group_size": 2,
        "max_new_tokens": 6,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "trainable": {"method": "full"},
    },
    "evaluation": {"num_latency_items": 1, "num_heldout_items": 4},
}
MEASURES = {"checks.py:exact": {"title": "Exact length"}, "checks.py:unsure": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with rows and functions."""
    topics = ("the sea", "a market", "rain", "bread", "winter", "a library", "the moon", "chess")
    rows = [{"topic": topic, "n": n} for topic in topics for n in range(3, 8)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "checks.py").write_text(CHECKS, encoding="utf-8")
    return tmp_path


def load(folder: Path, **values: Any) -> TaskConfig:
    path = folder / "task.yaml"
    path.write_text(json.dumps({**TASK, **values}), encoding="utf-8")
    return load_config(TaskConfig, path)


def ask(n: int) -> Any:
    return make_example([Message("user", f"{n} words")], cluster=str(n), fields={"n": n})


def test_a_task_without_answers_runs_and_its_first_measure_heads_everything(folder: Path):
    config = load(
        folder, measures=MEASURES, grpo={**TASK["grpo"], "validation": {"every_steps": 1}}
    )
    run = folder / "run"
    run_recipe(recipe, config, out=run)
    assert read_headline(run).title == "Exact length"
    found = {metric.name: metric for metric in read_metrics(run / "evaluate" / "metrics.json")}
    assert {"prompt/exact", "grpo/exact", "grpo/reward", "grpo/unsure"} < found.keys()
    assert not any(name.endswith("/accuracy") for name in found)
    rows = read_predictions(run / "evaluate" / "predictions.jsonl")
    assert {row.label for row in rows} == {None}
    num_sure = sum(row.policy == "grpo" and row.fields["n"] != 3 for row in rows)
    assert found["grpo/unsure"].n == num_sure < found["grpo/exact"].n
    compared = read_comparisons(run / "evaluate" / "comparisons.json")
    assert {one.measure: one.n for one in compared if one.policy_a == "prompt"} == {
        "exact": found["grpo/exact"].n,
        "unsure": num_sure,
        "reward": found["grpo/exact"].n,
    }
    assert read_json(run / "grpo" / "selection.json", dict)["chosen_by"] == "exact"
    log = read_jsonl(run / "grpo" / "metrics.jsonl")
    looks = [row for row in log if "heldout/exact" in row]
    assert looks
    assert not any("heldout/accuracy" in row for row in looks)
    page = (run / "report.md").read_text(encoding="utf-8")
    assert "## Exact length" in page
    assert "Accuracy" not in page
    answered = CliRunner().invoke(
        app, ["predict", str(run), str(folder / "rows.jsonl"), "--out", str(folder / "a.jsonl")]
    )
    assert answered.exit_code == 0, answered.output
    assert len(read_jsonl(folder / "a.jsonl")) == 40


def test_the_rivals_have_the_same_rewards_and_grpos_samples(folder: Path):
    rivals = {"best_of": 3, "demonstrations": 2, "rejection_sampling": True}
    config = load(folder, measures=MEASURES, rivals=rivals)
    run = folder / "run"
    run_recipe(recipe, config, out=run)
    policies = read_policies(run)
    names = ["prompt", "demonstrations", "best_of", "rejection", "grpo"]
    assert [one.name for one in policies.listed] == names
    drawn = {name: policies.find(name).budget["num_samples"] for name in ("rejection", "grpo")}
    assert drawn["rejection"] == drawn["grpo"] == 8
    assert (
        f"of {drawn['grpo']:.0f} samples, as many as GRPO drew" in policies.find("rejection").note
    )
    assert "3 times the work at answer time" in policies.find("best_of").note
    compared = read_comparisons(run / "evaluate" / "comparisons.json")
    against = {one.policy_a for one in compared if one.measure == "exact"}
    assert against == {*names} - {"grpo"}
    found = {metric.name: metric.value for metric in read_metrics(run / "evaluate/metrics.json")}
    assert found["best_of/reward"] >= found["prompt/reward"]
    shown = read_jsonl(run / "baselines" / "demonstrations.jsonl")
    train = {example.id for example in read_examples(run / "prepare" / "train.jsonl")}
    assert len(shown) == 2
    assert {row["id"] for row in shown} <= train
    assert "Rivals that were not run" not in (run / "report.md").read_text(encoding="utf-8")


def test_the_best_of_several_samples_is_the_first_that_earns_most():
    answers = [Completion(text) for text in "abcd"]
    scores = [Score(None), Score(0.5), Score(1.0), Score(1.0)]
    drawn = Drawn(ask(3), answers, scores)
    assert drawn.best.text == "c"
    assert drawn.values == [-1.0, 0.5, 1.0, 1.0]


def test_demonstrations_stand_as_turns_behind_the_system_and_before_the_question():
    system = Message("system", "Be short.")
    asked = make_example([system, Message("user", "4 words")], cluster="4")
    other = make_example([system, Message("user", "3 words")], cluster="3")
    shown = [Drawn(other, [Completion("one two three")], [Score(1.0)])]
    told = [(turn.role, turn.text) for turn in show_before(asked, shown).prompt]
    assert told == [
        ("system", "Be short."),
        ("user", "3 words"),
        ("assistant", "one two three"),
        ("user", "4 words"),
    ]
    assert show_before(asked, shown).id == asked.id


def test_the_report_says_which_rivals_were_not_run(folder: Path):
    off = {"best_of": 0, "demonstrations": 0, "rejection_sampling": False}
    config = load(folder, rivals=off)
    assert "rejection" not in {stage.name for stage in TASK_RECIPE.stages(config)}
    english, chinese = tell_rivals(RivalSettings(**off), ())
    assert "rivals.best_of" in english.text
    assert "rivals.rejection_sampling: true" in english.text
    assert "rivals.demonstrations" in chinese.text
    assert tell_rivals(RivalSettings(rejection_sampling=True), ()) == []


def test_without_measures_the_weighted_reward_heads_and_its_parts_stand_beside(folder: Path):
    alone = load(folder)
    assert [one.name for one in list_measures(alone)] == ["reward"]
    two = load(folder, rewards={"checks.py:near": 3.0, "checks.py:exact": 1.0})
    assert [one.name for one in list_measures(two)] == ["reward", "near", "exact"]
    [found] = score_answers(two, [ask(4)], [Completion("one two three")])
    assert found == {"reward": pytest.approx(0.75 * 0.75), "near": 0.75, "exact": 0.0}


def test_a_measure_sees_whether_an_answer_was_cut_and_what_it_cannot_score_is_left_out(
    folder: Path,
):
    config = load(folder, measures=["checks.py:whole", "checks.py:unsure"])
    answers = [Completion("a"), Completion("a", finish_reason="length")]
    found = score_answers(config, [ask(3), ask(4)], answers)
    assert [one.get("whole") for one in found] == [1.0, 0.0]
    assert [one.get("unsure") for one in found] == [None, 1.0]


def test_a_measure_out_of_range_is_refused_by_its_row(folder: Path):
    (folder / "checks.py").write_text(f"{CHECKS}\ndef much(example, completion):\n    return 7\n")
    config = load(folder, measures=["checks.py:much"])
    with pytest.raises(RewardError, match="much"):
        score_answers(config, [ask(3)], [Completion("a")])
