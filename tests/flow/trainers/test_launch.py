"""Launch scripts: shell that runs, with the run's own numbers under the trainer's names."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from handed_over import read_words
from small_task import LORA, SmallConfig

from groupwise.core import dump_config
from groupwise.flow import export_for_trainer, open_run

SOURCE: dict[str, Any] = {
    "group_size": 5,
    "prompts_per_step": 8,
    "gradient_accumulation": 4,
    "learning_rate": 1e-5,
    "beta": 0.02,
    "max_new_tokens": 16,
    "epochs": 10,
    "save_every_steps": 100,
}
VERL = {
    "data.train_batch_size": "32",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "32",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "40",
    "actor_rollout_ref.rollout.n": "5",
    "actor_rollout_ref.actor.optim.lr": "1e-05",
    "actor_rollout_ref.actor.use_kl_loss": "True",
    "actor_rollout_ref.actor.kl_loss_coef": "0.02",
    "data.max_prompt_length": "128",
    "data.max_response_length": "16",
    "trainer.total_epochs": "10",
    "trainer.save_freq": "100",
    "actor_rollout_ref.model.path": "a folder/model",
}
SWIFT = {
    "model": "a folder/model",
    "num_generations": "5",
    "per_device_train_batch_size": "40",
    "gradient_accumulation_steps": "4",
    "steps_per_generation": "4",
    "learning_rate": "1e-05",
    "beta": "0.02",
    "max_completion_length": "16",
    "max_length": "144",
    "num_train_epochs": "10",
    "save_steps": "100",
    "tuner_type": "lora",
    "val_dataset": "validation.jsonl",
    "external_plugins": "plugin.py",
}


def write(finished: Path, out: Path, trainer: Any, values: Any) -> Path:
    """Return the script of a finished run with other settings."""
    run = open_run(finished)
    config = SmallConfig.model_validate({**dump_config(run.config), **values})
    export_for_trainer(type(run)(run.folder, run.recipe, run.task, config), out, trainer)
    subprocess.run(["bash", "-n", out / "launch.sh"], check=True)
    return out / "launch.sh"


def read(script: Path, trainer: str, **environment: str) -> dict[str, str]:
    """Return what the script hands to the trainer, by name."""
    if trainer == "verl":
        words = read_words(script, "python3", script.parent / "bin", **environment)
        assert words[:2] == ["-m", "verl.trainer.main_ppo"]
        return dict(word.split("=", 1) for word in words[2:])
    words = read_words(script, "swift", script.parent / "bin", **environment)
    assert words[0] == "rlhf"
    named = [place for place, word in enumerate(words) if word.startswith("--")]
    return {words[place].removeprefix("--"): words[place + 1] for place in named}


@pytest.mark.parametrize(("trainer", "wanted"), [("verl", VERL), ("swift", SWIFT)])
def test_the_trainer_is_told_the_runs_own_numbers(
    finished: Path, tmp_path: Path, trainer: str, wanted: dict[str, str]
) -> None:
    grpo = {**LORA["grpo"], **SOURCE}
    script = write(finished, tmp_path / "a", trainer, {**LORA, "grpo": grpo})
    told = read(script, trainer, MODEL="a folder/model")
    rank = str(open_run(finished).config.grpo.trainable.lora.rank)
    assert told.get("actor_rollout_ref.model.lora_rank", told.get("lora_rank")) == rank
    assert {name: told[name] for name in wanted} == wanted
    if trainer == "verl":
        assert told["data.train_files"] == f"{tmp_path}/a/train.parquet"
        assert told["data.val_files"] == f"{tmp_path}/a/validation.parquet"
        assert told["reward.custom_reward_function.path"] == f"{tmp_path}/a/plugin.py"


@pytest.mark.parametrize("trainer", ["verl", "swift"])
def test_a_whole_model_has_no_adapter(finished: Path, tmp_path: Path, trainer: str) -> None:
    grpo = {**dump_config(open_run(finished).config)["grpo"], "trainable": {"method": "full"}}
    told = read(write(finished, tmp_path / "a", trainer, {"grpo": grpo}), trainer, MODEL="x")
    if trainer == "verl":
        assert told["actor_rollout_ref.model.lora_rank"] == "0"
    else:
        assert (told["tuner_type"], "lora_rank" in told) == ("full", False)


def test_a_base_that_is_built_here_has_to_be_named(finished: Path, tmp_path: Path) -> None:
    assert "MODEL:?" in write(finished, tmp_path / "a", "verl", {"sft": None}).read_text()
    export_for_trainer(open_run(finished), tmp_path / "b", "verl")
    assert "${MODEL:-model/merged}" in (tmp_path / "b" / "launch.sh").read_text()


def test_virtual_tokens_are_refused(finished: Path, tmp_path: Path) -> None:
    grpo = {**dump_config(open_run(finished).config)["grpo"], "trainable": {"method": "prompt"}}
    with pytest.raises(Exception, match="verl trains no virtual tokens"):
        write(finished, tmp_path / "a", "verl", {"grpo": grpo})
