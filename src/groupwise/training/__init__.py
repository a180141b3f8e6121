"""Training: supervised fine-tuning and GRPO. The only door to TRL."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from groupwise.training.checkpoints import (
    ROLLOUTS,
    Rollout,
    Workspace,
    check_checkpoint,
    find_last_checkpoint,
    mark_complete,
    read_rollouts,
    read_step,
    refuse_pickles,
    remove_checkpoints,
    write_budget,
)
from groupwise.training.log import TrainingLog, begin_progress, end_progress
from groupwise.training.processes import (
    SHARDING,
    ask_first,
    count_processes,
    find_rank,
    is_first_process,
)
from groupwise.training.settings import (
    GrpoSettings,
    RowsOfEpoch,
    SftRow,
    SftSettings,
    TrainerSettings,
    VllmSettings,
)

if _TYPE_CHECKING:
    from groupwise.training.callbacks import FindStop
    from groupwise.training.fast.round import find_dead_groups
    from groupwise.training.grpo import train_grpo
    from groupwise.training.on_policy import OnPolicyResult
    from groupwise.training.sft import IGNORED, make_control_settings, train_sft

__all__ = [
    "IGNORED",
    "ROLLOUTS",
    "SHARDING",
    "FindStop",
    "GrpoSettings",
    "OnPolicyResult",
    "Rollout",
    "RowsOfEpoch",
    "SftRow",
    "SftSettings",
    "TrainerSettings",
    "TrainingLog",
    "VllmSettings",
    "Workspace",
    "ask_first",
    "begin_progress",
    "check_checkpoint",
    "count_processes",
    "end_progress",
    "find_dead_groups",
    "find_last_checkpoint",
    "find_rank",
    "is_first_process",
    "make_control_settings",
    "mark_complete",
    "read_rollouts",
    "read_step",
    "refuse_pickles",
    "remove_checkpoints",
    "train_grpo",
    "train_sft",
    "write_budget",
]

# Torch, Transformers and TRL are imported when something is trained, not when a config is read.
_LATE = {
    "callbacks": "FindStop",
    "fast.round": "find_dead_groups",
    "grpo": "train_grpo",
    "on_policy": "OnPolicyResult",
    "sft": "IGNORED make_control_settings train_sft",
}


def __getattr__(name: str) -> _Any:
    for module, names in _LATE.items():
        if name in names.split():
            globals()[name] = getattr(_import_module(f"{__name__}.{module}"), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
