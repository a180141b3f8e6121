"""The arguments of Transformers' Trainer that SFT and GRPO share, and settings behind memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from groupwise.core import TrainingError
from groupwise.inference.streaming.local import is_out_of_memory
from groupwise.training.processes import spreads_weights
from groupwise.training.settings import GrpoSettings, SftSettings, TrainerSettings
from groupwise.training.trackers import PROJECT
from groupwise.training.workspace import Workspace


def build_arguments(
    settings: TrainerSettings, workspace: Workspace, *, dtype: torch.dtype
) -> dict[str, Any]:
    """Return keyword arguments for ``SFTConfig`` and ``GRPOConfig``; ``dtype`` is the policy's."""
    spread = {"fsdp": True, "fsdp_config": {"version": 2}} if spreads_weights() else {}
    saves = settings.save_every_steps is not None
    warmup = settings.warmup_share if settings.warmup_steps is None else settings.warmup_steps
    return {
        "output_dir": str(workspace.folder),
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": settings.scheduler,
        "warmup_steps": warmup,  # below 1 it is a share
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "gradient_accumulation_steps": settings.gradient_accumulation,
        "activation_checkpointing": settings.gradient_checkpointing,
        "logging_steps": settings.log_every_steps,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "save_strategy": "steps" if saves else "no",
        "save_steps": settings.save_every_steps or 500,
        "report_to": "none",  # Trackers tells them, under our names
        "run_name": f"{workspace.folder.resolve().parent.name}/{workspace.folder.name}",
        "project": PROJECT,
        "bf16": dtype == torch.bfloat16,
        "fp16": dtype == torch.float16,
        "use_cpu": not torch.accelerator.is_available(),  # or bfloat16 is refused there
        "seed": workspace.seed,
        "data_seed": workspace.seed,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": torch.accelerator.is_available(),
        **spread,
    }


_SMALLER = {
    GrpoSettings: ("prompts_per_step", "steps_per_generation", "group_size", "max_new_tokens"),
    SftSettings: ("batch_size",),
}


@contextmanager
def name_memory_settings(settings: TrainerSettings) -> Iterator[None]:
    """Within this context an allocation that fails, on any device, is a TrainingError.

    Raises:
        TrainingError: that names the settings which decide how much memory a step takes.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        first_line = str(error).partition("\n")[0]
        raise TrainingError(
            "a training step ran out of memory",
            got=first_line or type(error).__name__,
            fix=f"{_describe_ways(settings)}; "
            "then run again with --resume: finished steps are kept",
        ) from error


def _describe_ways(settings: TrainerSettings) -> str:
    """Return what to change, each setting with its present value."""
    names = next(names for kind, names in _SMALLER.items() if isinstance(settings, kind))
    values = {name: getattr(settings, name) for name in names}
    given = [f"{name} ({value})" for name, value in values.items() if value is not None]
    ways = [f"lower {', '.join(given)}"]
    ways.append(f"raise gradient_accumulation ({settings.gradient_accumulation}) to make up for it")
    if not settings.gradient_checkpointing:
        ways.append("set gradient_checkpointing (false) to true")
    trainable = settings.trainable
    if trainable.method == "full":
        ways.append("set trainable.method (full) to lora")
    elif trainable.method == "lora":
        ways.append(f"lower trainable.lora.last_blocks ({trainable.lora.last_blocks or 'all'})")
    return "; ".join([*ways, "load the model with model.dtype: bfloat16"])
