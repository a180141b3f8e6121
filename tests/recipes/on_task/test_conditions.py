"""What a real run says of itself, and two of them held together."""

import json
from pathlib import Path

import pytest
from recipe_runs import RecipeJob

from groupwise.core import digest_file, read_jsonl
from groupwise.data import read_examples
from groupwise.evaluation.fairness import check_fairness, read_facts
from groupwise.evaluation.metrics import METRIC_VERSIONS
from groupwise.evaluation.predictions import read_policies, read_predictions
from groupwise.evaluation.results import read_conditions

pytestmark = pytest.mark.slow

# Enough of a warm-up that answers are valid and some are right: then GRPO has something to learn.
TAUGHT = (
    *("--set", "data.drawn.num_sessions=60", "--set", "data.warmup_share=0.5"),
    *("--set", "data.validation_share=0.1", "--set", "sft.labelled_share=1.0"),
    *("--set", "sft.epochs=25", "--set", "sft.batch_size=6"),
)


def test_conditions_tell_what_the_run_read_and_did(tiny_run: Path) -> None:
    found = read_conditions(tiny_run) or {}
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    assert found["data"]["test"]["num_rows"] == len(test)
    assert found["data"]["warmup"]["digest"] == digest_file(tiny_run / "prepare" / "warmup.jsonl")
    assert found["data"]["train"]["num_rows:on-task"] > 0
    assert found["metrics"] == METRIC_VERSIONS
    assert found["decoding"] == {
        "temperature": 0.0,
        "top_p": 1.0,
        "max_new_tokens": 16,
        "repetition_penalty": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": None,
    }
    assert found["base_weights"]


def test_policies_tell_how_they_were_trained_and_on_what(tiny_run: Path) -> None:
    found = read_policies(tiny_run)
    grpo, sft = found.find("grpo").budget, found.find("sft").budget
    steps = read_jsonl(tiny_run / "grpo" / "metrics.jsonl")[-1]["step"]
    assert grpo["num_steps"] == steps
    assert grpo["num_samples"] == steps * 4 * 2
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


def test_settings_that_only_other_policies_were_trained_with_are_unused(tiny_run: Path) -> None:
    unused = {name: read_facts(tiny_run, policy=name).unused for name in ("prompt", "sft", "grpo")}
    used = {
        key: {name for name, found in unused.items() if f"config/{key}" not in found}
        for key in ("data.test_share", "model.dtype", "sft.learning_rate", "grpo.beta")
    }
    assert used["data.test_share"] == used["model.dtype"] == {"prompt", "sft", "grpo"}
    assert used["sft.learning_rate"] == {"sft", "grpo"}
    assert used["grpo.beta"] == {"grpo"}


def test_the_manifest_names_metric_versions(tiny_run: Path) -> None:
    manifest = json.loads((tiny_run / "manifest.json").read_text())
    assert manifest["metric_versions"] == METRIC_VERSIONS


def test_policies_of_one_run_can_be_held_together(tiny_run: Path) -> None:
    runs = [read_facts(tiny_run, policy=name) for name in ("sft", "sft_control")]
    assert check_fairness(runs, factors=("policy",)).confounding == ()


def test_runs_of_one_rate_and_another_are_fair_and_of_other_data_are_not(
    tmp_path: Path, job: RecipeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
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
