"""GRPO with TRL's GRPOTrainer, behind one function.

TRL sees one number per completion (None: unscored, which leaves the group's statistics); each part
of the reward is logged. The prompts of all epochs are laid out in an order that follows from the
seed: TRL's shuffling starts from the first permutation again when training is continued.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import (
    Completion,
    Example,
    Score,
    TrainingError,
    derive_seed,
    keep_freed_memory,
    seed_everything,
    write_json,
)
from groupwise.models.policy import Policy
from groupwise.models.silence import silence_libraries
from groupwise.models.trainable import prepare_trainable, refuse_trained
from groupwise.rewards import FactCounts, RewardSet
from groupwise.training import processes
from groupwise.training.callbacks import CheckHeldout, FindStop, run_trainer
from groupwise.training.checkpoints import (
    ROLLOUTS,
    RolloutLog,
    Workspace,
    read_step,
    remove_checkpoints,
    write_grpo_budget,
)
from groupwise.training.fast.vllm import build_vllm_arguments
from groupwise.training.grpo_trainer import make_grpo_trainer, make_prompt_rows
from groupwise.training.settings import GrpoSettings, build_arguments
from groupwise.training.sft import rank_difficulties

_RENAMED = {
    **{one: one for one in ("loss", "learning_rate", "grad_norm", "reward", "reward_std")},
    **{one: one for one in ("kl", "entropy")},
    "frac_reward_zero_std": "dead_groups",
    **{one: one for one in ("skipped_rows", "invalid", "unscored")},
    "completions/mean_length": "completion_length",
    "completions/clipped_ratio": "truncated",
    "sampling/sampling_logp_difference/mean": "logprob_gap",
    "sampling/sampling_logp_difference/max": "logprob_gap_max",
    "sampling/importance_sampling_ratio/mean": "importance_ratio",
    **{one: one for one in ("temperature", "tokens_per_s")},
}
# Since the row before: their sums are those of the run.
_COUNTS = (
    *("num_groups", "num_dead_groups", "num_skipped_rows"),
    *("num_refills", "num_dead_refills", "num_filled_groups", "num_refill_tokens"),
)
# Defaults of libraries move between versions: what they were is written down.
_RESOLVED = (
    *("loss_type", "beta", "epsilon", "epsilon_high", "num_iterations", "steps_per_generation"),
    *("generation_batch_size", "scale_rewards", "importance_sampling_level"),
    *("use_bias_correction_kl", "mask_truncated_completions", "entropy_coef", "temperature"),
    *("top_p", "top_k", "num_generations", "max_completion_length", "learning_rate", "use_vllm"),
)
_RESOLVED_VLLM = (
    *("vllm_mode", "vllm_importance_sampling_correction", "vllm_importance_sampling_mode"),
    *("vllm_importance_sampling_clip_min", "vllm_importance_sampling_clip_max"),
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

    Writes ``metrics.jsonl``, ``on_policy.json``, ``budget.json`` and checkpoints to the workspace;
    whole checkpoints there are continued. The policy it starts from is also the reference of the KL
    penalty. Of several processes each samples and computes its part of every step; the first scores
    all completions (``rewards`` is None in the others), and writes. ``check_heldout`` is called
    every ``heldout_every_steps``, or as ``validation`` says; ``find_stop`` says what is wrong with
    the rows so far, which ends training before its last step.

    Raises:
        TrainingError: if there are fewer prompts than one round takes, if only some of them have
            pictures, or more than this model can be trained on, if ``easy_first`` finds no
            difficulty, if the on-policy check fails, if the warm-up takes all steps, if an alarm
            ends it, if processes cannot share a step or go on from what others left, or if memory
            does not suffice.
        ModelError: if no parameter trains, or the model is inside a PEFT model.
    """
    arguments = _build_config(settings, workspace, dtype=policy.model.dtype)
    per_round = arguments.generation_batch_size // settings.group_size
    _check_prompts(policy, examples, num_needed=per_round)
    places = lay_out_prompts(
        len(examples),
        num_epochs=settings.epochs,
        prompts_per_round=per_round,
        seed=workspace.seed,
        ranks=rank_difficulties(examples) if settings.easy_first else None,
    )
    layout = deal_prompts(
        places, prompts_per_step=settings.prompts_per_step, prompts_per_round=per_round
    )
    num_epochs: float = settings.epochs
    if settings.max_steps is not None:
        num_passes = arguments.steps_per_generation * settings.num_iterations
        num_steps = len(layout) // per_round * num_passes // settings.gradient_accumulation
        arguments.max_steps = min(num_steps, settings.max_steps)
        num_epochs = settings.epochs * arguments.max_steps / num_steps
    keep_freed_memory()
    seed_everything(derive_seed(workspace.seed, "grpo"))
    if settings.beta > 0 and settings.trainable.method == "full":
        # TRL would load the reference from where these weights came from.
        refuse_trained(policy.model)
    policy.model = prepare_trainable(policy.model, settings.trainable, processor=policy.processor)
    is_first, resolved = processes.is_first_process(), dict[str, Any]()
    left_out = {"prompts_left_out_per_epoch": len(examples) % per_round}
    reward = RewardFunction(examples, rewards, end_token_ids=policy.end_token_ids)

    def make(callbacks: list[Any], start: Path | None) -> Any:
        if settings.record_rollouts and is_first:
            reward.log = RolloutLog(workspace.folder / ROLLOUTS)
            reward.log.start(0 if start is None else read_step(start))
        trainer = make_grpo_trainer(
            policy,
            examples,
            settings=settings,
            seed=workspace.seed,
            model=policy.model,
            reward_funcs=[reward],
            args=arguments,
            train_dataset=make_prompt_rows(examples, layout, seed=workspace.seed),
            processing_class=policy.processor,
            callbacks=callbacks,
        )
        names = (*_RESOLVED, *(_RESOLVED_VLLM if arguments.use_vllm else ()))
        resolved.update({name: getattr(trainer.args, name) for name in names}, **left_out)
        if is_first:
            write_json(workspace.folder / "resolved.json", resolved)
        return trainer

    trainer, looks = run_trainer(
        make,
        policy,
        settings,
        workspace,
        check_heldout=check_heldout,
        find_stop=find_stop,
        shown={name: _RENAMED[name] for name in ("reward", "frac_reward_zero_std")},
        rename=_rename_metrics,
        num_epochs=num_epochs,
        tell=reward.tell_facts,
    )
    if is_first:
        write_grpo_budget(
            workspace.metrics, resolved, settings, num_steps=trainer.state.global_step, looks=looks
        )
        remove_checkpoints(workspace.folder)
    policy.model.eval()
    return policy


