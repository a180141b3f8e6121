"""The settings that every recipe has; a recipe's own config adds to them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Config, Harmless, Place, Seed, Source
from groupwise.data import NearDuplicates, TokenBudget
from groupwise.models import ModelSettings
from groupwise.training import GrpoSettings, SftSettings

_AT_ONCE = Harmless(
    "how many items are asked at once: greedy answers do not depend on it",
    "推理批大小：不影响贪心解码的答案",
)
_LOGGED = Harmless("what is timed or looked at: training does not see it", "计时与旁观：不影响训练")
_GUARD = Place("what a training is stopped by: the result is the same", "训练何时停止：结果不变")
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
    """What trains: how many processes share each step of the warm-up, GRPO and its control.

    Attributes:
        processes: of all machines together, on a GPU each if there are any; 1 with the engine
            ``local``: the run's own.
        nodes: machines that share them equally; the same command is started once on each, and
            all must find the run folder under the same path.
        max_restarts: how often all of them are started again in one training, from its last whole
            checkpoint, because one has died or made no progress.
        timeout_s: how long the processes wait for one of them, which may ask a judge meanwhile,
            until it counts as hung.
        sharding: what each process holds: all weights (``none``), or by FSDP2 a part of weights,
            gradients and states of the optimizer (``fsdp``).
        engine: what starts them: ``local`` on this machine, ``ray`` on the machines of a cluster,
            which must all find the run folder under the same path.
        address: of the Ray cluster, such as ``auto`` or ``HOST:6379``; None: what RAY_ADDRESS
            names, or else, as for ``local``, one of this machine that ends with the training.
    """

    processes: Annotated[int, _LAYOUT] = Field(default=1, ge=1, le=1024)
    nodes: Annotated[int, _LAYOUT] = Field(default=1, ge=1, le=1024)
    max_restarts: Annotated[int, _LAYOUT] = Field(default=3, ge=0, le=1000)
    timeout_s: Annotated[float, _LAYOUT] = Field(default=1800, ge=1, le=7 * 86_400)
    sharding: Annotated[Literal["none", "fsdp"], _LAYOUT] = "none"
    engine: Annotated[Literal["local", "ray"], _LAYOUT] = "local"
    address: Annotated[str | None, _LAYOUT] = None

    @property
    def has_workers(self) -> bool:
        """Whether other processes train than the run's own."""
        return self.processes > 1 or self.engine == "ray"

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        if self.address is not None and self.engine != "ray":
            raise ValueError(f"compute.address {self.address} needs compute.engine ray")
        if self.nodes > 1 and self.engine == "ray":
            raise ValueError(f"compute.nodes {self.nodes}: a Ray cluster knows its machines itself")
        if self.processes % self.nodes:
            raise ValueError(
                f"compute.processes {self.processes} cannot be shared equally by compute.nodes "
                f"{self.nodes}; make it a multiple of them"
            )
        return self


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
        compute: what trains.
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
    def _check_compute(self) -> Self:
        if self.compute.processes > 1:
            problems = self._list_unshared(self.compute.processes)
            if problems:
                told = "; ".join(problems)
                raise ValueError(f"compute.processes {self.compute.processes}: {told}")
        if self.compute.sharding == "fsdp" and (problem := self._find_unspread()):
            raise ValueError(f"compute.sharding fsdp: {problem}")
        return self

    @model_validator(mode="after")
    def _check_quantization(self) -> Self:
        problem = None if self.model.quantization is None else self._find_unquantized()
        if problem:
            raise ValueError(f"model.quantization {self.model.quantization}: {problem}")
        return self

    def _find_unquantized(self) -> str | None:
        """Return a clause on what weights in 4 bits do not go with."""
        for name, stage in self.list_trainings().items():
            if stage.trainable.method != "lora":
                return f"only a LoRA trains on 4 bits; set {name}.trainable.method to lora"
        if self.compute.sharding != "none":
            return "weights in 4 bits are not spread; set compute.sharding to none"
        if self.grpo.vllm is not None:
            return "weights in 4 bits cannot be sent to vLLM; leave grpo.vllm out"
        return None

    def list_trainings(self) -> dict[str, SftSettings | GrpoSettings]:
        """Return the settings of each training that ``compute`` is for, by section, in order."""
        return {"grpo": self.grpo} if self.sft is None else {"sft": self.sft, "grpo": self.grpo}

    def _find_unspread(self) -> str | None:
        """Return a clause on what weights in parts do not go with."""
        if self.compute.processes == 1:
            return "one process holds all weights; raise compute.processes"
        for name, stage in self.list_trainings().items():
            if stage.trainable.method == "prompt":
                return f"{name}.trainable.method prompt was not tried; take lora or full"
        return None

    def _list_unshared(self, num_processes: int) -> list[str]:
        """Return clauses on what as many processes would train otherwise than one."""
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
