"""Settings of the recipe ``task``, as a user writes them in ``task.yaml``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from groupwise.core import Config, describe_unknown, read_config
from groupwise.data import TableSettings
from groupwise.flow import DataSettings, FlowConfig
from groupwise.judge_calibration import JudgeConfig
from groupwise.rewards import AnswerSettings, RewardKind
from groupwise.training import GrpoSettings, SftSettings

BUILT_IN = ("correct", "format", "token_f1")

# Tokens of an answer by its kind, where grpo.max_new_tokens is not given.
_ANSWER_TOKENS = {"labels": 24, "choice": 12, "number": 24, "boxes": 64, "text": 64}
_LONG = 256
# Where the reference is the whole answer, so that writing it is what is to be learned.
_TAUGHT_KINDS = ("labels", "choice", "number", "text", "json", "boxes", "code")


class TaskData(TableSettings, DataSettings):
    """The rows, and what is asked of any data."""

    @model_validator(mode="after")
    def _check_answer(self) -> Self:
        if self.columns.answer is None:
            raise ValueError("data.columns.answer is needed: it is what answers are compared with")
        is_given = self.hub or self.columns.split or set(self.files) != {"train"}
        if self.near_duplicates == "join" and is_given:
            raise ValueError("data.near_duplicates: join needs a split by shares, none given")
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


class JudgePart(Config):
    """A reward that a judge gives; what it cannot decide is not scored.

    Attributes:
        weight: beside those of the others.
        judge: the judge, as in a file for ``groupwise judge calibrate``, or that file. It reads
            ``question`` (the last turn of the prompt), ``reference``, ``answer`` and the columns.
        scale: what each of its labels is worth.
        pictures: whether it sees those of the prompt.
    """

    kind: Literal["judge"] = "judge"
    weight: float = Field(default=1.0, ge=0)
    judge: JudgeConfig
    scale: Mapping[str, Annotated[float, Field(ge=0, le=1)]] = {"True": 1.0, "False": 0.0}
    pictures: bool = False

    @field_validator("judge", mode="before")
    @classmethod
    def _read_judge(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the settings of a file; a prompt's file stands beside it."""
        path = Path(cast("Mapping[str, str]", info.context or {}).get("folder", ""))
        if isinstance(value, str):
            path, value = (path / value).parent, read_config(path / value)
        prompt = value.get("prompt") if isinstance(value, Mapping) else None
        if isinstance(prompt, str) and prompt.endswith(".txt"):
            return {**value, "prompt": str(path / prompt)}
        return value

    @field_validator("scale", mode="before")
    @classmethod
    def _spell_labels(cls, value: Any) -> Any:
        """Return the labels as texts: YAML reads True as no text."""
        return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _check_judge(self) -> Self:
        if self.judge.kind == "rule":
            raise ValueError("a rule judges pairs; give a model or a server")
        if self.judge.prompt is None and set(self.scale) != {"True", "False"}:
            raise ValueError("the labels of scale need a prompt that asks for them: judge.prompt")
        return self


def _find_part(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", "")
    return "judge" if kind == "judge" else "other"


_Part = Annotated[
    Annotated[RewardPart, Tag("other")] | Annotated[JudgePart, Tag("judge")],
    Discriminator(_find_part),
]


class TaskConfig(FlowConfig):
    """A task of your own.

    Attributes:
        recipe: names this recipe, so that ``groupwise run FILE`` finds it.
        data: the rows.
        answer: what an answer is, by its ``kind``.
        rewards: by name: ``correct`` (what the answer's kind measures), ``format`` (it is an
            answer at all), ``token_f1`` (share of the words), ``file.py:function``, or any name
            for a judge (``kind: judge``); a number is a weight.
        sft: the warm-up on ``data.columns.target``, or on the answers themselves where there is no
            such column; null: GRPO starts from the base. Not given, there is one wherever there is
            something to teach.
        grpo: the training on rewards; ``max_new_tokens`` is by the answer's kind if not given.
    """

    recipe: Literal["task"] = "task"
    data: TaskData
    answer: AnswerSettings
    rewards: Mapping[str, _Part] = {"correct": RewardPart()}
    sft: SftSettings | None = None
    grpo: GrpoSettings = GrpoSettings()

    @model_validator(mode="before")
    @classmethod
    def _choose_defaults(cls, values: Any) -> Any:
        """Return the settings with those that depend on the answer and the columns."""
        answer, columns = _find(values, "answer"), _find(_find(values, "data"), "columns")
        kind, target = answer.get("kind"), columns.get("target")
        if not isinstance(values, Mapping) or not isinstance(kind, str):
            return values
        has_way = target or answer.get("tags") or answer.get("describe")
        tokens = _LONG if has_way else _ANSWER_TOKENS.get(kind, _LONG)
        is_taught = target or (columns.get("answer") and is_whole(kind, answer.get("tags")))
        given = cast("Mapping[str, Any]", values)
        return {
            **({"sft": {}} if is_taught else {}),
            **given,
            "grpo": {"max_new_tokens": tokens, **_find(given, "grpo")},
        }

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
    def _check_rewards(cls, value: Mapping[str, _Part]) -> Mapping[str, _Part]:
        for name, part in value.items():
            if isinstance(part, JudgePart):
                if name in BUILT_IN or not name.isidentifier():
                    raise ValueError(f"a judge needs a name of its own, one word, got {name!r}")
            elif ":" not in name and name not in BUILT_IN:
                raise ValueError(describe_unknown("reward", name, [*BUILT_IN, "file.py:function"]))
        shown = [name.rpartition(":")[2] for name in value]
        repeated = [name for name in shown if shown.count(name) > 1]
        if repeated:
            raise ValueError(f"two rewards are called {repeated[0]}")
        return value

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        columns = self.data.columns
        is_taught = columns.target or (
            columns.answer and is_whole(self.answer.kind, self.answer.tags)
        )
        if self.sft is not None and not is_taught:
            raise ValueError(
                "sft teaches the texts of data.columns.target, which is not given, or whole "
                "answers, which those of this kind are not"
            )
        return self


def is_whole(kind: str, tags: Any) -> bool:
    """Return whether a row's reference is all that is to be written."""
    return kind in _TAUGHT_KINDS and not tags


def _find(values: Any, name: str) -> Mapping[str, Any]:
    """Return a section of settings that are not checked yet; empty if it is none."""
    section = values.get(name) if isinstance(values, Mapping) else None
    return cast("Mapping[str, Any]", section) if isinstance(section, Mapping) else {}


def _place(name: str, folder: str) -> str:
    return str(Path(folder, name)) if ":" in name else name
