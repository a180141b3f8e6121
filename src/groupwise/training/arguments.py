"""The arguments of Transformers' Trainer that SFT and GRPO share."""

from pathlib import Path
from typing import Any

from groupwise.training.settings import TrainerSettings


def build_arguments(settings: TrainerSettings, *, folder: Path, seed: int) -> dict[str, Any]:
    """Return keyword arguments for ``SFTConfig`` and ``GRPOConfig``."""
    saves = settings.save_every_steps is not None
    return {
        "output_dir": str(folder),
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": settings.scheduler,
        "warmup_steps": settings.warmup_share,
        "weight_decay": settings.weight_decay,
        "max_grad_norm": settings.max_grad_norm,
        "gradient_accumulation_steps": settings.gradient_accumulation,
        "gradient_checkpointing": settings.gradient_checkpointing,
        "logging_steps": settings.log_every_steps,
        "logging_first_step": True,
        "save_strategy": "steps" if saves else "no",
        "save_steps": settings.save_every_steps or 500,
        "save_total_limit": 2,
        "report_to": list(settings.report_to) or "none",
        "bf16": settings.dtype == "bfloat16",
        "fp16": settings.dtype == "float16",
        "seed": seed,
        "data_seed": seed,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_num_workers": 0,
    }
