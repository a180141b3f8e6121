"""Every config can be run, and mistakes in one are told at start-up."""

from pathlib import Path

import pytest

from groupwise.core import ConfigError, load_config
from groupwise.pipeline import check_recipe, find_config, find_recipe, list_configs
from groupwise_recipes.group_qc.config import GroupQcConfig

RECIPE = find_recipe("group_qc")
REAL = ("qwen2.5-vl-7b", "qwen3-vl-4b")


def load(name: str, *overrides: str) -> GroupQcConfig:
    return load_config(GroupQcConfig, find_config(RECIPE, name), overrides=overrides)


def test_the_shipped_configs() -> None:
    assert set(list_configs(RECIPE)) == {"demo", "english", "tile-tiny", *REAL}


@pytest.mark.parametrize("name", REAL)
def test_real_models_pass_a_dry_run_with_the_defaults_of_the_contract(
    name: str, tmp_path: Path
) -> None:
    config = load(name)
    preview = check_recipe(RECIPE, config, out=tmp_path / "run")
    assert preview.problems == []
    facts = dict(preview.facts)
    assert "weights alone take" in facts["memory"]
    assert "teach_stage_a" not in [stage for stage, _, _ in preview.tables[-1].rows]
    lora = config.grpo.trainable.lora
    assert (lora.rank, lora.alpha, lora.last_blocks) == (8, 16, 4)
    grpo = config.grpo
    assert (grpo.learning_rate, grpo.epochs) == (5e-6, 3)
    assert (grpo.group_size, grpo.max_new_tokens) == (4, 128)
    assert (grpo.temperature, grpo.top_p) == (0.7, 1.0)
    assert grpo.trainable.freeze_vision
    assert grpo.trainable.freeze_aligner
    sampling = config.summaries.sampling
    assert config.model.max_pixels == config.summaries.stream.max_pixels == 786_432
    assert config.summaries.stream.batch_size == 16
    assert (sampling.max_new_tokens, sampling.temperature) == (1024, 0.0)
    assert sampling.repetition_penalty == 1.1
    assert config.rewards.model_dump() == {"label": 1.0, "format": 0.2, "consistency": 0.0}


@pytest.mark.parametrize("name", REAL)
def test_real_models_train_on_24_groups(name: str, tmp_path: Path) -> None:
    config = load(name, "data.drawn.num_groups=24")
    preview = check_recipe(RECIPE, config, out=tmp_path / "run")
    assert preview.problems == []
    num_steps = int(dict(preview.facts)["grpo steps"].split()[1])
    assert 0 < num_steps * config.grpo.warmup_share < num_steps


def test_grpo_may_start_from_the_base(tmp_path: Path) -> None:
    config = load("demo", "sft=null", "data.warmup_share=0")
    steps = [step.name for step in RECIPE.plan(config, tmp_path / "run")]
    assert not {"sft", "sft_control"} & set(steps)
    assert "grpo" in steps
    preview = check_recipe(RECIPE, config, out=tmp_path / "run")
    assert preview.problems == []
    assert "sft steps" not in dict(preview.facts)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sft=null", r"data\.warmup_share must be 0 where sft is null"),
        ("rewards.weights=[1.0, 0.2]", "rewards.weights: unknown key"),
        ("rewards.label=-1", "greater than or equal to 0"),
        ("teach.validation={every_steps: 5}", "leave teach.validation out"),
        ("data.drawn.num_groups=0", "there is no data"),
        ("data.test_share=0.9", "leave no groups"),
        ("teach=null", "knows nothing of photos"),
        (["model.quantization=nf4", "teach.trainable.method=lora"], "4 bits would round again"),
        ("data.root=photos", "data.photo_labels"),
        ("grpo.trainable.method=full", "must be lora"),
        ("summaries.server={url: http://a/v1, model: b}", "for published bases"),
        ("data.summaries=[a.jsonl]", "Stage A is not taught"),
        ("data={summaries: [a.jsonl], near_duplicates: drop}", "needs the photos"),
        ("data.fail_folder=审核通过", "two names of folders"),
    ],
)
def test_a_wrong_config_is_refused(override: str | list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("demo", *([override] if isinstance(override, str) else override))


def test_a_tiny_model_and_what_it_lacks_is_told_by_the_dry_run(tmp_path: Path) -> None:
    preview = check_recipe(RECIPE, load("demo", "grpo.max_new_tokens=8"), out=tmp_path / "run")
    assert [line.partition(":")[0] for line in preview.problems] == ["grpo.max_new_tokens"]
