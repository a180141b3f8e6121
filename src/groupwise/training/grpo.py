"""GRPO with TRL's GRPOTrainer, behind one function.

The rewards are a RewardSet: TRL sees one number per completion (None = could not be scored,
which leaves the group's statistics), and each part is logged on its own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import Example, TrainingError, derive_seed, seed_everything, write_json
from groupwise.models import Policy, prepare_trainable
from groupwise.rewards import RewardSet
from groupwise.training.arguments import build_arguments
from groupwise.training.callbacks import (
    CheckHeldout,
    HeldoutRows,
    MetricRows,
    StepProgress,
    WholeCheckpoints,
)
from groupwise.training.checkpoints import find_last_checkpoint, remove_checkpoints
from groupwise.training.grpo_trainer import make_grpo_trainer
from groupwise.training.prompt_rows import make_prompt_rows
from groupwise.training.reward_function import RewardFunction
from groupwise.training.settings import GrpoSettings

_RENAMED = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "reward": "reward",
    "reward_std": "reward_std",
    "kl": "kl",
    "entropy": "entropy",
    "frac_reward_zero_std": "dead_groups",
    "invalid": "invalid",
    "unscorable": "unscorable",
    "completions/mean_length": "completion_length",
    "completions/clipped_ratio": "truncated",
    "tokens_per_s": "tokens_per_s",
}


def train_grpo(
    policy: Policy,
    examples: Sequence[Example],
    rewards: RewardSet,
    settings: GrpoSettings,
    *,
    folder: Path,
    seed: int,
    check_heldout: CheckHeldout | None = None,
) -> Policy:
    """Train a policy on prompts and rewards and return the trained one.

    Writes ``metrics.jsonl``, ``gate.json`` and checkpoints to ``folder``; if whole checkpoints
    are already there, training continues from the newest.

    Args:
        policy: what GRPO starts from; it is also the reference of the KL penalty.
        examples: the prompts; each is sampled ``group_size`` times per epoch.
        rewards: scores a completion.
        settings: of the algorithm.
        folder: where to write.
        seed: of order and sampling.
        check_heldout: called every ``heldout_every_steps``; its values go to the metrics.

    Raises:
        TrainingError: if there are fewer prompts than one step takes, or the gate is shut.
        ModelError: if no parameter trains.
    """
    if len(examples) < settings.prompts_per_step:
        raise TrainingError(
            "too few prompts for one step", got=len(examples), expected=settings.prompts_per_step
        )
    seed_everything(derive_seed(seed, "grpo"))
    model = prepare_trainable(policy.model, settings.trainable)
    trained = Policy(model, policy.processor, policy.has_vision)
    trainer = make_grpo_trainer(
        trained,
        examples,
        gate_tolerance=settings.gate_tolerance,
        model=model,
        reward_funcs=[RewardFunction(examples, rewards)],
        args=_build_config(settings, folder=folder, seed=seed),
        train_dataset=make_prompt_rows(examples),
        processing_class=policy.processor,
        callbacks=_make_callbacks(settings, folder, check_heldout),
    )
    write_json(folder / "resolved.json", _describe_resolved(trainer.args))
    trainer.train(resume_from_checkpoint=find_last_checkpoint(folder))
    remove_checkpoints(folder)
    model.eval()
    return trained


def _make_callbacks(
    settings: GrpoSettings, folder: Path, check_heldout: CheckHeldout | None
) -> list[Any]:
    path = folder / "metrics.jsonl"
    callbacks: list[Any] = [
        MetricRows(path, rename=_rename_metrics, num_epochs=settings.epochs),
        StepProgress("grpo", shown=("reward", "frac_reward_zero_std")),
    ]
    if check_heldout is not None and settings.heldout_every_steps is not None:
        callbacks.append(
            HeldoutRows(path, check=check_heldout, every_steps=settings.heldout_every_steps)
        )
    return [*callbacks, WholeCheckpoints()]


def _build_config(settings: GrpoSettings, *, folder: Path, seed: int) -> Any:
    from trl import GRPOConfig

    return GRPOConfig(
        **build_arguments(settings, folder=folder, seed=seed),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.prompts_per_step * settings.group_size,
        num_generations=settings.group_size,
        max_completion_length=settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=0,
        beta=settings.beta,
        entropy_coef=settings.entropy_bonus,
        loss_type=settings.loss,
        scale_rewards=settings.scale_rewards,
        epsilon=settings.clip_low,
        epsilon_high=settings.clip_high,
        shuffle_dataset=True,
        disable_dropout=True,
    )


def _describe_resolved(arguments: Any) -> dict[str, Any]:
    """Return the algorithm's resolved values: defaults of libraries move between versions."""
    names = (
        "loss_type",
        "beta",
        "epsilon",
        "epsilon_high",
        "num_iterations",
        "steps_per_generation",
        "generation_batch_size",
        "scale_rewards",
        "importance_sampling_level",
        "use_bias_correction_kl",
        "mask_truncated_completions",
        "entropy_coef",
        "temperature",
        "top_p",
        "top_k",
        "num_generations",
        "max_completion_length",
        "learning_rate",
    )
    return {name: getattr(arguments, name) for name in names}


def _rename_metrics(logs: Mapping[str, float]) -> dict[str, float]:
    renamed = {new: float(logs[old]) for old, new in _RENAMED.items() if logs.get(old) is not None}
    parts = {
        name: float(value)
        for name, value in logs.items()
        if name.startswith("reward/") and value is not None
    }
    return renamed | parts
