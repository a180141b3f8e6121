"""What a real run says of itself, and two of them held together."""

import json
from pathlib import Path

import pytest
from recipe_runs import RecipeJob

from groupwise.core import digest_file, read_jsonl
from groupwise.data import read_examples
from groupwise.evaluation import METRIC_VERSIONS, check_fairness, read_conditions, read_facts

# Enough of a warm-up that answers are valid and some are right: then GRPO has something to learn.
TAUGHT = (
    *("--set", "data.drawn.num_sessions=60", "--set", "data.warmup_share=0.5"),
    *("--set", "data.validation_share=0.1", "--set", "sft.labelled_share=1.0"),
    *("--set", "sft.epochs=25", "--set", "sft.batch_size=6"),
)


def test_conditions_tell_what_the_run_read_and_did(tiny_run: Path) -> None:
    found = read_conditions(tiny_run / "evaluate" / "conditions.json")
    test = read_examples(tiny_run / "prepare" / "test.jsonl")
    assert found.data["test"]["num_rows"] == len(test)
    assert found.data["warmup"]["digest"] == digest_file(tiny_run / "prepare" / "warmup.jsonl")
    assert found.data["train"]["num_rows:on-task"] > 0
    assert found.metrics == METRIC_VERSIONS
    assert found.decoding == {
        "temperature": 0.0,
        "top_p": 1.0,
        "max_new_tokens": 16,
        "repetition_penalty": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": None,
    }
    assert found.base_weights
    assert sum(part["weight"] for part in found.rewards.values()) == pytest.approx(1)
    steps = read_jsonl(tiny_run / "grpo" / "metrics.jsonl")[-1]["step"]
    assert found.budget["grpo"]["num_steps"] == steps
    assert found.budget["grpo"]["num_samples"] == steps * 4 * 2
    assert 0 < found.budget["grpo"]["num_tokens"] <= steps * 4 * 2 * 16
    assert found.budget["sft"]["num_samples"] == 12
    assert found.lineage["grpo"] == ("sft", "grpo")


def test_every_data_file_and_step_that_is_named_is_there(tiny_run: Path) -> None:
    found = read_conditions(tiny_run / "evaluate" / "conditions.json")
    assert {name for names in found.reads.values() for name in names} <= set(found.data)
    assert {step for steps in found.lineage.values() for step in steps} <= set(found.reads)
    config = json.loads((tiny_run / "manifest.json").read_text())["config"]
    assert {name for names in found.sections.values() for name in names} <= set(config)
    assert all((tiny_run / step).is_dir() for step in found.sections)


def test_the_manifest_names_metric_versions(tiny_run: Path) -> None:
    manifest = json.loads((tiny_run / "manifest.json").read_text())
    assert manifest["metric_versions"] == METRIC_VERSIONS


def test_policies_of_one_run_can_be_held_together(tiny_run: Path) -> None:
    runs = [read_facts(tiny_run, policy=name) for name in ("sft", "sft_same_labels")]
    assert check_fairness(runs, varying=("policy",)).confounding == ()


@pytest.mark.slow
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
    rate = check_fairness([one, two], varying=("grpo.learning_rate",))
    assert rate.is_fair, (rate.confounding, rate.remarks)
    data = check_fairness([one, three], varying=("grpo.learning_rate",))
    assert not data.is_fair
    assert {"data", "items", "prompts"} <= {one.aspect for one in data.confounding}
