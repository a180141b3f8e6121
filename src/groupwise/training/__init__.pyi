"""Training: supervised fine-tuning and GRPO. The only door to TRL."""

from groupwise.training.grpo import train_grpo
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
from groupwise.training.preview import (
    check_base,
    check_blocks,
    check_lengths,
    estimate_step_memory,
    preview_grpo,
)
from groupwise.training.rows import RowCollator, augment_picture
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
from groupwise.training.workspace import Workspace

__all__ = [
    "GrpoSettings",
    "OnPolicyResult",
    "PictureAugmentation",
    "RowCollator",
    "RowsOfEpoch",
    "SftRow",
    "SftSettings",
    "TrainerSettings",
    "ValidationSettings",
    "VllmSettings",
    "Workspace",
    "adapt_beta",
    "augment_picture",
    "check_base",
    "check_blocks",
    "check_lengths",
    "clip_surrogate",
    "compute_advantages",
    "compute_rce",
    "estimate_kl",
    "estimate_step_memory",
    "find_dead_groups",
    "go_linearly",
    "judge_on_policy",
    "make_control_settings",
    "preview_grpo",
    "score_alone",
    "train_grpo",
    "train_sft",
    "weigh_by_reward",
]
