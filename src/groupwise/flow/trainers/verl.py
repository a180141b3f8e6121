"""verl: rows as its RLHFDataset reads them, its ``compute_score``, and its launch arguments.

Source: verl 0.9.1, ``utils/dataset/rl_dataset.py`` and ``trainer/config``.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from groupwise.core import Example
from groupwise.core.jsonl import replace_file
from groupwise.flow.settings import FlowConfig
from groupwise.flow.trainers.launch import Launch, count_updates, find_look_steps
from groupwise.flow.trainers.turns import find_tag, show_picture, write_turns
from groupwise.rewards.adapters import EXAMPLE_ID

_TAGS = ("<image>", "<video>", "<audio>")
_AGGREGATION = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "cispo": "token-mean",
}
_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"

PLUGIN = '''\
"""The rewards of a Groupwise run for verl: reward.custom_reward_function.path."""

from pathlib import Path

from groupwise.flow import open_rewards
from groupwise.rewards.adapters import VerlScore

UNSCORED = None
"""What verl gets, in [0, 1], where an answer has no score, as when the judge gave no verdict; verl
needs a number, so with None such an answer stops the training."""

opened = open_rewards(Path(__file__).parent)
compute_score = VerlScore(opened.rewards, unscored=UNSCORED, examples=opened.examples)
'''


class VerlTrainer:
    """verl, with Ray and vLLM."""

    name = "verl"
    plugin = PLUGIN
    ending = ".parquet"

    def find_problem(self, example: Example) -> str | None:
        """Return why a prompt cannot be a row: it has a tag in its words, beside pictures."""
        tag = find_tag(example, _TAGS) if example.pictures else None
        return f"{tag} in the words of a prompt with pictures" if tag else None

    def write_rows(
        self, path: Path, examples: Sequence[Example], config: FlowConfig, *, recipe: str
    ) -> None:
        """Write one row per example; pictures are named from the file's folder."""
        pa: Any = import_module("pyarrow")  # it ships without types
        pq: Any = import_module("pyarrow.parquet")
        rows = [
            _make_row(number, example, path, config, recipe)
            for number, example in enumerate(examples)
        ]
        if not any(row["images"] for row in rows):
            rows = [{k: v for k, v in row.items() if k != "images"} for row in rows]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows), sink)
        replace_file(path, [sink.getvalue()])

    def make_launch(self, config: FlowConfig, *, num_validation: int) -> Launch:
        """Return the arguments of ``verl.trainer.main_ppo``."""
        launch = Launch("python3 -m verl.trainer.main_ppo")
        for tell in (_tell_data, _tell_policy, _tell_loss, _tell_optimiser, _tell_sampling):
            tell(launch, config)
        _tell_time(launch, config, num_validation=num_validation)
        return launch


def _make_row(
    number: int, example: Example, path: Path, config: FlowConfig, recipe: str
) -> dict[str, Any]:
    most = config.model.max_pixels
    pictures = [
        {"image": show_picture(picture, path.parent), "max_pixels": most}
        for picture in example.pictures
    ]
    return {
        "data_source": f"groupwise/{recipe}",
        "prompt": write_turns(example),
        "images": pictures,  # the columns are those of the first row
        "ability": recipe,
        "reward_model": {"style": "rule", "ground_truth": example.label},
        "extra_info": {"split": path.stem, "index": number, EXAMPLE_ID: example.id},
    }


def _tell(launch: Launch, settings: str, values: Mapping[str, object]) -> None:
    """Add Hydra overrides."""
    launch.tell(settings, {k: shlex.quote(f"{k}={_write(v)}") for k, v in values.items()})


def _tell_file(launch: Launch, name: str, file: str) -> None:
    """Add a file of the script's folder, wherever Ray's workers are."""
    launch.tell("", {name: f'{name}="$PWD/{file}"'})


def _write(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_write, value))}]"
    return str(value)


