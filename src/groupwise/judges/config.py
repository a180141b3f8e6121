"""Which judge is asked, as written in a config: a rule, or a model here or behind a server."""

from pathlib import Path
from typing import Any, Literal, Self, cast

from pydantic import Field, model_validator

from groupwise.core import JudgeError, digest_json
from groupwise.inference.model import Model, Sampling
from groupwise.inference.settings import ModelSource
from groupwise.judges.cache import ReplyCache
from groupwise.judges.judge import Judge, NoVerdict, Question, Verdict
from groupwise.judges.model import (
    GenerativeJudge,
    JudgePrompt,
    JudgeSettings,
    LogitJudge,
    load_prompt,
)
from groupwise.judges.panel import FIRST, SECOND, TIE

RuleName = Literal["always_first", "longer"]
_PROMPTS = {
    ("logit", True): "pair_choice",
    ("logit", False): "correct_choice",
    ("generative", True): "pair",
    ("generative", False): "correct",
}
_OPTION_TEXTS = {
    "en": {FIRST: "the first answer", SECOND: "the second answer", TIE: "neither"},
    "zh": {FIRST: "第一个回答", SECOND: "第二个回答", TIE: "不分高下"},
}


class JudgeConfig(ModelSource):
    """A judge and how it is asked: a rule, or a model here or behind a server.

    Attributes:
        kind: ``rule``, ``logit`` (probability of the labels) or ``generative`` (a tagged verdict).
        name: in the report; None: the rule, or the model's name.
        rule: of a rule: ``always_first`` or ``longer``.
        prompt: name of a prompt of this package, or the path of a ``.txt`` file; None: the one
            for this kind of judge and data.
        language: of the package's prompt and of the report.
        labels: of the verdicts; None: ``first`` and ``second`` for pairs (a generative judge may
            also say ``tie``), else ``True`` and ``False``.
        tag: of a generative judge's verdict; None: ``better`` for pairs, else ``true_false``.
        sampling: of a generative judge.
        settings: retries, and when too many questions without a verdict stop the run.
    """

    kind: Literal["rule", "logit", "generative"]
    name: str | None = Field(default=None, pattern="^[^/]+$")
    rule: RuleName | None = None
    prompt: str | None = None
    language: Literal["en", "zh"] = "en"
    labels: tuple[str, ...] | None = None
    tag: str | None = None
    sampling: Sampling = Sampling(max_new_tokens=512)
    settings: JudgeSettings = JudgeSettings()

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        given = [name for name in ("rule", "model", "server") if getattr(self, name) is not None]
        if self.kind == "rule" and given != ["rule"]:
            raise ValueError(f"a rule judge needs rule and nothing else; got {given or 'none'}")
        if self.kind != "rule" and given not in (["model"], ["server"]):
            raise ValueError(f"a {self.kind} judge needs model or server; got {given or 'none'}")
        return self

    @property
    def title(self) -> str:
        """The judge's name in reports."""
        model = self.server.model if self.server is not None else self.model
        return self.name or (str(self.rule) if model is None else Path(model).name)

    def list_labels(self, *, are_pairs: bool) -> tuple[str, ...]:
        """Return the labels of the verdicts; rules know pairs only."""
        if self.kind == "rule":
            return (FIRST, SECOND)
        if self.labels is not None or not are_pairs:
            return self.labels or ("True", "False")
        return (FIRST, SECOND, TIE) if self.kind == "generative" else (FIRST, SECOND)

    def find_prompt(self, *, are_pairs: bool) -> JudgePrompt | None:
        """Return the prompt, None for a rule.

        Raises:
            JudgeError: if there is no such prompt.
        """
        if self.kind == "rule":
            return None
        name = self.prompt or _PROMPTS[self.kind, are_pairs]
        return load_prompt(Path(name) if name.endswith(".txt") else name, language=self.language)


class RuleJudge:
    """Decides pairs by a rule; two answers of the same length, in characters, have no longer one.

    A model that agrees with people no more than this reads places or lengths.
    """

    labels = (FIRST, SECOND)

    def __init__(self, rule: RuleName) -> None:
        self.rule = self.name = rule
        self.version = digest_json(self.describe())

    def describe(self) -> dict[str, object]:
        """Return what verdicts depend on beside the question."""
        return {"kind": type(self).__name__, "rule": self.rule, "labels": list(self.labels)}

    async def judge(self, question: Question) -> Verdict | NoVerdict:
        """Return the verdict of the rule."""
        if not {FIRST, SECOND} <= set(question.texts):
            raise JudgeError(
                f"the rule {self.rule} needs a pair of answers", got=sorted(question.texts)
            )
        first, second = len(question.texts[FIRST]), len(question.texts[SECOND])
        if self.rule != "always_first" and first == second:
            return NoVerdict("undecided", "both answers are equally long", self.version)
        label = FIRST if self.rule == "always_first" or first > second else SECOND
        chances = {name: float(name == label) for name in self.labels}
        return Verdict(label, 1.0, chances, self.version)


def build_judge(
    config: JudgeConfig, model: Model | None, *, are_pairs: bool, cache: ReplyCache | None = None
) -> Judge:
    """Return the judge of a config; of pairs it sees one order at a time.

    Raises:
        JudgeError: if the prompt, the labels or the tag do not fit.
    """
    if config.rule is not None:
        return RuleJudge(config.rule)
    prompt = cast("JudgePrompt", config.find_prompt(are_pairs=are_pairs))
    assert model is not None
    labels = config.list_labels(are_pairs=are_pairs)
    shared: dict[str, Any] = {"labels": labels, "name": config.title, "cache": cache}
    shared["settings"] = config.settings
    if config.kind == "generative":
        tag = config.tag or ("better" if are_pairs else "true_false")
        return GenerativeJudge(model, prompt, tag=tag, sampling=config.sampling, **shared)
    texts = _OPTION_TEXTS[config.language] if are_pairs else {}
    option_texts = [texts.get(label, label) for label in labels]
    return LogitJudge(
        model, prompt, option_texts=option_texts, swap_options=not are_pairs, **shared
    )
