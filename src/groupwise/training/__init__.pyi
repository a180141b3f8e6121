"""Training: supervised fine-tuning and GRPO. The only door to TRL."""

from groupwise.training.callbacks import FindStop
from groupwise.training.grpo import train_grpo
from groupwise.training.log import TrainingLog, begin_progress, end_progress
from groupwise.training.memory.estimate import Batch
from groupwise.training.objectives import (
    adapt_beta,
    clip_surrogate,
    compute_advantages,
    compute_rce,
    estimate_kl,
    find_dead_groups,
    go_linearly,
    weigh_by_reward,
)
from groupwise.training.on_policy import OnPolicyResult, judge_on_policy, score_alone
from groupwise.training.place import Place
from groupwise.training.preview import (
    check_base,
    check_blocks,
    check_lengths,
    preview_grpo,
    preview_memory,
)
from groupwise.training.processes import (
    SHARDING,
    ask_first,
    count_processes,
    find_local_rank,
    find_rank,
    is_first_process,
)
from groupwise.training.rollouts import ROLLOUTS, Rollout, read_rollouts
from groupwise.training.rows import IGNORED, RowCollator, augment_picture
from groupwise.training.settings import (
    GrpoSettings,
    PictureAugmentation,
    SftSettings,
    TrainerSettings,
    ValidationSettings,
    VllmSettings,
)
from groupwise.training.sft import make_control_settings, train_sft
from groupwise.training.sft_rows import RowsOfEpoch, SftRow
from groupwise.training.workspace import (
    Workspace,
    check_checkpoint,
    find_last_checkpoint,
    mark_complete,
    read_step,
    refuse_pickles,
    remove_checkpoints,
    write_budget,
)

__all__ = [
    "IGNORED",
    "ROLLOUTS",
    "SHARDING",
    "Batch",
    "FindStop",
    "GrpoSettings",
    "OnPolicyResult",
    "PictureAugmentation",
    "Place",
    "Rollout",
    "RowCollator",
    "RowsOfEpoch",
    "SftRow",
    "SftSettings",
    "TrainerSettings",
    "TrainingLog",
    "ValidationSettings",
    "VllmSettings",
    "Workspace",
    "adapt_beta",
    "ask_first",
    "augment_picture",
    "begin_progress",
    "check_base",
    "check_blocks",
    "check_checkpoint",
    "check_lengths",
    "clip_surrogate",
    "compute_advantages",
    "compute_rce",
    "count_processes",
    "end_progress",
    "estimate_kl",
    "find_dead_groups",
    "find_last_checkpoint",
    "find_local_rank",
    "find_rank",
    "go_linearly",
    "is_first_process",
    "judge_on_policy",
    "make_control_settings",
    "mark_complete",
    "preview_grpo",
    "preview_memory",
    "read_rollouts",
    "read_step",
    "refuse_pickles",
    "remove_checkpoints",
    "score_alone",
    "train_grpo",
    "train_sft",
    "weigh_by_reward",
    "write_budget",
]