def _build_config(settings: GrpoSettings, workspace: Workspace, *, dtype: Any) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    num_prompts = processes.divide_batch(settings.prompts_per_step, setting="prompts_per_step")
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
    if kind == "llava_onevision" and num_pictures > 1:
        raise TrainingError(
            f"GRPO of a {kind} model takes one picture a prompt: TRL's passes do not know of more",
            got=num_pictures,
            fix="give each prompt one picture, or choose another family",
        )


def _rename_metrics(logs: Mapping[str, float]) -> dict[str, float]:
    renamed = {new: float(logs[old]) for old, new in _RENAMED.items() if logs.get(old) is not None}
    counts = {name: int(logs[name]) for name in _COUNTS if name in logs}
    named = [(name, value) for name, value in logs.items() if name.startswith("reward/")]
    return renamed | counts | {name: float(value) for name, value in named if value is not None}


def lay_out_prompts(
    num_prompts: int,
    *,
    num_epochs: int,
    prompts_per_round: int,
    seed: int,
    ranks: Sequence[int] | None = None,
) -> list[tuple[int, int]]:
    """Return (epoch, place) of each prompt of every whole round, epochs shuffled by their seeds."""
    layout: list[tuple[int, int]] = []
    for epoch in range(num_epochs):
        places = list(range(num_prompts))
        random.Random(derive_seed(seed, "prompts", epoch)).shuffle(places)
        places = places[: num_prompts - num_prompts % prompts_per_round]
        if ranks is not None and epoch == 0:
            places.sort(key=ranks.__getitem__)
        layout += [(epoch, place) for place in places]
    return layout


