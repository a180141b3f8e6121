"""Launch scripts: the run's own settings under the trainer's names, and none lost in silence."""

from pathlib import Path
from typing import Any, Literal

import pytest
from handed_over import read_words
from small_task import LORA, SmallConfig

from groupwise.core import dump_config, find_effect, flatten_settings, list_effects
from groupwise.flow import FlowConfig, export_for_trainer, open_run
from groupwise.flow.trainers.launch import write_script
from groupwise.flow.trainers.swift import SwiftTrainer
from groupwise.flow.trainers.verl import VerlTrainer
from groupwise.training import GrpoSettings

TrainerName = Literal["verl", "swift"]
TRAINERS = {"verl": VerlTrainer(), "swift": SwiftTrainer()}

OTHERS: dict[str, Any] = {
    "learning_rate": 3e-5,
    "scheduler": "cosine",
    "warmup_share": 0.25,
    "warmup_steps": 7,
    "weight_decay": 0.3,
    "max_grad_norm": 0.7,
    "gradient_accumulation": 2,
    "easy_first": True,
    "trainable.method": "full",
    "trainable.lora.rank": 64,
    "trainable.lora.alpha": 128,
    "trainable.lora.last_blocks": 3,
    "trainable.lora.modules": ["q_proj"],
    "validation": {"every_steps": 5},
    "validation.every_steps": 9,
    "validation.select": "last",
    "validation.patience": 4,
    "epochs": 12,
    "max_steps": 77,
    "prompts_per_step": 6,
    "steps_per_generation": 4,
    "num_iterations": 3,
    "group_size": 9,
    "max_new_tokens": 31,
    "temperature": 0.8,
    "temperature_warmup": {"start": 0.5, "steps": 9},
    "temperature_warmup.start": 0.75,
    "temperature_warmup.steps": 12,
    "top_p": 0.9,
    "beta": 0.04,
    "entropy_bonus": 0.003,
    "loss": "dr_grpo",
    "scale_rewards": "batch",
    "clip_low": 0.15,
    "clip_high": 0.28,
    "refill": {"max_tries": 2},
    "refill.max_tries": 5,
    "refill.first": "alive",
    "vllm": {"tensor_parallel_size": 2},
    "vllm.mode": "server",
    "vllm.tensor_parallel_size": 4,
    "vllm.sleep": True,
    "vllm.max_model_length": 512,
    "vllm.correction": "token_mask",
    "vllm.ratio_min": 0.5,
    "vllm.ratio_max": 2.0,
}
"""Another value of every setting of GRPO that may change a result."""
ELSEWHERE = ("trainable.freeze_vision", "trainable.freeze_aligner", "trainable.prompt")
"""What says nothing of a LoRA."""


def write(config: FlowConfig, trainer: TrainerName) -> str:
    launch = TRAINERS[trainer].make_launch(config, num_validation=8)
    untold = launch.list_untold(config)
    return write_script(launch, trainer=trainer, model="some/base", untold=untold)


def make_config(**changes: Any) -> SmallConfig:
    """Return a config with changes of settings of GRPO by their paths."""
    values = {**LORA, "grpo": dict(LORA["grpo"])}
    for path, value in changes.items():
        section = values["grpo"]
        *above, last = path.split(".")
        for name in above:
            section = section.setdefault(name, {})
        section[last] = value
    return SmallConfig.model_validate(values)


def list_counting() -> list[str]:
    """Return the settings of GRPO that may change a result, those of absent sections, too."""
    effects = list_effects(GrpoSettings)
    paths = [path for path in effects if find_effect(effects, path).kind != "harmless"]
    is_inner = [any(other.startswith(f"{path}.") for other in paths) for path in paths]
    return [path for path, inner in zip(paths, is_inner, strict=True) if not inner]


def test_every_setting_that_counts_has_another_value_here() -> None:
    counting = {path for path in list_counting() if not path.startswith(ELSEWHERE)}
    assert counting <= OTHERS.keys()


@pytest.mark.parametrize("trainer", ["verl", "swift"])
@pytest.mark.parametrize("path", OTHERS)
def test_a_setting_that_changes_is_told_or_listed(path: str, trainer: TrainerName) -> None:
    section = path.split(".")[0]
    base = {section: OTHERS[section]} if "." in path and section in OTHERS else {}
    if path.startswith("vllm."):
        base = {"vllm": {}}
    base = {name: dict(value) for name, value in base.items()}
    assert write(make_config(**base), trainer) != write(
        make_config(**base, **{path: OTHERS[path]}), trainer
    )


@pytest.mark.parametrize("name", ["freeze_vision", "freeze_aligner"])
@pytest.mark.parametrize("trainer", ["verl", "swift"])
def test_what_is_frozen_of_a_whole_model_is_told(name: str, trainer: TrainerName) -> None:
    whole = {"trainable.method": "full"}
    thawed = {**whole, f"trainable.{name}": False}
    assert write(make_config(**whole), trainer) != write(make_config(**thawed), trainer)


def test_the_remarks_are_comments_whatever_a_value_is() -> None:
    config = make_config()
    launch = VerlTrainer().make_launch(config, num_validation=0)
    script = write_script(launch, trainer="verl", model="x", untold=["a\nrm -rf b"])
    assert "# - a rm -rf b\n" in script


