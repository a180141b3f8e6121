"""Settings of SFT and GRPO, and what Transformers gets of them; nothing heavy is imported here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from groupwise.core import BUDGET, Config, Example, Harmless, Place, TrainingError
from groupwise.data.augmentation import PictureAugmentation
from groupwise.models.trainable import TrainableSettings

if TYPE_CHECKING:
    import torch

    from groupwise.training.checkpoints import Workspace

PROJECT = "groupwise"
Tracker = Literal["tensorboard", "wandb", "mlflow", "trackio"]

_LOGGED = Harmless("what is logged or kept: training does not see it", "日志与保存：不影响训练")
_SAME = Harmless("computed in another way with the same result", "计算方式不同，结果相同")
_PLACE = Place("where a server is reached or how it is sized", "服务器地址或资源设置")


class ValidationSettings(Config):
    """Looks at validation items while a policy trains, by its greedy answers.

    What heads the report decides where looks measure it and more is better, else accuracy.

    Attributes:
        every_steps: a look each so many steps and after the last.
        select: ``best``: keep the weights of the best look; ``last``: those of the last step.
        patience: stop after so many looks in a row that are no better; None: train to the end.
    """

    every_steps: int = Field(ge=1)
    select: Literal["best", "last"] = "best"
    patience: int | None = Field(default=None, ge=1)


class TrainerSettings(Config):
    """What SFT and GRPO share.

    Attributes:
        trainable: which weights are trained.
        learning_rate: peak of the schedule.
        scheduler: how the rate falls after the warm-up; ``constant`` has none.
        warmup_share: share of all steps in which the rate rises from 0.
        warmup_steps: the number of those steps, instead of the share.
        weight_decay: of AdamW.
        max_grad_norm: gradients are scaled down to this norm.
        gradient_accumulation: micro-batches per step.
        easy_first: the first epoch begins with rows whose field ``difficulty`` is ``easy`` and ends
            with ``hard`` ones; others, and rows of one difficulty, are shuffled as ever. None: on
            rows of ``bootstrap``, which has said what is easy.
        save_every_steps: a checkpoint each so many steps; None: none, so an interrupted training
            starts again.
        log_every_steps: a row of metrics each so many steps, and one at every checkpoint.
        report_to: trackers that are told the values of ``metrics.jsonl``; each must be installed.
        gradient_checkpointing: recompute activations to save memory.
        heldout_every_steps: a held-out check each so many steps and after the last; None: none.
        validation: when to stop and which weights to keep; None: train to the end, keep the last.
    """

    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"activation_offloading": (False, True)}
    trainable: TrainableSettings = TrainableSettings()
    learning_rate: float = Field(gt=0)
    scheduler: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear"
    warmup_share: float = Field(default=0.05, ge=0, lt=1)
    warmup_steps: int | None = Field(default=None, ge=1)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    gradient_accumulation: Annotated[int, BUDGET] = Field(default=1, ge=1, le=65_536)
    easy_first: bool | None = None
    save_every_steps: Annotated[int | None, _LOGGED] = Field(default=None, ge=1)
    log_every_steps: Annotated[int, _LOGGED] = Field(default=10, ge=1)
    report_to: Annotated[tuple[Tracker, ...], _LOGGED] = ()
    gradient_checkpointing: Annotated[bool, _SAME] = False
    heldout_every_steps: Annotated[int | None, _LOGGED] = Field(default=None, ge=1)
    validation: ValidationSettings | None = None

    @model_validator(mode="after")
    def _check_looks(self) -> Self:
        if self.validation is not None and self.heldout_every_steps is not None:
            raise ValueError("validation looks by itself: leave heldout_every_steps out")
        return self

    @property
    def has_looks(self) -> bool:
        """Whether validation is looked at while it trains."""
        return self.validation is not None or self.heldout_every_steps is not None

    @field_validator("report_to")
    @classmethod
    def _check_installed(cls, names: tuple[Tracker, ...]) -> tuple[Tracker, ...]:
        absent = [name for name in names if find_spec(name) is None]
        if absent:
            raise ValueError(
                f"{' and '.join(absent)} not installed; pip install {' '.join(absent)}, "
                "or pip install 'groupwise[trackers]' for all"
            )
        return names


# Of a pretrained base. The few weights of an adapter take steps that would wreck all weights, and
# GRPO's gradients, which rest on a few samples, shorter ones than those of right answers.
_SFT_RATES = {"lora": 2e-4, "full": 1e-5, "prompt": 3e-2}
_GRPO_RATES = {"lora": 1e-4, "full": 1e-6, "prompt": 1e-2}


class SftSettings(TrainerSettings):
    """Supervised fine-tuning: cross-entropy of the target tokens only.

    Attributes:
        learning_rate: peak of the schedule; not given: 2e-4 for LoRA, 1e-5 for all weights and 3e-2
            for virtual tokens.
        epochs: passes over the rows.
        batch_size: rows per micro-batch, over all processes.
        label_smoothing: share of the target mass spread over the vocabulary.
        augmentation: random changes of pictures; None: none.
    """

    learning_rate: float = Field(
        default_factory=lambda given: _SFT_RATES[given["trainable"].method], gt=0
    )
    epochs: Annotated[int, BUDGET] = Field(default=3, ge=1, le=100_000)
    batch_size: Annotated[int, BUDGET] = Field(default=8, ge=1, le=65_536)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    augmentation: PictureAugmentation | None = None


class SpeedSettings(Config):
    """What GRPO computes once instead of once per completion; the results are the same.

    Attributes:
        shared_prefix: score every prompt once per group. ``auto``: where the model allows it and
            it differs from plain passes no more than these differ among each other (the first
            batch of each new shape is compared), else with a warning the plain pass; ``on``: stop
            instead; ``off``: the plain pass.
        prefill_once: read every prompt once per group when sampling.
        decoding_graph: with ``prefill_once``, on a GPU: launch all kernels of a token at once (a
            CUDA graph), compared with launching them one by one.
        skip_dead_groups: leave groups without a gradient out of the training pass.
    """

    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = dict.fromkeys(
        ("rewards_beside_scoring", "trunk_cache", "vision_once"), (False, True)
    )
    shared_prefix: Literal["auto", "on", "off"] = "auto"
    prefill_once: bool = True
    decoding_graph: bool = False
    skip_dead_groups: bool = True


class VllmSettings(Config):
    """Sampling with vLLM; scoring stays as it is, and so do the levers of ``speed`` that score.

    A server is started beforehand, on other GPUs than the training's, from the folder of the model
    that GRPO starts from: ``VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --weight-transfer-config
    '{"backend": "nccl"}' --logprobs-mode processed_logprobs``. It is sent all weights before each
    round, with the adapter merged into them, from a CUDA device over NCCL. vLLM computes a float32
    policy in bfloat16. A server that is asked about pictures also needs ``--enable-scale-out``.
    vLLM's log-probabilities are not quite those of training: the update of a completion is weighted
    by their ratio, and one beyond 3 is not trained on (TRL's ``sequence_mask``).

    Attributes:
        mode: ``colocate``: inside the training process, on its GPU; ``server``: by a server.
        base_url: of the server.
        gpu_memory_share: of each GPU, for vLLM's weights and cache (``colocate``).
        max_model_length: tokens of a prompt and its completion (``colocate``); None: as many as
            the model takes.
    """

    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "sends": ("weights",),
        "weights_port": (51216,),
        "server_timeout_s": (240.0,),
        "tensor_parallel_size": (1,),
        "sleep": (False,),
        "correction": ("sequence_mask",),
        "ratio_min": (None,),
        "ratio_max": (3.0,),
        "max_logprob_gap": (0.1,),
    }
    mode: Literal["colocate", "server"] = "colocate"
    base_url: Annotated[str, _PLACE] = "http://127.0.0.1:8000"
    gpu_memory_share: Annotated[float, _PLACE] = Field(default=0.3, gt=0, le=1)
    max_model_length: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        served = {"base_url"}
        own = {"gpu_memory_share", "max_model_length"}
        other = own if self.mode == "server" else served
        fields = type(self).model_fields
        changed = [n for n in fields if n in other and getattr(self, n) != fields[n].default]
        if changed:
            raise ValueError(f"mode {self.mode} has no {', '.join(changed)}")
        return self


class TemperatureWarmup(Config):
    """A temperature that rises to ``grpo.temperature``.

    Attributes:
        start: of the first round.
        steps: updates in which it rises, in a straight line.
    """

    start: float = Field(ge=1e-3)
    steps: int = Field(ge=1)


class RefillSettings(Config):
    """Other prompts take the places of groups whose rewards are all equal (dynamic sampling).

    A round then has as many groups with a gradient as can be had, of prompts that are chosen by it:
    steps are larger, and prompts that are always or never solved count less.

    Source: DAPO (Yu et al. 2025, 2503.14476), section 3.2.

    Attributes:
        max_tries: how often a round samples others for the places that are still open.
    """

    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"first": ("any",)}
    max_tries: int = Field(default=3, ge=1, le=1000)


class GrpoSettings(TrainerSettings):
    """Group-relative policy optimisation.

    Source: Shao et al. 2024 (2402.03300); losses as in TRL's GRPOTrainer.

    Attributes:
        learning_rate: peak of the schedule; not given: 1e-4 for LoRA, 1e-6 for all weights and 1e-2
            for virtual tokens.
        epochs: passes over the prompts.
        max_steps: updates after which training ends, if the epochs have not ended it before.
        prompts_per_step: groups per micro-batch, over all processes; prompts that do not fill a
            round are left out of an epoch (others in each).
        steps_per_generation: micro-batches per round, whose completions are sampled at once; a
            multiple of ``gradient_accumulation``, which it is if None.
        num_iterations: passes over the completions of a round.
        group_size: completions per prompt (G).
        max_new_tokens: per completion, the end token included.
        temperature: of sampling and of every log-probability.
        temperature_warmup: how it rises there; None: it is the same in all rounds.
        top_p: keep 1; below it the importance ratio is biased by the kept mass.
        beta: weight of the KL penalty against the policy that GRPO starts from.
        entropy_bonus: weight of the mean token entropy in the objective.
        loss: how token losses are aggregated.
        scale_rewards: divide advantages by the group's or batch's std, or not.
        clip_low, clip_high: the ratio is clipped to [1 - clip_low, 1 + clip_high]; ``cispo``
            only has the upper limit.
        refill: what takes the place of groups without a gradient; None: nothing does.
        speed: what is computed once per prompt instead of once per completion.
        record_rollouts: keep all completions and scores in ``rollouts.jsonl``.
        vllm: sample with vLLM; None: with Transformers.
    """

    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"ahead": (None,)}
    learning_rate: float = Field(
        default_factory=lambda given: _GRPO_RATES[given["trainable"].method], gt=0
    )
    epochs: Annotated[int, BUDGET] = Field(default=1, ge=1, le=100_000)
    max_steps: Annotated[int | None, BUDGET] = Field(default=None, ge=1)
    prompts_per_step: Annotated[int, BUDGET] = Field(default=8, ge=1, le=65_536)
    steps_per_generation: Annotated[int | None, BUDGET] = Field(default=None, ge=1, le=65_536)
    num_iterations: Annotated[int, BUDGET] = Field(default=1, ge=1, le=1024)
    group_size: Annotated[int, BUDGET] = Field(default=5, ge=2, le=4096)
    max_new_tokens: int = Field(default=16, ge=1, le=1_000_000)
    temperature: float = Field(default=1.0, ge=1e-3)
    temperature_warmup: TemperatureWarmup | None = None
    top_p: float = Field(default=1.0, gt=0, le=1)
    beta: float = Field(default=0.0, ge=0)
    entropy_bonus: float = Field(default=0.01, ge=0)
    loss: Literal["grpo", "bnpo", "dr_grpo", "dapo", "cispo"] = "dapo"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    clip_low: float = Field(default=0.2, gt=0)
    clip_high: float = Field(default=0.2, gt=0)
    refill: RefillSettings | None = None
    speed: Annotated[SpeedSettings, _SAME] = SpeedSettings()
    record_rollouts: Annotated[bool, _LOGGED] = False
    vllm: VllmSettings | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.vllm is not None and self.trainable.method == "prompt":
            raise ValueError("vllm takes no vectors of virtual tokens: leave vllm out")
        if (self.steps_per_generation or 0) % self.gradient_accumulation:
            raise ValueError(
                f"steps_per_generation {self.steps_per_generation} must be a multiple of "
                f"gradient_accumulation {self.gradient_accumulation}: an update takes its rows "
                "from one round"
            )
        return self


@dataclass(frozen=True)
class SftRow:
    """An example and the text the policy is taught to answer.

    Attributes:
        is_finished: whether the answer ends after the target; if not, what follows the target,
            the end token included, is not taught.
    """

    example: Example
    target: str
    is_finished: bool = True


RowsOfEpoch = Callable[[int], Sequence[SftRow]]
"""Gives the rows of an epoch; the same number in each, deterministic."""


def build_arguments(
    settings: TrainerSettings, workspace: "Workspace", *, dtype: "torch.dtype"
) -> dict[str, Any]:
    """Return keyword arguments for ``SFTConfig`` and ``GRPOConfig``; ``dtype`` is the policy's."""
    import torch

    from groupwise.training.processes import spreads_weights

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
        "save_strategy": "no" if settings.save_every_steps is None else "steps",
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
        **({"fsdp": True, "fsdp_config": {"version": 2}} if spreads_weights() else {}),
    }


