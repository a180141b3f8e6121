"""The arguments of Transformers' Trainer that SFT and GRPO share."""

from typing import Any

import torch

from groupwise.training.settings import TrainerSettings
from groupwise.training.trackers import PROJECT
from groupwise.training.workspace import Workspace


def build_arguments(
    settings: TrainerSettings, workspace: Workspace, *, dtype: torch.dtype
) -> dict[str, Any]:
    """Return keyword arguments for ``SFTConfig`` and ``GRPOConfig``; ``dtype`` is the policy's."""
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
        "save_total_limit": 2,
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
    }