SOURCE = {
    "group_size": 5,
    "prompts_per_step": 8,
    "gradient_accumulation": 4,
    "learning_rate": 1e-5,
    "beta": 0.02,
    "max_new_tokens": 16,
    "epochs": 10,
    "save_every_steps": 100,
    "heldout_every_steps": 50,
    "num_iterations": 2,
}


def read_verl(config: FlowConfig, folder: Path) -> dict[str, str]:
    (folder / "launch.sh").write_text(write(config, "verl"))
    words = read_words(folder / "launch.sh", "python3", folder / "bin")
    assert words[:2] == ["-m", "verl.trainer.main_ppo"]
    return dict(word.split("=", 1) for word in words[2:])


def test_verl_is_told_the_runs_own_numbers(tmp_path: Path) -> None:
    told = read_verl(make_config(**SOURCE), tmp_path)
    actor = "actor_rollout_ref.actor"
    assert told["data.train_batch_size"] == told[f"{actor}.ppo_mini_batch_size"] == "32"
    assert told[f"{actor}.ppo_micro_batch_size_per_gpu"] == "40"
    assert told["actor_rollout_ref.rollout.n"] == "5"
    assert float(told[f"{actor}.optim.lr"]) == 1e-5
    assert (told[f"{actor}.use_kl_loss"], told[f"{actor}.kl_loss_coef"]) == ("True", "0.02")
    assert (told["data.max_prompt_length"], told["data.max_response_length"]) == ("128", "16")
    assert told["trainer.total_epochs"] == "10"
    assert (told["trainer.save_freq"], told["trainer.test_freq"]) == ("50", "25")  # in rounds
    assert told["actor_rollout_ref.model.path"] == "some/base"
    assert told["data.train_files"] == f"{tmp_path}/train.parquet"
    assert told["reward.custom_reward_function.path"] == f"{tmp_path}/plugin.py"


def read_swift(config: FlowConfig, folder: Path, **environment: str) -> dict[str, str]:
    (folder / "launch.sh").write_text(write(config, "swift"))
    words = read_words(folder / "launch.sh", "swift", folder / "bin", **environment)
    assert words[0] == "rlhf"
    return {
        word.removeprefix("--"): words[place + 1]
        for place, word in enumerate(words)
        if word.startswith("--")
    }


def test_swift_is_told_the_runs_own_numbers(tmp_path: Path) -> None:
    told = read_swift(make_config(**SOURCE), tmp_path, MODEL="a folder/model")
    wanted = {
        "model": "a folder/model",
        "num_generations": "5",
        "per_device_train_batch_size": "40",
        "gradient_accumulation_steps": "4",
        "steps_per_generation": "4",
        "beta": "0.02",
        "num_iterations": "2",
        "max_completion_length": "16",
        "max_length": "144",
        "num_train_epochs": "10",
        "save_steps": "100",
        "eval_steps": "50",
        "val_dataset": "validation.jsonl#2",
    }
    assert {name: told[name] for name in wanted} == wanted
    assert float(told["learning_rate"]) == 1e-5


def test_without_validation_nothing_is_looked_at(tmp_path: Path) -> None:
    config = make_config(**SOURCE)
    verl = VerlTrainer().make_launch(config, num_validation=0).arguments
    assert verl["trainer.test_freq"] == "trainer.test_freq=-1"
    assert verl["data.val_files"].endswith('train.parquet"')
    swift = SwiftTrainer().make_launch(config, num_validation=0).arguments
    assert "val_dataset" not in swift
    assert swift["eval_strategy"] == "--eval_strategy no"


def test_a_base_that_is_built_here_has_to_be_named(finished: Path, tmp_path: Path) -> None:
    run = open_run(finished)
    config = SmallConfig.model_validate({**dump_config(run.config), "sft": None})
    export_for_trainer(type(run)(run.folder, run.recipe, run.task, config), tmp_path / "a", "verl")
    assert "MODEL:?" in (tmp_path / "a" / "launch.sh").read_text()
    done = export_for_trainer(run, tmp_path / "b", "verl")
    assert "${MODEL:-model/merged}" in (tmp_path / "b" / "launch.sh").read_text()
    assert done.is_from_warmup


def test_virtual_tokens_are_refused(finished: Path, tmp_path: Path, command_line) -> None:
    run = open_run(finished)
    grpo = {**dump_config(run.config)["grpo"], "trainable": {"method": "prompt"}}
    config = SmallConfig.model_validate({**dump_config(run.config), "grpo": grpo})
    with pytest.raises(Exception, match="verl trains no virtual tokens"):
        export_for_trainer(
            type(run)(run.folder, run.recipe, run.task, config), tmp_path / "a", "verl"
        )


def test_flattened_settings_are_those_of_grpo() -> None:
    """Paths here are those that a config has."""
    known = {path for path, _ in flatten_settings(dump_config(make_config().grpo))}
    absent = ("refill.", "vllm.", "validation.", "temperature_warmup.")
    assert {path for path in OTHERS if not path.startswith(absent)} <= known
