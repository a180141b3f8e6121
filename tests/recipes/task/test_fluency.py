"""A task whose rewards and measures have fluency among them."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from groupwise.evaluation.results import read_headline

from groupwise.core import Completion, ConfigError, load_config, read_json, read_jsonl, write_jsonl
from groupwise.evaluation.metrics import read_metrics
from groupwise.evaluation.predictions import read_predictions
from groupwise.models import load_policy
from groupwise.pipeline import run_recipe
from groupwise.rewards import average_log_probs
from groupwise_recipes.task.config import TaskConfig
from groupwise_recipes.task.recipe import recipe

CHECKS = """
def exact(example, completion):
    wanted = example.fields["n"]
    return max(0.0, 1 - abs(len(completion.text.split()) - wanted) / wanted)
"""
TASK: dict[str, Any] = {
    "recipe": "task",
    "model": {"base": "tiny-qwen2"},
    "data": {
        "files": "rows.jsonl",
        "columns": {"prompt": "Write exactly {{ n }} words about {{ topic }}."},
    },
    "rewards": {"checks.py:exact": 1.0, "fluency": 1.0},
    "measures": {
        "good": {"all_of": ["exact", "fluent"], "title": "Exact and fluent"},
        "checks.py:exact": None,
        "fluent": None,
    },
    "grpo": {
        "prompts_per_step": 2,
        "group_size": 2,
        "max_new_tokens": 6,
        "max_steps": 2,
        "validation": {"every_steps": 1},
    },
    "evaluation": {"num_latency_items": 1, "num_heldout_items": 4},
}


def load(folder: Path, **values: Any) -> TaskConfig:
    path = folder / "task.yaml"
    path.write_text(json.dumps({**TASK, **values}), encoding="utf-8")
    return load_config(TaskConfig, path)


SUM = {"checks.py:exact": 1.0, "fluency": 1.0}
LOWEST = {"both": {"all_of": ["exact", "fluency"]}, "checks.py:exact": 0, "fluency": 0}


@pytest.mark.parametrize(("method", "rewards"), [("lora", SUM), ("full", LOWEST)])
def test_the_untrained_base_reads_answers_by_a_threshold_that_stays(
    tmp_path: Path, method: str, rewards: dict[str, Any]
):
    rows = [{"topic": topic, "n": n} for topic in ("rain", "bread", "chess") for n in range(3, 18)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    (tmp_path / "checks.py").write_text(CHECKS)
    config = load(
        tmp_path,
        rewards=rewards,
        grpo={**TASK["grpo"], "learning_rate": 0.05, "trainable": {"method": method}},
    )
    run = tmp_path / "run"
    run_recipe(recipe, config, out=run)
    fixed = read_json(run / "fluency" / "threshold.json", dict)
    assert fixed["percentile"] == 5
    assert read_headline(run).title == "Exact and fluent"
    found = {metric.name for metric in read_metrics(run / "evaluate" / "metrics.json")}
    assert {"grpo/good", "grpo/exact", "grpo/fluent", "grpo/fluency", "grpo/reward"} < found
    assert read_json(run / "grpo" / "selection.json", dict)["chosen_by"] == "good"
    log = read_jsonl(run / "grpo" / "metrics.jsonl")
    assert any(row.get("reward/fluency") is not None for row in log)
    # By the base alone: the policy has changed, and its answers are measured with other weights.
    base = load_policy(run / "prepare" / "base")
    rows = read_predictions(run / "evaluate" / "predictions.jsonl")
    means = average_log_probs(base, [Completion(row.text) for row in rows])
    for row, mean in zip(rows, means, strict=True):
        is_fluent = mean is not None and mean >= fixed["threshold"]
        assert row.scores["fluent"] == float(is_fluent)
        whole = min if rewards is LOWEST else fmean
        parts = row.scores["exact"], row.scores["fluency"]
        assert row.scores["reward"] == pytest.approx(whole(parts))
        assert row.scores["good"] == min(row.scores["exact"], row.scores["fluent"])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"measures": {"good": {"all_of": ["exact", "fluent"]}}}, "exact"),
        ({"measures": {"good": None}}, "a measure is a function of a file, file.py:good"),
        ({"measures": {"fluent": {"all_of": ["fluent"]}}}, "give all_of a name of its own"),
        ({"rewards": {"both": {"all_of": ["exact", "fluency"]}, "fluency": 1}}, "exact"),
        ({"rewards": {"both": 1.0}}, "both"),
    ],
)
def test_measures_that_cannot_be_combined_are_refused(
    tmp_path: Path, values: dict[str, Any], words: str
):
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, **values)
    assert words in str(refused.value)
