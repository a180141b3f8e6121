"""Building the judge of a config: its prompt, its model and the judge itself."""

from pathlib import Path
from typing import Any

from groupwise.core import JudgeError, digest_json
from groupwise.inference.opening import ResponderSettings, open_responder
from groupwise.inference.responder import Responder
from groupwise.judge_calibration.asking import list_askings
from groupwise.judge_calibration.config import JudgeConfig, RuleName
from groupwise.judge_calibration.rated import RatedItems
from groupwise.judges import (
    GenerativeJudge,
    Judge,
    JudgePrompt,
    LogitJudge,
    NoVerdict,
    Question,
    ReplyCache,
    Verdict,
    load_prompt,
)

FIRST, SECOND = "first", "second"


class RuleJudge:
    """Decides pairs by a rule; two answers of the same length have no longer one.

    Its figures are known beforehand, so they check the measuring.

    Args:
        rule: ``always_first``, ``longer`` or ``shorter`` (in characters).
    """

    def __init__(self, rule: RuleName) -> None:
        self.rule: RuleName = rule
        self.name = rule
        self.labels = (FIRST, SECOND)
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
        label = self._choose(len(question.texts[FIRST]), len(question.texts[SECOND]))
        if label is None:
            return NoVerdict("undecided", "both answers are equally long", self.version)
        chances = {name: float(name == label) for name in self.labels}
        return Verdict(label, 1.0, chances, self.version)

    def _choose(self, first: int, second: int) -> str | None:
        """Return the side for two lengths in characters."""
        if self.rule == "always_first":
            return FIRST
        if first == second:
            return None
        return FIRST if (first > second) == (self.rule == "longer") else SECOND


_PROMPTS = {
    ("logit", True): "pair_choice",
    ("logit", False): "correct_choice",
    ("generative", True): "pair",
    ("generative", False): "correct",
}
_OPTIONS = "options"
_OPTION_TEXTS = {
    "en": {FIRST: "the first answer", SECOND: "the second answer", "tie": "neither"},
    "zh": {FIRST: "第一个回答", SECOND: "第二个回答", "tie": "不分高下"},
}


def find_prompt(config: JudgeConfig, *, are_pairs: bool) -> JudgePrompt | None:
    """Return the prompt of a judge, None for a rule.

    Raises:
        JudgeError: if there is no such prompt.
    """
    if config.kind == "rule":
        return None
    name = config.prompt or _PROMPTS[config.kind, are_pairs]
    is_file = name.endswith(".txt")
    return load_prompt(Path(name) if is_file else name, language=config.language)


def check_prompt(prompt: JudgePrompt | None, rated: RatedItems) -> None:
    """Refuse a prompt with a place that an item has no text for."""
    needed = set(prompt.places if prompt is not None else ()) - {_OPTIONS}
    askings = list_askings(rated)
    lacking = sorted({name for one in askings for name in needed - set(one.question.texts)})
    if prompt is not None and lacking:
        num_items = len({one.item.id for one in askings if needed - set(one.question.texts)})
        raise JudgeError(
            f"{num_items} item(s) have no text for the prompt {prompt.name!r}",
            got="no " + ", ".join(lacking),
            fix="give it in the data, or choose another prompt",
        )


def load_responder(config: JudgeConfig) -> Responder | None:
    """Load the model, or make ready to ask the server, of a judge; None for a rule.

    Raises:
        ModelError: if the model or the tokenizer cannot be loaded.
        ConfigError: if the server's key is not set.
    """
    if config.kind == "rule":
        return None
    return open_responder(
        ResponderSettings(
            model=config.model,
            server=config.server,
            tokenizer=config.tokenizer,
            dtype=config.dtype,
            batch_size=config.batch_size,
            device_map=config.device_map,
        )
    )


def build_judge(
    config: JudgeConfig,
    responder: Responder | None,
    *,
    are_pairs: bool,
    cache: ReplyCache | None = None,
) -> Judge:
    """Return the judge; of pairs it sees one order at a time.

    Raises:
        JudgeError: if the labels or the tag do not fit.
    """
    prompt = find_prompt(config, are_pairs=are_pairs)
    if config.rule is not None:
        return RuleJudge(config.rule)
    assert responder is not None
    assert prompt is not None
    shared: dict[str, Any] = {"name": config.title, "settings": config.settings, "cache": cache}
    labels = list_labels(config, are_pairs=are_pairs)
    if config.kind == "generative":
        tag = config.tag or ("better" if are_pairs else "true_false")
        return GenerativeJudge(
            responder, prompt, tag=tag, labels=labels, sampling=config.sampling, **shared
        )
    texts = _OPTION_TEXTS[config.language] if are_pairs else {}
    return LogitJudge(
        responder,
        prompt,
        labels=labels,
        option_texts=[texts.get(label, label) for label in labels],
        swap_options=not are_pairs,
        **shared,
    )


def list_labels(config: JudgeConfig, *, are_pairs: bool) -> tuple[str, ...]:
    """Return the labels of a judge's verdicts; rules know pairs only."""
    if config.kind == "rule":
        return (FIRST, SECOND)
    if config.labels is not None:
        return config.labels
    if not are_pairs:
        return ("True", "False")
    return (FIRST, SECOND, "tie") if config.kind == "generative" else (FIRST, SECOND)
