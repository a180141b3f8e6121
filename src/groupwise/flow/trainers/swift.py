"""ms-swift: rows as JSONL, an outcome reward registered in ``orms``, and its launch arguments.

Source: ms-swift 4.6.0, ``dataset/preprocessor/core.py``, ``rewards/orm.py`` and ``arguments``.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import Example, write_jsonl
from groupwise.flow.settings import FlowConfig
from groupwise.flow.trainers.launch import Launch, find_look_steps
from groupwise.flow.trainers.turns import find_tag, show_picture, write_turns
from groupwise.rewards.adapters import EXAMPLE_ID

_TAGS = (
    "<image>",
    "<video>",
    "<audio>",
    "<bbox>",
    "<ref-object>",
    "<cot-process>",
    "<start-image>",
)

PLUGIN = '''\
"""The rewards of a Groupwise run for ms-swift: --external_plugins and --reward_funcs groupwise."""

from pathlib import Path

from groupwise.flow import open_rewards
from groupwise.rewards.adapters import make_swift_orm
from swift.rewards import orms

opened = open_rewards(Path(__file__).parent)
orms["groupwise"] = make_swift_orm(opened.rewards, examples=opened.examples)
'''


class SwiftTrainer:
    """ms-swift; an answer without a score is left out, as in the run."""

    name = "swift"
    plugin = PLUGIN
    ending = ".jsonl"

    def find_problem(self, example: Example) -> str | None:
        """Return why a prompt cannot be a row: swift reads a tag in its words as something else."""
        tag = find_tag(example, _TAGS)
        return f"{tag} in the words of a prompt" if tag else None

    def write_rows(
        self, path: Path, examples: Sequence[Example], config: FlowConfig, *, recipe: str
    ) -> None:
        """Write one row per example; pictures are named from the file's folder."""
        write_jsonl(path, [_make_row(example, path) for example in examples])

    def make_launch(self, config: FlowConfig, *, num_validation: int) -> Launch:
        """Return the arguments of ``swift rlhf``."""
        launch = Launch("swift rlhf", environment={"USE_HF": "1"})
        _tell_data(launch, config, num_validation=num_validation)
        for tell in (_tell_policy, _tell_loss, _tell_optimiser, _tell_sampling):
            tell(launch, config)
        _tell_time(launch, config, num_validation=num_validation)
        return launch


def _make_row(example: Example, path: Path) -> dict[str, Any]:
    pictures = [show_picture(picture, path.parent) for picture in example.pictures]
    return {
        "messages": write_turns(example),
        **({"images": pictures} if pictures else {}),
        "solution": example.label,
        EXAMPLE_ID: example.id,
    }


def _tell(launch: Launch, settings: str, values: Mapping[str, object]) -> None:
    """Add options."""
    launch.tell(settings, {k: f"--{k} {_write(v)}" for k, v in values.items()})


