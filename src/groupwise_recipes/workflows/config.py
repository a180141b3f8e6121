"""Settings of the workflows recipe, as written in its YAML files."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from groupwise.core import Config, Source
from groupwise.data.columns import find_place_problem
from groupwise.inference.settings import ModelSource, RetrySettings, Sampling
from groupwise.judges import JudgeSettings
from groupwise.run.settings import DataSettings, FlowConfig
from groupwise.sandbox import Limits
from groupwise.training.settings import SftSettings
from groupwise_recipes.workflows.deciding import Mode
from groupwise_recipes.workflows.executor_stub import Abilities
from groupwise_recipes.workflows.outcome import ExecutionSettings

Split = Literal["train", "validation", "test"]

PLACES = ("operators", "rules", "entry_point")


class WorkflowsData(DataSettings):
    """Where problems come from.

    Attributes:
        mix: folder with ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` as
            ``problem_mixes mix`` writes them; None: generated ones.
        num_generated: for training, if they are generated; a quarter as many for validation, and
            as many as that for the test. They are worded in other sentences there.
        max_train, max_validation, max_test: of each type, the first so many; None: all.
        warmup_share: of the training problems, which are left to the warm-up alone; without a
            warm-up it is not used.
        stub_share: of the warm-up's code problems, which are worded as a signature with a docstring
            rather than as sentences. It is a part of the reading lesson: both forms are published.
    """

    mix: Annotated[Path | None, Source("data")] = None
    num_generated: int = Field(default=1800, ge=12, le=10_000_000)
    max_train: int | None = Field(default=None, ge=1)
    max_validation: int | None = Field(default=None, ge=1)
    max_test: int | None = Field(default=None, ge=1)
    warmup_share: float = Field(default=0.4, gt=0, lt=1)
    stub_share: float = Field(default=0.0, ge=0, le=1)

    def count_generated(self) -> dict[Split, int]:
        """Return how many problems are generated for each split."""
        others = max(3, self.num_generated // 4)
        return {"train": self.num_generated, "validation": others, "test": others}


class WarmupSettings(SftSettings):
    """SFT on programs that are drawn, one for each problem and epoch, without a look at it."""

    retired: ClassVar = {
        "says_kind": (True,),
        "programs_per_problem": (1,),
    }


class ExecutorSettings(Config):
    """What answers behind the operators: a model, or a stub for demos, tests and dry runs.

    Attributes:
        model: in this process or behind a server.
        stub: whether a stub does, which is started with the run and is no model.
        execution: limits, sampling and retries.
    """

    retired: ClassVar = {"cache_mib": (1024.0,)}
    model: ModelSource | None = None
    stub: bool = False
    execution: ExecutionSettings = ExecutionSettings()

    @field_validator("stub", mode="before")
    @classmethod
    def _read_abilities(cls, value: Any) -> Any:
        """Return whether there is a stub; of finished runs its abilities are read."""
        if value is None:
            return False
        return True if value in ({}, Abilities().model_dump(mode="json")) else value

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.model is None) == (not self.stub):
            raise ValueError("give executor.model or executor.stub, and not both")
        return self


class WorkflowJudgeSettings(Config):
    """The model that compares an answer with the reference.

    Attributes:
        model: None: the executor's.
        language: of the prompt.
        sampling: of its replies; one that is cut off or empty is asked again with more tokens.
        settings: retries, and when too many questions without a verdict stop the run.
    """

    model: ModelSource | None = None
    language: Literal["en", "zh"] = "en"
    sampling: Sampling = Sampling(max_new_tokens=1024)
    settings: JudgeSettings = JudgeSettings()


class RewardSettings(Config):
    """What an answer is worth.

    Attributes:
        mode: ``rules_first``: the judge decides only where no rule does; ``judge_only``: it decides
            everything, and how often rules agree is reported.
    """

    retired: ClassVar = {
        "cost_weight": (0.0,),
        "cost_tokens": (10_000,),
        "tests": (Limits().model_dump(mode="json"),),
    }
    mode: Mode = "rules_first"


class RivalSettings(Config):
    """Fixed programs that a policy has to beat; chosen on validation problems.

    Attributes:
        num_problems: validation problems of each type that they are tried on.
    """

    retired: ClassVar = {"top_k": (3,)}
    num_problems: int = Field(default=20, ge=1)


class GepaSettings(Config):
    """GEPA, which rewrites the policy's prompt, as a rival of GRPO with as many programs to run.

    Attributes:
        model: reads what came of programs under a prompt, and writes another prompt.
        policy: which policy writes the programs. A base that is built here writes none before its
            warm-up.
        num_executions: programs that are run at most; None: as many as GRPO sampled.
        num_validation: validation problems that prompts are chosen by; the first, types in turn.
        sampling: of the model; a reply that is cut off or empty is asked for again with twice the
            tokens.
        retry: of requests that failed.
    """

    retired: ClassVar = {"minibatch_size": (3,)}
    model: ModelSource
    policy: Literal["untrained", "sft"] = "untrained"
    num_executions: int | None = Field(default=None, ge=1)
    num_validation: int = Field(default=60, ge=1)
    sampling: Sampling = Sampling(temperature=1.0, max_new_tokens=4096)
    retry: RetrySettings = RetrySettings()


class ScoringSettings(Config):
    """What says how programs are run and what their answers are worth.

    Attributes:
        executor: what answers behind the operators.
        judge: None: rules alone decide.
        reward: what an answer is worth.
    """

    executor: ExecutorSettings
    judge: WorkflowJudgeSettings | None = None
    reward: RewardSettings = RewardSettings()


class WorkflowsConfig(FlowConfig):
    """The whole job.

    Attributes:
        prompt: template with ``{{ problem }}`` and, if wanted, ``{{ operators }}``, ``{{ rules }}``
            and ``{{ entry_point }}``.
        assign_first: whether the rules say that every variable is to be assigned first.
        language: of the rules.
        executor: what answers behind the operators.
        judge: None: rules alone decide.
        reward: what an answer is worth.
        rivals: fixed programs.
        gepa: None: the prompt is not optimised, and GEPA is not among the rivals.
    """

    data: WorkflowsData = WorkflowsData()
    sft: WarmupSettings | None
    prompt: str = "{{ problem }}"
    assign_first: bool = True
    language: Literal["en", "zh"] = "en"
    executor: ExecutorSettings
    judge: WorkflowJudgeSettings | None = None
    reward: RewardSettings = RewardSettings()
    rivals: RivalSettings = RivalSettings()
    gepa: GepaSettings | None = None

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        unknown = find_place_problem(self.prompt, needed={"problem"}, more=PLACES)
        if unknown:
            raise ValueError(f"prompt: {unknown}")
        return self

    @model_validator(mode="after")
    def _check_judge(self) -> Self:
        if self.reward.mode == "judge_only" and self.judge is None:
            raise ValueError("reward.mode judge_only needs a judge")
        return self

    @model_validator(mode="after")
    def _check_gepa(self) -> Self:
        if self.gepa is not None and self.gepa.policy == "sft" and self.sft is None:
            raise ValueError("gepa.policy sft needs a warm-up (sft)")
        return self