def _tell_data(launch: Launch, config: FlowConfig) -> None:
    grpo = config.grpo
    per_round = grpo.prompts_per_step * (grpo.steps_per_generation or grpo.gradient_accumulation)
    own = {
        "algorithm.adv_estimator": "grpo",
        "data.max_prompt_length": config.data.budget.max_prompt_tokens,
        "data.truncation": "error",
        "data.filter_overlong_prompts": False,  # a row that verl cannot read would go in silence
        "data.seed": config.seed,
        "reward.custom_reward_function.name": "compute_score",
    }
    _tell(launch, "", own)
    _tell_file(launch, "data.train_files", "train.parquet")
    _tell_file(launch, "reward.custom_reward_function.path", "plugin.py")
    _tell(
        launch,
        "grpo.prompts_per_step grpo.steps_per_generation grpo.gradient_accumulation",
        {
            "data.train_batch_size": per_round,
            f"{_ACTOR}.ppo_mini_batch_size": grpo.prompts_per_step * grpo.gradient_accumulation,
            f"{_ACTOR}.ppo_micro_batch_size_per_gpu": grpo.prompts_per_step * grpo.group_size,
        },
    )
    _tell(launch, "grpo.num_iterations", {f"{_ACTOR}.ppo_epochs": grpo.num_iterations})


def _tell_policy(launch: Launch, config: FlowConfig) -> None:
    trainable, model = config.grpo.trainable, "actor_rollout_ref.model"
    launch.tell("", {f"{model}.path": f'{model}.path="$MODEL"'})
    checkpointed = {f"{model}.enable_gradient_checkpointing": config.grpo.gradient_checkpointing}
    _tell(launch, "", checkpointed)
    if trainable.method == "lora":
        adapter = {
            f"{model}.lora_rank": trainable.lora.rank,
            f"{model}.lora_alpha": trainable.lora.alpha,
            f"{model}.target_modules": trainable.lora.modules,
            f"{model}.exclude_modules": "'.*visual.*'",
            f"{_ROLLOUT}.load_format": "safetensors",  # vLLM then has the base's own weights
        }
        settings = "method lora.rank lora.alpha lora.modules freeze_vision freeze_aligner"
        _tell(launch, " ".join(f"grpo.trainable.{name}" for name in settings.split()), adapter)
        if trainable.lora.last_blocks:
            clause = "the adapter is on all blocks, not on the last {} alone"
            name = "grpo.trainable.lora.last_blocks"
            launch.remark(name, clause.format(trainable.lora.last_blocks))
    else:
        _tell(launch, "grpo.trainable.method", {f"{model}.lora_rank": 0})
        frozen = [name for name in ("freeze_vision", "freeze_aligner") if getattr(trainable, name)]
        for name in frozen:
            launch.remark(f"grpo.trainable.{name}", f"all weights train: {name} is not in verl")
    if config.model.dtype != "auto":
        _tell(launch, "", {f"{_ROLLOUT}.dtype": config.model.dtype})


def _tell_loss(launch: Launch, config: FlowConfig) -> None:
    grpo = config.grpo
    loss: dict[str, object] = {f"{_ACTOR}.loss_agg_mode": _AGGREGATION[grpo.loss]}
    if grpo.loss == "cispo":
        loss[f"{_ACTOR}.policy_loss.loss_mode"] = "cispo"
    if grpo.loss == "dr_grpo":
        loss[f"{_ACTOR}.loss_scale_factor"] = grpo.max_new_tokens
    _tell(launch, "grpo.loss", loss)
    _tell(
        launch,
        "grpo.clip_low grpo.clip_high",
        {
            f"{_ACTOR}.clip_ratio": grpo.clip_low,
            f"{_ACTOR}.clip_ratio_low": grpo.clip_low,
            f"{_ACTOR}.clip_ratio_high": grpo.clip_high,
        },
    )
    _tell(launch, "grpo.entropy_bonus", {f"{_ACTOR}.entropy_coeff": grpo.entropy_bonus})
    penalty: dict[str, object] = {f"{_ACTOR}.use_kl_loss": grpo.beta > 0}
    if grpo.beta > 0:
        penalty[f"{_ACTOR}.kl_loss_coef"] = grpo.beta
        penalty[f"{_ACTOR}.kl_loss_type"] = "low_var_kl"
    _tell(launch, "grpo.beta", penalty)
    is_scaled = {"algorithm.norm_adv_by_std_in_grpo": grpo.scale_rewards != "none"}
    _tell(launch, "grpo.scale_rewards", is_scaled)
    if grpo.scale_rewards == "batch":
        launch.remark("", "advantages are divided by the group's deviation, not the batch's")
    also = "cuts ratios above clip_ratio_c (3) where the advantage is below 0"
    launch.remark("", f"verl {'clips below 1 - clip_low, too' if grpo.loss == 'cispo' else also}")


