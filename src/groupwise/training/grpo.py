"""GRPO with TRL's GRPOTrainer, behind one function.

The rewards are a RewardSet: TRL sees one number per completion (None = unscored,
which leaves the group's statistics), and each part is logged on its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from groupwise.core import (
    Example,
    TrainingError,
    derive_seed,
    keep_freed_memory,
    seed_everything,
    write_json,
)
from groupwise.models import (
    Policy,
    note_trained,
    prepare_trainable,
    refuse_trained,
    silence_libraries,
)
from groupwise.rewards import RewardSet
from groupwise.training.arguments import build_arguments, name_memory_settings
from groupwise.training.callbacks import (
    CheckHeldout,
    FindStop,
    HeldoutRows,
    MetricRows,
    ProgressFile,
    StepProgress,
    TrainableTable,
    WarmupCheck,
    WholeCheckpoints,
    make_alarm_stop,
)
from groupwise.training.curriculum import rank_difficulties
from groupwise.training.grpo_rows import (
    RewardFunction,
    deal_prompts,
    lay_out_prompts,
    make_prompt_rows,
)
from groupwise.training.grpo_trainer import build_vllm_arguments, make_grpo_trainer
from groupwise.training.memory.taken import MemoryFile
from groupwise.training.processes import divide_batch, is_first_process
from groupwise.training.rollouts import ROLLOUTS, RolloutLog
from groupwise.training.selection import open_looks
from groupwise.training.settings import GrpoSettings
from groupwise.training.sharding import WholeModel
from groupwise.training.trackers import Trackers
from groupwise.training.workspace import (
    Workspace,
    find_start,
    read_step,
    refuse_pickles,
    remove_checkpoints,
    write_grpo_budget,
)

_RENAMED = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "reward": "reward",
    "reward_std": "reward_std",
    "kl": "kl",
    "entropy": "entropy",
    "frac_reward_zero_std": "dead_groups",
    "skipped_rows": "skipped_rows",
    "invalid": "invalid",
    "unscored": "unscored",
    "completions/mean_length": "completion_length",
    "completions/clipped_ratio": "truncated",
    "sampling/sampling_logp_difference/mean": "logprob_gap",
    "sampling/sampling_logp_difference/max": "logprob_gap_max",
    "sampling/importance_sampling_ratio/mean": "importance_ratio",
    "temperature": "temperature",
    "tokens_per_s": "tokens_per_s",
}
_SHOWN = ("reward", "frac_reward_zero_std")
_ONE_PICTURE = ("llava_onevision",)
# Since the row before: their sums are those of the run.
_COUNTS = (
    *("num_groups", "num_dead_groups", "num_skipped_rows"),
    *("num_refills", "num_dead_refills", "num_filled_groups", "num_refill_tokens"),
)


@silence_libraries()
def train_grpo(
    policy: Policy,
    examples: Sequence[Example],
    rewards: RewardSet | None,
    settings: GrpoSettings,
    *,
    workspace: Workspace,
    check_heldout: CheckHeldout | None = None,
    find_stop: FindStop | None = None,
) -> Policy:
    """Train a policy in place on prompts and rewards; return it.

    Writes ``metrics.jsonl``, ``on_policy.json``, ``budget.json`` and checkpoints to the
    workspace; if whole checkpoints are there, training continues from the newest. Before it starts,
    stderr says what trains. Of several processes that were started for this each samples and
    computes its part of every step; the first scores all completions, and writes.

    Args:
        policy: what GRPO starts from; it is also the reference of the KL penalty.
        examples: the prompts; each is sampled ``group_size`` times per epoch.
        rewards: scores a completion; None in processes that are not the first.
        settings: of the algorithm.
        workspace: where to write, and the seed of order and sampling.
        check_heldout: called every ``heldout_every_steps``, or as ``validation`` says; its values
            go to the metrics.
        find_stop: says what is wrong with the rows so far, which ends training before its last
            step.

    Raises:
        TrainingError: if there are fewer prompts than one round takes, if only some of them have
            pictures, or more than this model can be trained on, if ``easy_first`` finds no
            difficulty, if the on-policy check fails, if the learning rate warms up to the end, if
            an alarm ends it, if processes cannot share a step or go on from what others left, or if
            memory does not suffice.
        ModelError: if no parameter trains, or the model is inside a PEFT model.
    """
    arguments = _build_config(settings, workspace, dtype=policy.model.dtype)
    prompts_per_round = arguments.generation_batch_size // settings.group_size
    _check_prompts(policy, examples, num_needed=prompts_per_round)
    layout = _order_prompts(
        examples, settings, prompts_per_round=prompts_per_round, seed=workspace.seed
    )
    num_epochs = _limit_steps(arguments, settings, num_rounds=len(layout) // prompts_per_round)
    keep_freed_memory()
    seed_everything(derive_seed(workspace.seed, "grpo"))
    model = policy.model = _prepare_model(policy, settings)
    start = find_start(workspace.folder)
    reward = RewardFunction(
        examples,
        rewards,
        end_token_ids=policy.end_token_ids,
        log=_open_rollouts(settings, workspace, step=0 if start is None else read_step(start)),
    )
    shown = {name: _RENAMED[name] for name in _SHOWN}
    trackers = Trackers(settings.report_to if is_first_process() else ())
    whole = WholeModel(model)
    looks = open_looks(settings, workspace, check_heldout, trackers=trackers)
    with (
        StepProgress(workspace.folder.name, shown=shown, looks=looks) as progress,
        _drop_reference(policy),
        name_memory_settings(settings),
    ):
        trainer = make_grpo_trainer(
            policy,
            examples,
            settings=settings,
            seed=workspace.seed,
            model=model,
            reward_funcs=[reward],
            args=arguments,
            train_dataset=make_prompt_rows(examples, layout, seed=workspace.seed),
            processing_class=policy.processor,
            callbacks=[
                *_make_callbacks(workspace, looks, trackers, reward, num_epochs=num_epochs),
                *make_alarm_stop(workspace.metrics, find_stop, at_end=False),
                TrainableTable(model),
                progress,
            ],
        )
        resolved = _write_resolved(
            trainer.args, workspace, num_left_out=len(examples) % prompts_per_round
        )
        with refuse_pickles(start):
            trainer.train(resume_from_checkpoint=start)
        model = policy.model = whole.fill(trainer)
    note_trained(model)
    if is_first_process():
        write_grpo_budget(
            workspace.metrics,
            resolved,
            num_steps=trainer.state.global_step,
            gradient_accumulation=settings.gradient_accumulation,
            group_size=settings.group_size,
            **(looks.finish(model) if looks else {}),
        )
        remove_checkpoints(workspace.folder)
    model.eval()
    return policy


def _open_rollouts(settings: GrpoSettings, workspace: Workspace, *, step: int) -> RolloutLog | None:
    """Return where the first process keeps what is sampled from a step on; None: nowhere."""
    if not (settings.record_rollouts and is_first_process()):
        return None
    log = RolloutLog(workspace.folder / ROLLOUTS)
    log.start(step)
    return log


def _check_prompts(policy: Policy, examples: Sequence[Example], *, num_needed: int) -> None:
    if len(examples) < num_needed:
        raise TrainingError(
            "too few prompts for one round", got=len(examples), expected=f"at least {num_needed}"
        )
    num_bare = sum(not example.pictures for example in examples)
    if 0 < num_bare < len(examples):
        raise TrainingError(
            "GRPO takes prompts with pictures or without them, not both",
            got=f"{num_bare} of {len(examples)} without",
            fix="train on them one after the other",
        )
    kind, num_pictures = policy.model.config.model_type, max(len(e.pictures) for e in examples)
    if kind in _ONE_PICTURE and num_pictures > 1:
        raise TrainingError(
            f"GRPO of a {kind} model takes one picture a prompt: TRL's passes do not know of more",
            got=num_pictures,
            fix="give each prompt one picture, or choose another family",
        )


def _order_prompts(
    examples: Sequence[Example], settings: GrpoSettings, *, prompts_per_round: int, seed: int
) -> list[tuple[int, int]]:
    """Return epoch and prompt of every place of the training."""
    layout = lay_out_prompts(
        len(examples),
        num_epochs=settings.epochs,
        prompts_per_round=prompts_per_round,
        seed=seed,
        ranks=rank_difficulties(examples) if settings.easy_first else None,
    )
    return deal_prompts(
        layout, prompts_per_step=settings.prompts_per_step, prompts_per_round=prompts_per_round
    )


def _prepare_model(policy: Policy, settings: GrpoSettings) -> Any:
    if settings.beta > 0 and settings.trainable.method == "full":
        # TRL would load the reference from where these weights came from.
        refuse_trained(policy.model)
    return prepare_trainable(policy.model, settings.trainable, processor=policy.processor)


def _limit_steps(arguments: Any, settings: GrpoSettings, *, num_rounds: int) -> float:
    """Let ``max_steps`` end the training; return the epochs that there will be."""
    if settings.max_steps is None:
        return settings.epochs
    num_micro_batches = num_rounds * arguments.steps_per_generation * settings.num_iterations
    num_steps = num_micro_batches // settings.gradient_accumulation
    arguments.max_steps = min(num_steps, settings.max_steps)
    return settings.epochs * arguments.max_steps / num_steps


def _make_callbacks(
    workspace: Workspace,
    looks: HeldoutRows | None,
    trackers: Trackers,
    reward: RewardFunction,
    *,
    num_epochs: float,
) -> list[Any]:
    rows = MetricRows(
        workspace.metrics,
        rename=_rename_metrics,
        num_epochs=num_epochs,
        trackers=trackers,
        tell=reward.tell_facts,
    )
    told = [ProgressFile(workspace.folder), MemoryFile(workspace.folder), rows, looks]
    found = [one for one in told if one is not None]
    return [WarmupCheck(), trackers, *found, WholeCheckpoints()]


@contextmanager
def _drop_reference(policy: Policy) -> Iterator[None]:
    """Remove in the end the frozen copy of the adapter that the KL penalty is measured against."""
    try:
        yield
    finally:
        if "ref" in getattr(policy.model, "peft_config", {}):
            policy.model.delete_adapter("ref")


def _build_config(settings: GrpoSettings, workspace: Workspace, *, dtype: Any) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    num_prompts = divide_batch(settings.prompts_per_step, setting="prompts_per_step")
    return GRPOConfig(
        **build_arguments(settings, workspace, dtype=dtype),
        **build_vllm_arguments(settings.vllm),
        num_train_epochs=1,
        per_device_train_batch_size=num_prompts * settings.group_size,
        num_generations=settings.group_size,
        steps_per_generation=settings.steps_per_generation,
        num_iterations=settings.num_iterations,
        max_completion_length=settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=0,
        beta=settings.beta,
        entropy_coef=settings.entropy_bonus,
        loss_type=settings.loss,
        scale_rewards=settings.scale_rewards,
        epsilon=settings.clip_low,
        epsilon_high=settings.clip_high + (1 if settings.loss == "cispo" else 0),
        shuffle_dataset=False,
        disable_dropout=True,
    )


def _write_resolved(arguments: Any, workspace: Workspace, *, num_left_out: int) -> dict[str, Any]:
    resolved = {**_describe_resolved(arguments), "prompts_left_out_per_epoch": num_left_out}
    if is_first_process():
        write_json(workspace.folder / "resolved.json", resolved)
    return resolved


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
        "use_vllm",
    )
    if arguments.use_vllm:
        names += (
            "vllm_mode",
            "vllm_importance_sampling_correction",
            "vllm_importance_sampling_mode",
            "vllm_importance_sampling_clip_min",
            "vllm_importance_sampling_clip_max",
        )
    return {name: getattr(arguments, name) for name in names}


def _rename_metrics(logs: Mapping[str, float]) -> dict[str, float]:
    renamed = {new: float(logs[old]) for old, new in _RENAMED.items() if logs.get(old) is not None}
    parts = {
        name: float(value)
        for name, value in logs.items()
        if name.startswith(("reward/", "ahead/")) and value is not None
    }
    counts = {name: int(logs[name]) for name in _COUNTS if name in logs}
    return renamed | counts | parts