def deal_prompts(
    layout: Sequence[tuple[int, int]], *, prompts_per_step: int, prompts_per_round: int
) -> list[tuple[int, int]]:
    """Return the layout with each round in the order in which several processes read it.

    Micro-batches of all processes together have the prompts that one process would give them.
    """
    own = prompts_per_step // processes.count_processes()
    dealt: list[tuple[int, int]] = []
    for round_start in range(0, len(layout), prompts_per_round):
        for share_start in range(0, prompts_per_step, own):
            for step_start in range(0, prompts_per_round, prompts_per_step):
                start = round_start + step_start + share_start
                dealt += layout[start : start + own]
    return dealt


class RewardFunction:
    """Scores completions with a RewardSet; parts, invalid and unscored shares are logged.

    Of several processes the first scores what all have sampled: what rewards ask, keep and count is
    then what it is with one process.
    """

    __name__ = "reward"

    def __init__(
        self,
        examples: Sequence[Example],
        rewards: RewardSet | None,
        *,
        end_token_ids: Sequence[int],
    ) -> None:
        self.examples, self.rewards = examples, rewards
        self.log: RolloutLog | None = None
        self.end_token_ids = frozenset(end_token_ids)
        self.facts = FactCounts()

    def __call__(
        self,
        *,
        completions: Sequence[list[dict[str, str]]],
        completion_ids: Sequence[list[int]],
        place: Sequence[int],
        log_metric: Callable[[str, float], None],
        trainer_state: Any = None,
        **_: Any,
    ) -> list[float | None]:
        """Return one value in [0, 1] per completion, or None where nothing could be scored."""
        from accelerate.utils import gather_object

        sampled: list[tuple[int, Completion]] = []
        for index, messages, ids in zip(place, completions, completion_ids, strict=True):
            has_ended = bool(ids) and ids[-1] in self.end_token_ids
            reason = "stop" if has_ended else "length"
            text = messages[0]["content"]
            sampled.append((index, Completion(text, tuple(ids), finish_reason=reason)))
        parts = gather_object([sampled])
        step = trainer_state.global_step if trainer_state else 0
        values = processes.ask_first(lambda: self._score(parts, log_metric, step=step))
        return values[processes.find_rank()]

    def _score(
        self,
        parts: Sequence[Sequence[tuple[int, Completion]]],
        log_metric: Callable[[str, float], None],
        *,
        step: int,
    ) -> list[list[float | None]]:
        assert self.rewards is not None
        sampled = [pair for part in parts for pair in part]
        examples = [self.examples[index] for index, _ in sampled]
        completions = [completion for _, completion in sampled]
        scores: Sequence[Score] = self.rewards.score_batch(examples, completions)
        if self.log is not None:
            self.log.write(step, examples, completions, scores)
        log_metric("invalid", sum(score.invalid for score in scores) / len(scores))
        log_metric("unscored", sum(score.value is None for score in scores) / len(scores))
        for name in self.rewards.weights:
            values = [v for s in scores if (v := s.breakdown.get(name)) is not None]
            if values:
                mean = sum(values) / len(values)
                spread = sum((value - mean) ** 2 for value in values) / len(values)
                log_metric(f"reward/{name}", mean)
                log_metric(f"reward/{name}_std", math.sqrt(spread))
        self.facts.add(score.facts for score in scores)
        found = iter([score.value for score in scores])
        return [[next(found) for _ in part] for part in parts]

    def tell_facts(self) -> dict[str, Any]:
        from accelerate.utils import gather_object

        told, self.facts = self.facts, FactCounts()
        first, *others = gather_object([told])
        for other in others:
            first.merge(other)
        return first.tabulate()