def _tell_optimiser(launch: Launch, config: FlowConfig) -> None:
    grpo, optimiser = config.grpo, f"{_ACTOR}.optim"
    values = {
        "grpo.learning_rate": {f"{optimiser}.lr": grpo.learning_rate},
        "grpo.weight_decay": {f"{optimiser}.weight_decay": grpo.weight_decay},
        "grpo.max_grad_norm": {f"{optimiser}.clip_grad": grpo.max_grad_norm},
    }
    for setting, value in values.items():
        _tell(launch, setting, value)
    shape = "cosine" if grpo.scheduler == "cosine" else "constant"
    _tell(launch, "grpo.scheduler", {f"{optimiser}.lr_scheduler_type": shape})
    if grpo.scheduler == "linear":
        launch.remark("", "the learning rate does not fall: grpo.scheduler linear is not in verl")
    if grpo.scheduler == "constant":
        launch.told |= {"grpo.warmup_share", "grpo.warmup_steps"}
    elif grpo.warmup_steps is None:
        share = {f"{optimiser}.lr_warmup_steps_ratio": grpo.warmup_share}
        _tell(launch, "grpo.warmup_share", share)
    else:
        rounds = math.ceil(grpo.warmup_steps / count_updates(grpo))
        steps = {f"{optimiser}.lr_warmup_steps": rounds}
        _tell(launch, "grpo.warmup_steps grpo.warmup_share", steps)


def _tell_sampling(launch: Launch, config: FlowConfig) -> None:
    grpo = config.grpo
    rows = grpo.prompts_per_step * grpo.group_size
    values = {
        "grpo.group_size": {f"{_ROLLOUT}.n": grpo.group_size},
        "grpo.max_new_tokens": {"data.max_response_length": grpo.max_new_tokens},
        "grpo.temperature": {f"{_ROLLOUT}.temperature": grpo.temperature},
        "grpo.top_p": {f"{_ROLLOUT}.top_p": grpo.top_p},
    }
    for setting, value in values.items():
        _tell(launch, setting, value)
    own = {
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.tensor_model_parallel_size": 1,
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": rows,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": rows,
    }
    _tell(launch, "", own)
    if grpo.vllm is None:
        launch.remark("", "vLLM samples, not Transformers")
    elif grpo.vllm.mode == "colocate":
        size = {
            f"{_ROLLOUT}.gpu_memory_utilization": grpo.vllm.gpu_memory_share,
            f"{_ROLLOUT}.tensor_model_parallel_size": grpo.vllm.tensor_parallel_size,
        }
        _tell(launch, "grpo.vllm.mode grpo.vllm.tensor_parallel_size", size)


def _tell_time(launch: Launch, config: FlowConfig, *, num_validation: int) -> None:
    grpo, updates = config.grpo, count_updates(config.grpo)
    looks = find_look_steps(grpo) if num_validation else None

    def count_rounds(steps: int | None) -> int:
        return -1 if steps is None else math.ceil(steps / updates)

    last = None if grpo.max_steps is None else count_rounds(grpo.max_steps)
    _tell(launch, "grpo.epochs", {"trainer.total_epochs": grpo.epochs})
    _tell(launch, "grpo.max_steps", {"trainer.total_training_steps": last})
    _tell(launch, "", {"trainer.save_freq": count_rounds(grpo.save_every_steps)})
    own = {
        "trainer.test_freq": count_rounds(looks),
        "trainer.val_before_train": False,
        "data.val_max_samples": config.evaluation.num_heldout_items,
        "data.val_batch_size": config.evaluation.batch_size,
        "trainer.logger": ["console", *grpo.report_to],
        "trainer.project_name": "groupwise",
        "trainer.experiment_name": "verl",
        "trainer.default_local_dir": "checkpoints",
        "trainer.n_gpus_per_node": 1,
        "trainer.nnodes": 1,
    }
    _tell(launch, "grpo.validation.every_steps", own)
    _tell_file(launch, "data.val_files", f"{'validation' if num_validation else 'train'}.parquet")
    if updates > 1:
        launch.remark(
            "", f"verl counts rounds, of {updates} updates each, where the run counts them"
        )
