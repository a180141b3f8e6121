"""What the configs of on_task accept, and what a dry run says."""

from pathlib import Path

import pytest

from groupwise.core import ConfigError, load_config
from groupwise.pipeline import find_recipe
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.preview import preview_run

CONFIGS = find_recipe("on_task").config_folder


def load(name: str, *overrides: str) -> OnTaskConfig:
    return load_config(OnTaskConfig, CONFIGS / f"{name}.yaml", overrides=overrides)


@pytest.mark.parametrize("name", ["demo", "qwen2.5-vl-3b"])
def test_shipped_configs_can_start(name: str) -> None:
    preview = preview_run(load(name))
    assert preview.problems == []
    assert {"tokens per row", "sft steps", "grpo steps"} <= {fact for fact, _ in preview.facts}


def test_real_config_estimates_tokens_and_memory() -> None:
    facts = dict(preview_run(load("qwen2.5-vl-3b")).facts)
    assert "1,2" in facts["tokens per row"]
    assert "MiB" in facts["memory estimate"]


def test_missing_folder_is_a_problem_that_names_it(tmp_path: Path) -> None:
    (problem,) = preview_run(load("screenagent-tiny", f"data.root={tmp_path / 'gone'}")).problems
    assert "gone" in problem


def test_budget_that_rejects_real_rows_is_a_problem() -> None:
    config = load("qwen2.5-vl-3b", "data.budget.max_prompt_tokens=256")
    assert any("rejects real rows" in problem for problem in preview_run(config).problems)


def test_response_limit_that_cannot_hold_a_label_is_a_problem() -> None:
    config = load("demo", "grpo.max_new_tokens=3")
    assert any("cannot hold an answer" in problem for problem in preview_run(config).problems)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.drawn.num_sessions=0", "there is no data"),
        ("data.train_folds=[0]", "go together"),
        ("data.warmup_share=0.95", "no sessions for GRPO"),
        ("answer.labels=[ja, nein]", "answer.labels"),
        ("grpo.group_size=1", "grpo.group_size"),
        ("sft.trainable.lora.rang=3", "did you mean 'rank'"),
    ],
)
def test_bad_settings_say_what_is_wrong(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("[", r"\[")):
        load("demo", override)


def test_fold_on_both_sides_is_refused() -> None:
    with pytest.raises(ConfigError, match="both"):
        load("screenagent-tiny", "data.test_folds=[2, 3]")
