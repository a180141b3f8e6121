"""The settings that every recipe has; a recipe's own config adds to them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, ValidationInfo, model_validator

from groupwise.core import Config, Harmless, Place, RunFolder, Seed, Source
from groupwise.data.audit import TokenBudget
from groupwise.data.splits import NearDuplicates
from groupwise.models.settings import ModelSettings
from groupwise.training.settings import GrpoSettings, SftSettings

_AT_ONCE = Harmless(
    "how many items are asked at once: greedy answers do not depend on it",
    "推理批大小：不影响贪心解码的答案",
)
_LOGGED = Harmless("what is timed or looked at: training does not see it", "计时与旁观：不影响训练")
_GUARD = Place("what a training is stopped by: the result is the same", "训练何时停止：结果不变")
_GONE: Mapping[str, Any] = {
    "processes": 1,
    "nodes": 1,
    "max_restarts": 3,
    "engine": "local",
    "address": None,
}
"""Settings of processes that the command started itself, and their defaults."""
_LAYOUT = Place(
    "how the work is spread: every step has the same prompts and completions",
    "工作如何分配：每一步的提示和采样相同",
)


class DataSettings(Config):
    """What is asked of any data.

    Attributes:
        near_duplicates: what is done about pictures of two splits that look alike: ``warn`` (and
            measure without them), ``drop`` those that train, or ``join`` their clusters.
        mirror_invariant: whether mirror images count as alike.
        budget: how long prompts may be.
    """

    near_duplicates: NearDuplicates = "warn"
    mirror_invariant: bool = False
    budget: TokenBudget = TokenBudget(max_prompt_tokens=4096)


class EvaluationSettings(Config):
    """How policies are asked.

    Attributes:
        num_items: test items, drawn by the seed so that fewer are always among more; None: all.
        batch_size: prompts per forward pass.
        num_latency_items: test items asked one by one, to time them.
        num_heldout_items: validation items behind each look while a policy trains.
        num_calibration_items: validation items that each policy is asked for its temperature, where
            answers are labels; 0: its confidence is used as it is.
    """

    num_items: Annotated[int | None, Source("items")] = Field(default=None, ge=1)
    batch_size: Annotated[int, _AT_ONCE] = Field(default=32, ge=1, le=65_536)
    num_latency_items: Annotated[int, _LOGGED] = Field(default=20, ge=1)
    num_heldout_items: Annotated[int, _LOGGED] = Field(default=96, ge=1)
    num_calibration_items: Annotated[int, _LOGGED] = Field(default=96, ge=0)


class RivalSettings(Config):
    """What GRPO is measured against where rewards alone say what is good, beside prompting.

    Attributes:
        demonstrations: the base's own best answers to training questions that stand before each
            question; 0: this rival is not run.
        best_of: samples of the base per question, of which the reward picks one: so many times the
            work at answer time; 0: it is not run.
        rejection_sampling: SFT on the base's own best samples, of as many as GRPO draws, which
            takes about as long as the sampling of GRPO.
    """

    demonstrations: Annotated[int, _LOGGED] = Field(default=4, ge=0, le=64)
    best_of: Annotated[int, _LOGGED] = Field(default=8, ge=0, le=1024)
    rejection_sampling: Annotated[bool, _LOGGED] = False


class ComputeSettings(Config):
    """How the processes train together that a launcher has started (``torchrun``).

    Attributes:
        sharding: what each process holds: all weights (``none``), or by FSDP2 a part of weights,
            gradients and states of the optimizer (``fsdp``).
        timeout_s: how long a process waits for another one within a training, until that counts
            as hung; longer than a judge takes for a round, which the first one asks alone.
    """

    sharding: Annotated[Literal["none", "fsdp"], _LAYOUT] = "none"
    timeout_s: Annotated[float, _LAYOUT] = Field(default=7200, ge=1, le=7 * 86_400)

    @model_validator(mode="before")
    @classmethod
    def _refuse_own_launcher(cls, values: Any, info: ValidationInfo) -> Any:
        """Name the launcher instead of settings that are gone; finished runs still say them."""
        if not isinstance(values, Mapping):
            return values
        given = dict(cast("Mapping[str, Any]", values))
        gone = {name: given.pop(name) for name in _GONE if name in given}
        context: Mapping[str, Any] = info.context or {}
        is_recorded = "was_read" in context and "folder" not in context
        changed = [name for name in gone if gone[name] != _GONE[name]]
        is_set = bool({*context.get("set", ())} & {"compute", *(f"compute.{one}" for one in gone)})
        if changed and (is_set or not is_recorded):
            names = ", ".join(f"compute.{name}" for name in changed)
            number = gone.get("processes") if gone.get("nodes", 1) == 1 else "N"
            raise ValueError(
                f"{names}: the command starts no processes itself any more; leave that out, and "
                f"type torchrun --nproc-per-node {number or 'N'} -m groupwise run …"
            )
        return given


class RunConfig(Config):
    """What every recipe made of a Task has.

    Attributes:
        seed: of the run.
        model: the language model that answers.
    """

    seed: Seed = 0
    model: ModelSettings


class FlowConfig(RunConfig):
    """The whole job of the usual stages, in which ``model`` is trained.

    Attributes:
        data: what is asked of any data.
        sft: the warm-up; None: GRPO starts from the base.
        grpo: the training on rewards.
        evaluation: how policies are asked.
        compute: how several processes train together.
        stop_on_alarm: end a training at an alarm that it teaches nothing: a loss that does not
            fall, one answer to everything, rewards that never differ. It can be gone on with.
    """

    data: DataSettings
    sft: SftSettings | None
    grpo: GrpoSettings
    evaluation: EvaluationSettings = EvaluationSettings()
    compute: ComputeSettings = ComputeSettings()
    stop_on_alarm: Annotated[bool, _GUARD] = True

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        """Refuse weights in parts, or in 4 bits, with what they do not go with."""
        bits = f"model.quantization {self.model.quantization}"
        for name, stage in self.list_trainings().items():
            method = stage.trainable.method
            if self.compute.sharding == "fsdp" and method == "prompt":
                raise ValueError(
                    f"compute.sharding fsdp: {name}.trainable.method prompt was not tried; take "
                    "lora or full"
                )
            if self.model.quantization is not None and method != "lora":
                raise ValueError(
                    f"{bits}: only a LoRA trains on 4 bits; set {name}.trainable.method to lora"
                )
        if self.model.quantization is not None and self.compute.sharding != "none":
            raise ValueError(
                f"{bits}: weights in 4 bits are not spread; set compute.sharding to none"
            )
        if self.model.quantization is not None and self.grpo.vllm is not None:
            raise ValueError(
                f"{bits}: weights in 4 bits cannot be sent to vLLM; leave grpo.vllm out"
            )
        return self

    def list_trainings(self) -> dict[str, SftSettings | GrpoSettings]:
        """Return the settings of each training that ``compute`` is for, by section, in order."""
        return {"grpo": self.grpo} if self.sft is None else {"sft": self.sft, "grpo": self.grpo}

    def list_unshared(self, num_processes: int) -> list[str]:
        """Return clauses on what so many processes would train otherwise than one."""
        batches = {name: find_batch(one) for name, one in self.list_trainings().items()}
        problems = [
            f"{name}.{setting} {size} cannot be shared equally; make it a multiple of the processes"
            for name, (setting, size) in batches.items()
            if size % num_processes
        ]
        if self.grpo.loss == "bnpo":
            problems.append("grpo.loss bnpo is a mean over each process's own tokens; take another")
        if self.grpo.entropy_bonus:
            problems.append(
                f"grpo.entropy_bonus {self.grpo.entropy_bonus} is a mean over each process's own "
                "tokens; set it to 0"
            )
        if self.grpo.vllm is not None:
            problems.append("grpo.vllm samples for one process only; leave it out")
        return problems


def find_batch(training: SftSettings | GrpoSettings) -> tuple[str, int]:
    """Return the setting that says what all processes take at a time, and its value."""
    if isinstance(training, SftSettings):
        return "batch_size", training.batch_size
    return "prompts_per_step", training.prompts_per_step


def place_base(config: Any, run: Path) -> str | Path:
    """Return what to load for ``model.base``; of a name's sources the one that the run began with.

    A ModelError if that one is not on this machine any more.
    """
    from groupwise.models.identity import pin_base
    from groupwise.models.sources import NAMED_MODELS

    base, manifest, digest = config.model.base, RunFolder(run).manifest_path, None
    if base in NAMED_MODELS and manifest.is_file():
        told = RunFolder(run).read_manifest()
        if told["config"].get("model", {}).get("base") == base:
            digest = told["inputs"].get("model.base")
    return pin_base(base, digest)
