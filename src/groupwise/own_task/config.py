"""Settings of the recipe ``task``, as a user writes them in ``task.yaml``."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from groupwise.core import Config, describe_unknown, read_config
from groupwise.data.columns import TableSettings
from groupwise.evaluation.predictions import REWARD, Measure, find_measure
from groupwise.judges import JudgeConfig
from groupwise.rewards import AnswerSettings, RewardKind, TextParser
from groupwise.run.settings import DataSettings, FlowConfig, RivalSettings
from groupwise.training.settings import GrpoSettings, SftSettings

BUILT_IN = ("correct", "format", "token_f1", "fluency")
FLUENT = "fluent"

# Tokens of an answer by its kind, where grpo.max_new_tokens is not given.
_ANSWER_TOKENS = {"labels": 24, "choice": 12, "number": 24, "boxes": 64, "text": 64}
_LONG = 256
# Where the reference is the whole answer, so that writing it is what is to be learned.
_TAUGHT_KINDS = ("labels", "choice", "number", "text", "json", "boxes", "code")


class TaskData(TableSettings, DataSettings):
    """The rows, and what is asked of any data."""

    @model_validator(mode="after")
    def _check_join(self) -> Self:
        is_given = self.hub or self.columns.split or set(self.files) != {"train"}
        if self.near_duplicates == "join" and is_given:
            raise ValueError("data.near_duplicates: join needs a split by shares, none given")
        return self


class FunctionPart(Config):
    """How a function of the user's own is called.

    Attributes:
        messages: whether a function of TRL's shape takes messages instead of texts.
        values: lowest and highest value that a function returns; they become 0 and 1.
    """

    messages: bool = False
    values: tuple[float, float] = (0.0, 1.0)


class RewardPart(FunctionPart):
    """One reward.

    Attributes:
        weight: beside those of the others; 0: it is only logged.
        kind: what a function's value rests on (truth, judgement, format, shaping, other).
        all_of: instead of a function, names of other rewards; the lowest of their values counts.
    """

    all_of: tuple[str, ...] = ()
    weight: float = Field(default=1.0, ge=0)
    kind: RewardKind = "other"


class JudgePart(Config):
    """A reward that a judge gives; what it cannot decide is not scored.

    Attributes:
        weight: beside those of the others.
        judge: the judge, as in a file for ``groupwise judge``, or that file. It reads
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


