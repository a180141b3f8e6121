"""Settings of the recipe ``task``, as a user writes them in ``task.yaml``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, cast

from pydantic import Field, ValidationInfo, field_validator, model_validator

from groupwise.core import Config, describe_unknown
from groupwise.data import TableSettings
from groupwise.flow import DataSettings, FlowConfig
from groupwise.rewards import AnswerSettings, RewardKind
from groupwise.training import SftSettings

BUILT_IN = ("correct", "format", "token_f1")


class TaskData(TableSettings, DataSettings):
    """The rows, and what is asked of any data."""

    @model_validator(mode="after")
    def _check_answer(self) -> Self:
        if self.columns.answer is None:
            raise ValueError("data.columns.answer is needed: it is what answers are compared with")
        if self.near_duplicates != "warn":
            raise ValueError("data.near_duplicates: only warn is known for rows of a table")
        return self


class RewardPart(Config):
    """One reward.

    Attributes:
        weight: beside those of the others; 0: it is only logged.
        kind: what a function's value rests on (truth, judgement, format, shaping, other).
        messages: whether a function of TRL's shape takes messages instead of texts.
        values: lowest and highest value that a function returns; they become 0 and 1.
    """

    weight: float = Field(default=1.0, ge=0)
    kind: RewardKind = "other"
    messages: bool = False
    values: tuple[float, float] = (0.0, 1.0)


class TaskConfig(FlowConfig):
    """A task of your own.

    Attributes:
        recipe: names this recipe, so that ``groupwise run FILE`` finds it.
        data: the rows.
        answer: what an answer is, by its ``kind``.
        rewards: by name: ``correct`` (what the answer's kind measures), ``format`` (it is an
            answer at all), ``token_f1`` (share of the words), or ``file.py:function``; a number
            is a weight.
        sft: the warm-up on ``data.columns.target``; None: GRPO starts from the base.
    """

    recipe: Literal["task"] = "task"
    data: TaskData
    answer: AnswerSettings
    rewards: Mapping[str, RewardPart] = {"correct": RewardPart()}
    sft: SftSettings | None = None

    @field_validator("rewards", mode="before")
    @classmethod
    def _read_rewards(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the parts by name, with files that do not depend on where they are read."""
        if not isinstance(value, Mapping | list | tuple):
            raise ValueError("give names, or names with weights")
        given = value if isinstance(value, Mapping) else dict.fromkeys(value, 1.0)
        context = cast("Mapping[str, str]", info.context or {})
        return {
            _place(str(name), context.get("folder", "")): {"weight": part}
            if isinstance(part, int | float)
            else part
            for name, part in cast("Mapping[Any, Any]", given).items()
        }

    @field_validator("rewards")
    @classmethod
    def _check_rewards(cls, value: Mapping[str, RewardPart]) -> Mapping[str, RewardPart]:
        for name in value:
            if ":" not in name and name not in BUILT_IN:
                raise ValueError(describe_unknown("reward", name, [*BUILT_IN, "file.py:function"]))
        shown = [name.rpartition(":")[2] for name in value]
        repeated = [name for name in shown if shown.count(name) > 1]
        if repeated:
            raise ValueError(f"two rewards are called {repeated[0]}")
        return value

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.sft is not None and self.data.columns.target is None:
            raise ValueError("sft teaches the texts of data.columns.target, which is not given")
        return self


def _place(name: str, folder: str) -> str:
    return str(Path(folder, name)) if ":" in name else name
