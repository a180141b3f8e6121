"""Judges of entailment: rules for the words of drawn scenes, a model for real text.

Both say one of five words: ``aligned``, or how the reasoning fails to entail the answer. Neither
sees the picture.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast, get_args

from groupwise.core import Example, digest_json
from groupwise.inference.model import Model
from groupwise.inference.opening import open_model
from groupwise.judges import (
    GenerativeJudge,
    Judge,
    NoVerdict,
    Question,
    ReplyCache,
    Verdict,
    load_prompt,
)
from groupwise_recipes.visual_reasoning.claims import read_claim
from groupwise_recipes.visual_reasoning.config import AlignmentSettings
from groupwise_recipes.visual_reasoning.entailment import Fault, judge_entailment
from groupwise_recipes.visual_reasoning.judge_reply import JudgeReply, read_reply
from groupwise_recipes.visual_reasoning.rows import TRUE

ALIGNED = "aligned"
FAULTS: tuple[Fault, ...] = get_args(Fault)
VERDICTS: tuple[str, ...] = (ALIGNED, *FAULTS)
"""What both judges can say."""
_PROMPTS = Path(__file__).parent / "prompts"


class RuleEntailment:
    """Judges reasoning about drawn scenes by ``judge_entailment``."""

    name = "rules for drawn scenes"
    labels = VERDICTS

    def __init__(self) -> None:
        self.version = digest_json(self.describe())

    def describe(self) -> Mapping[str, object]:
        """Return what verdicts depend on beside the question and the code."""
        return {"kind": type(self).__name__}

    async def judge(self, question: Question) -> Verdict | NoVerdict:
        """Return the verdict; none where no relation of two things is claimed."""
        texts = question.texts
        if read_claim(texts["statement"]) is None:
            return NoVerdict("undecided", "no relation of two things is claimed", self.version)
        found = judge_entailment(
            texts["statement"], texts["reasoning"], answer=texts["answer"] == TRUE
        )
        if found.aligns is None:
            return NoVerdict("undecided", found.why, self.version)
        label = found.type or ALIGNED
        chances = {name: float(name == label) for name in self.labels}
        return Verdict(label, 1.0, chances, self.version, reason=found.why)


class ModelEntailment(GenerativeJudge):
    """Asks a model for ``{aligns, type, why}``.

    Args:
        responder: what answers.
        settings: how it is asked.
        cache: where replies are kept.
    """

    def __init__(
        self, responder: Model, settings: AlignmentSettings, *, cache: ReplyCache | None = None
    ) -> None:
        super().__init__(
            responder,
            load_prompt(_PROMPTS / f"entailment.{settings.language}.txt"),
            labels=VERDICTS,
            sampling=settings.sampling,
            name="entailment judge",
            settings=settings.settings,
            cache=cache,
        )

    def read(self, said: str) -> str | None:
        """Return the verdict of a reply."""
        found = read_reply(said)
        return found and (found.type or ALIGNED)


REPLIES: Mapping[str, str] = {
    ALIGNED: JudgeReply(aligns=True, type=None, why="So it is.").model_dump_json(),
    **{
        fault: JudgeReply(aligns=False, type=fault, why="So it is.").model_dump_json()
        for fault in FAULTS
    },
}
"""The whole reply by which a model gives each verdict."""


def explain_verdict(verdict: Verdict) -> str:
    """Return why a judge decided so, in a sentence."""
    found = read_reply(verdict.reason)
    return verdict.reason if found is None else found.shown_why


def describe_verdict(verdict: Verdict | NoVerdict) -> dict[str, object]:
    """Return what a judge said as JSON values: ``aligns``, ``type`` and ``why``."""
    if isinstance(verdict, NoVerdict):
        return {"aligns": None, "type": None, "why": verdict.message}
    is_aligned = verdict.label == ALIGNED
    fault = None if is_aligned else verdict.label
    return {"aligns": is_aligned, "type": fault, "why": explain_verdict(verdict)}


def ask_about(example: Example, reasoning: str, answer: str) -> Question:
    """Return what a judge is asked about an answer to an example."""
    return Question(
        {
            "question": example.prompt[-1].text,
            "statement": str(example.fields.get("statement", "")),
            "reasoning": reasoning,
            "answer": answer,
        }
    )


def open_judge(settings: AlignmentSettings, folder: Path) -> Judge:
    """Return the judge that a config names; replies of a model are kept in a folder."""
    return RuleEntailment() if settings.model is None else open_model_judge(settings, folder)


def open_model_judge(settings: AlignmentSettings, folder: Path) -> ModelEntailment:
    """Return the model that judges, as ``open_judge`` does."""
    assert settings.model is not None
    cache = ReplyCache(folder / "entailment.sqlite", max_mib=256)
    return ModelEntailment(open_model(settings.model), settings, cache=cache)


def look_at_judge(settings: AlignmentSettings) -> Judge:
    """Return the judge that a config names; one with a model can only be looked at."""
    if settings.model is None:
        return RuleEntailment()
    return ModelEntailment(cast("Model", object()), settings)