@contextmanager
def name_memory_settings(settings: TrainerSettings) -> Iterator[None]:
    """Within this context an allocation that fails is a TrainingError that names settings."""
    from groupwise.inference.local_stream import is_out_of_memory

    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        names: tuple[str, ...] = ("batch_size",)
        if isinstance(settings, GrpoSettings):
            names = ("prompts_per_step", "steps_per_generation", "group_size", "max_new_tokens")
        values = {name: getattr(settings, name) for name in names}
        given = [f"{name} ({value})" for name, value in values.items() if value is not None]
        ways = [
            f"lower {', '.join(given)}",
            f"raise gradient_accumulation ({settings.gradient_accumulation}) to make up for it",
        ]
        if not settings.gradient_checkpointing:
            ways.append("set gradient_checkpointing (false) to true")
        trainable = settings.trainable
        if trainable.method == "full":
            ways.append("set trainable.method (full) to lora")
        elif trainable.method == "lora":
            ways.append(f"lower trainable.lora.last_blocks ({trainable.lora.last_blocks or 'all'})")
        fix = "; ".join([*ways, "load the model with model.dtype: bfloat16"])
        raise TrainingError(
            "a training step ran out of memory",
            got=str(error).partition("\n")[0] or type(error).__name__,
            fix=f"{fix}; then run again with --resume: finished steps are kept",
        ) from error