def _write(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return " ".join(map(_write, value))
    return shlex.quote(str(value))


def _tell_data(launch: Launch, config: FlowConfig, *, num_validation: int) -> None:
    tokens = config.data.budget.max_prompt_tokens + config.grpo.max_new_tokens
    # Of more rows than there are, swift would repeat some.
    num_looked_at = min(num_validation, config.evaluation.num_heldout_items)
    items = f"validation.jsonl#{num_looked_at}"
    own = {
        "rlhf_type": "grpo",
        "dataset": "train.jsonl",
        **({"val_dataset": items} if num_validation else {}),
        "split_dataset_ratio": 0,
        "strict": True,  # or a row that swift cannot read would go in silence
        "external_plugins": "plugin.py",
        "reward_funcs": "groupwise",
        "max_length": tokens,
        "truncation_strategy": "delete",
        "max_pixels": config.model.max_pixels,
        "seed": config.seed,
        "data_seed": config.seed,
        "output_dir": "checkpoints",
    }
    _tell(launch, "", own)


def _tell_policy(launch: Launch, config: FlowConfig) -> None:
    trainable = config.grpo.trainable
    launch.tell("", {"model": '--model "$MODEL"'})
    if config.model.dtype != "auto":
        _tell(launch, "", {"torch_dtype": config.model.dtype})
    _tell(launch, "", {"gradient_checkpointing": config.grpo.gradient_checkpointing})
    frozen = {"freeze_vit": trainable.freeze_vision, "freeze_aligner": trainable.freeze_aligner}
    _tell(launch, "grpo.trainable.freeze_vision grpo.trainable.freeze_aligner", frozen)
    _tell(launch, "grpo.trainable.method", {"tuner_type": trainable.method})
    if trainable.method == "lora":
        lora = trainable.lora
        adapter = {
            "lora_rank": lora.rank,
            "lora_alpha": lora.alpha,
            "lora_dropout": 0,
            "target_regex": rf"^(?!.*visual\.).*\.({'|'.join(lora.modules)})$",
        }
        settings = "rank alpha modules"
        _tell(launch, " ".join(f"grpo.trainable.lora.{n}" for n in settings.split()), adapter)
        if lora.last_blocks:
            clause = f"the adapter is on all blocks, not on the last {lora.last_blocks} alone"
            launch.remark("grpo.trainable.lora.last_blocks", clause)


def _tell_loss(launch: Launch, config: FlowConfig) -> None:
    grpo = config.grpo
    _tell(launch, "grpo.loss", {"loss_type": grpo.loss})
    _tell(launch, "grpo.scale_rewards", {"scale_rewards": grpo.scale_rewards})
    _tell(launch, "grpo.beta", {"beta": grpo.beta})
    highest = grpo.clip_high + (1 if grpo.loss == "cispo" else 0)
    limits = {"epsilon": grpo.clip_low, "epsilon_high": highest}
    _tell(launch, "grpo.clip_low grpo.clip_high", limits)


def _tell_optimiser(launch: Launch, config: FlowConfig) -> None:
    grpo = config.grpo
    _tell(launch, "grpo.learning_rate", {"learning_rate": grpo.learning_rate})
    _tell(launch, "grpo.scheduler", {"lr_scheduler_type": grpo.scheduler})
    _tell(launch, "grpo.weight_decay", {"weight_decay": grpo.weight_decay})
    _tell(launch, "grpo.max_grad_norm", {"max_grad_norm": grpo.max_grad_norm})
    if grpo.warmup_steps is None:
        _tell(launch, "grpo.warmup_share", {"warmup_ratio": grpo.warmup_share})
    else:
        steps = {"warmup_steps": grpo.warmup_steps}
        _tell(launch, "grpo.warmup_steps grpo.warmup_share", steps)


def _tell_sampling(launch: Launch, config: FlowConfig) -> None:
    grpo = config.grpo
    values = {
        "grpo.group_size": {"num_generations": grpo.group_size},
        "grpo.max_new_tokens": {"max_completion_length": grpo.max_new_tokens},
        "grpo.temperature": {"temperature": grpo.temperature},
        "grpo.top_p": {"top_p": grpo.top_p},
    }
    for setting, value in values.items():
        _tell(launch, setting, value)
    if grpo.vllm is None:
        _tell(launch, "", {"use_vllm": False})
        return
    served = {"use_vllm": True, "vllm_mode": grpo.vllm.mode}
    if grpo.vllm.mode == "colocate":
        served["vllm_gpu_memory_utilization"] = grpo.vllm.gpu_memory_share
        served["vllm_tensor_parallel_size"] = grpo.vllm.tensor_parallel_size
    else:
        served["vllm_server_base_url"] = grpo.vllm.base_url
    _tell(launch, "grpo.vllm.mode grpo.vllm.tensor_parallel_size", served)


def _tell_time(launch: Launch, config: FlowConfig, *, num_validation: int) -> None:
    grpo = config.grpo
    looks = find_look_steps(grpo) if num_validation else None
    batches = {
        "per_device_train_batch_size": grpo.prompts_per_step * grpo.group_size,
        "gradient_accumulation_steps": grpo.gradient_accumulation,
        "steps_per_generation": grpo.steps_per_generation or grpo.gradient_accumulation,
    }
    told = "grpo.prompts_per_step grpo.gradient_accumulation grpo.steps_per_generation"
    _tell(launch, told, batches)
    _tell(launch, "grpo.num_iterations", {"num_iterations": grpo.num_iterations})
    _tell(launch, "grpo.epochs", {"num_train_epochs": grpo.epochs})
    _tell(launch, "grpo.max_steps", {"max_steps": grpo.max_steps or -1})
    saves = {"save_strategy": "no"}
    if grpo.save_every_steps is not None:
        saves = {"save_strategy": "steps", "save_steps": grpo.save_every_steps}
    own = {**saves, "logging_steps": grpo.log_every_steps, "report_to": grpo.report_to or "none"}
    _tell(launch, "", own)
    _tell_looks(launch, looks, config.evaluation.batch_size)


def _tell_looks(launch: Launch, steps: int | None, batch_size: int) -> None:
    if steps is None:
        _tell(launch, "grpo.validation.every_steps", {"eval_strategy": "no"})
        return
    looks = {
        "eval_strategy": "steps",
        "eval_steps": steps,
        "num_generations_eval": 1,
        "per_device_eval_batch_size": batch_size,
    }
    _tell(launch, "grpo.validation.every_steps", looks)
    launch.remark("", "looks at validation sample their answers; those of the run are greedy")
