"""Training: supervised fine-tuning and GRPO. The only door to TRL."""

from importlib import import_module
from typing import Any

# A config is read without torch, Transformers and TRL: a name is imported when it is asked for.
_MODULES = {
    "callbacks": "FindStop",
    "checkpoints": "ROLLOUTS Rollout Workspace check_checkpoint find_last_checkpoint mark_complete "
    "read_rollouts read_step refuse_pickles remove_checkpoints write_budget",
    "grpo": "train_grpo",
    "log": "TrainingLog begin_progress end_progress",
    "objectives": "adapt_beta clip_surrogate compute_advantages compute_rce estimate_kl "
    "find_dead_groups go_linearly weigh_by_reward",
    "on_policy": "OnPolicyResult judge_on_policy score_alone",
    "preview": "Batch Place check_base check_blocks check_lengths preview_grpo preview_memory",
    "processes": "SHARDING ask_first count_processes find_local_rank find_rank is_first_process",
    "settings": "GrpoSettings PictureAugmentation RowsOfEpoch SftRow SftSettings TrainerSettings "
    "ValidationSettings VllmSettings",
    "sft": "IGNORED RowCollator augment_picture make_control_settings train_sft",
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