class MeasurePart(FunctionPart):
    """What a function of the user's own measures on held-out answers; it pays nothing.

    Attributes:
        title, title_zh: what reports call it; None: the name of the function, as it is in Chinese.
        higher_is_better: whether more of it is better.
        all_of: instead of a function, names of other measures; the lowest of their values counts.
    """

    all_of: tuple[str, ...] = ()
    title: str | None = None
    title_zh: str | None = None
    higher_is_better: bool = True

    def define(self, name: str) -> Measure:
        """Return the measure of a function by its name."""
        plain = name.replace("_", " ")
        title = self.title or plain[:1].upper() + plain[1:]
        return Measure(name, title, self.title_zh or self.title or name, self.higher_is_better)


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
        answer: what an answer is, by its ``kind``; without ``data.columns.answer`` a text if
            nothing else is said.
        rewards: by name: ``correct`` (what the answer's kind measures), ``format`` (it is an
            answer at all), ``token_f1`` (share of the words), ``fluency`` (the base finds it as
            likely as most of its own answers), ``file.py:function``, or any name for a judge
            (``kind: judge``) or for ``all_of`` several others; a number is a weight. ``correct``
            and ``token_f1`` need ``data.columns.answer``.
        rivals: what GRPO is measured against by the same rewards; not given, the usual ones
            without ``data.columns.answer``, and none with it.
        measures: functions of a file (``file.py:function``) that score held-out answers,
            ``fluent`` (``fluency`` is 1), or any name for ``all_of`` several of them. Without
            ``data.columns.answer`` the first one heads the report and chooses checkpoints; where
            none is given the weighted reward does, and the reward functions stand beside it.
        sft: the warm-up on ``data.columns.target``, or on the answers themselves where there is no
            such column; null: GRPO starts from the base. Not given, there is one wherever there is
            something to teach.
        grpo: the training on rewards; ``max_new_tokens`` is by the answer's kind if not given.
    """

    recipe: Literal["task"] = "task"
    data: TaskData
    answer: AnswerSettings = TextParser()
    rewards: Mapping[str, _Part] = {"correct": RewardPart()}
    measures: Mapping[str, MeasurePart] = {}
    rivals: RivalSettings | None = None
    sft: SftSettings | None = None
    grpo: GrpoSettings = GrpoSettings()

    @model_validator(mode="before")
    @classmethod
    def _choose_defaults(cls, values: Any) -> Any:
        """Return the settings with those that depend on the answer and the columns."""
        answer, columns = _find(values, "answer"), _find(_find(values, "data"), "columns")
        kind, target = answer.get("kind"), columns.get("target")
        if kind is None and not columns.get("answer"):
            kind = "text"
        if not isinstance(values, Mapping) or not isinstance(kind, str):
            return values
        is_free = not columns.get("answer")
        has_way = is_free or target or answer.get("tags") or answer.get("describe")
        tokens = _LONG if has_way else _ANSWER_TOKENS.get(kind, _LONG)
        is_taught = target or (columns.get("answer") and is_whole(kind, answer.get("tags")))
        given = cast("Mapping[str, Any]", values)
        return {
            **({"sft": {}} if is_taught else {}),
            **({"rivals": {}} if is_free else {}),
            **given,
            "grpo": {"max_new_tokens": tokens, **_find(given, "grpo")},
        }

    @field_validator("rewards", "measures", mode="before")
    @classmethod
    def _read_parts(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the parts by name, with files that do not depend on where they are read."""
        is_reward = info.field_name == "rewards"
        if not isinstance(value, Mapping | list | tuple):
            expected = (
                "names, or names with weights" if is_reward else "file.py:function, or several"
            )
            raise ValueError(f"give {expected}")
        default = 1.0 if is_reward else {}
        given = value if isinstance(value, Mapping) else dict.fromkeys(value, default)
        folder = cast("Mapping[str, str]", info.context or {}).get("folder", "")
        placed: dict[str, Any] = {}
        for name, part in cast("Mapping[Any, Any]", given).items():
            if is_reward and isinstance(part, int | float):
                part = {"weight": part}
            place = str(Path(folder, str(name))) if ":" in str(name) else str(name)
            placed[place] = {} if part is None and not is_reward else part
        return placed

    @field_validator("rewards", "measures")
    @classmethod
    def _check_parts(cls, value: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
        what = str(info.field_name)
        combined = {name: p.all_of for name, p in value.items() if getattr(p, "all_of", ())}
        single = sorted(show_name(name) for name in value if name not in combined)
        for name, names in combined.items():
            if ":" in name or name in (*BUILT_IN, FLUENT):
                raise ValueError(f"{name} has a value of its own; give all_of a name of its own")
            for one in names:
                if one not in single:
                    raise ValueError(describe_unknown(f"{what[:-1]} of {name}", one, single))
        for name, part in value.items():
            if isinstance(part, JudgePart):
                if name in BUILT_IN or not name.isidentifier():
                    raise ValueError(f"a judge needs a name of its own, one word, got {name!r}")
            elif ":" in name or name in combined:
                continue
            elif what == "measures" and name != FLUENT:
                raise ValueError(f"a measure is a function of a file, file.py:{name}")
            elif what == "rewards" and name not in BUILT_IN:
                raise ValueError(describe_unknown("reward", name, [*BUILT_IN, "file.py:function"]))
        if what == "measures":
            _refuse_known(what, value)
        repeated = [name for name, num in Counter(map(show_name, value)).items() if num > 1]
        if repeated:
            raise ValueError(f"two {what} are called {repeated[0]}")
        return value

    @model_validator(mode="after")
    def _check_answer(self) -> Self:
        if self.has_reference:
            if "answer" not in self.model_fields_set:
                raise ValueError("answer is needed: it says how data.columns.answer is read")
            return self
        compared = [name for name in self.rewards if name in ("correct", "token_f1")]
        if compared:
            raise ValueError(
                f"rewards.{compared[0]} compares with data.columns.answer, which is not given; "
                "name the column, or pay by functions (file.py:function) or judges alone"
            )
        if not self.measures and any(isinstance(p, JudgePart) for p in self.rewards.values()):
            raise ValueError(
                "a judge is asked while GRPO trains and measures nothing: give measures a "
                "function that does (file.py:function), or data.columns.answer"
            )
        headline = next(iter(self.measures.values()), None)
        if headline is not None and not headline.higher_is_better:
            raise ValueError("the first of measures chooses checkpoints: more of it must be better")
        names = {show_name(name): name for name in self.measures}
        for name in self.rewards:
            if names.get(show_name(name), name) != name:
                raise ValueError(f"a measure and another reward are called {show_name(name)}")
        _refuse_known("rewards", self.rewards)
        return self

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        columns, answer = self.data.columns, self.answer
        is_taught = columns.target or (columns.answer and is_whole(answer.kind, answer.tags))
        if self.sft is not None and not is_taught:
            raise ValueError(
                "sft teaches the texts of data.columns.target, which is not given, or whole "
                "answers, which those of this kind are not"
            )
        return self

    @property
    def asks_for_fluency(self) -> bool:
        """Whether the base has to read answers."""
        return FLUENT in self.measures or "fluency" in self.rewards

    @property
    def has_reference(self) -> bool:
        """Whether rows have a reference answer; without one functions alone say what is good."""
        return self.data.columns.answer is not None


def is_whole(kind: str, tags: Any) -> bool:
    """Return whether a row's reference is all that is to be written."""
    return kind in _TAUGHT_KINDS and not tags


def _find(values: Any, name: str) -> Mapping[str, Any]:
    """Return a section of settings that are not checked yet; empty if it is none."""
    section = values.get(name) if isinstance(values, Mapping) else None
    return cast("Mapping[str, Any]", section) if isinstance(section, Mapping) else {}


def show_name(name: str) -> str:
    """Return the name of a reward or measure in reports: of a function its own."""
    return name.rpartition(":")[2]


def _refuse_known(what: str, names: Iterable[str]) -> None:
    for name in map(show_name, names):
        if find_measure(name) or name == REWARD.name:
            raise ValueError(f"{what}: there is a measure {name} already; rename yours")
