"""Launch scripts: shell that runs, with the run's own numbers under the trainer's names."""

import shutil
import subprocess
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from handed_over import open_own_rewards, read_words
from recipe_runs import TINY_SCENES, RecipeJob
from small_task import LORA, SmallConfig

import groupwise
from groupwise.core import Completion, ConfigError, dump_config, load_config
from groupwise.data.examples import read_examples
from groupwise.run.export import export_for_trainer
from groupwise.run.predict import FinishedRun, open_run
from groupwise.run.recipe import find_config, find_recipe

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


_TEMPLATES = Path(groupwise.__file__).parent / "own_task" / "templates"
_GROUPS = {
    "data.drawn.num_groups": 64,
    "data.drawn.width": 112,
    "data.drawn.height": 84,
    "data.teach_share": 0.3,
    "data.warmup_share": 0.15,
    "data.validation_share": 0.1,
    "data.test_share": 0.25,
    "teach.epochs": 3,
    "teach.photos_per_epoch": 48,
    "teach.reading_per_epoch": 8,
}
JOBS = {
    "a task with a reward of its own": (RecipeJob("task", {}, "task.yaml"), "prepare"),
    "visual_reasoning": (RecipeJob("visual_reasoning", TINY_SCENES, "grounding"), "prepare"),
    "group_qc": (RecipeJob("group_qc", _GROUPS), "stage_b_data"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_the_plugin_pays_what_the_run_pays(name: str, tmp_path: Path, monkeypatch) -> None:
    job, stage = JOBS[name]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(_TEMPLATES / "labels", tmp_path, dirs_exist_ok=True)
    shutil.copy(_TEMPLATES / "shared" / "rewards.py", tmp_path)
    done = job.run(tmp_path / "run", "--until", stage)
    assert done.returncode == 0, done.stderr
    export_for_trainer(open_run(tmp_path / "run"), tmp_path / "verl", "verl")
    compute = run_path(str(tmp_path / "verl" / "plugin.py"))["compute_score"]
    own = open_own_rewards(tmp_path / "run", tmp_path / "own")
    asked = read_examples(tmp_path / "verl" / "examples.jsonl")
    assert asked
    for example in asked[:20]:
        for text in (str(example.label), "nothing that is an answer"):
            given = {"example_id": example.id}
            got = compute("x", text, example.label, extra_info=given)["score"]
            assert got == own.score(example, Completion(text)).value


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        ("demo_selection", "demo_selection trains no model with GRPO that verl could"),
        ("workflows", "cannot be built again elsewhere: their executor is a stub"),
    ],
)
def test_what_cannot_be_handed_over_is_said_in_one_sentence(
    recipe: str, why: str, tmp_path: Path
) -> None:
    found = find_recipe(recipe)
    assert found.task is not None
    config = load_config(found.load_config_type(), find_config(found, "demo"))
    run = FinishedRun(tmp_path, found, found.task(), config)
    with pytest.raises(ConfigError, match=why) as caught:
        export_for_trainer(run, tmp_path / "out", "verl")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
