"""Judges among the rewards: asked while GRPO trains, and only looked at by the audit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from groupwise.core import Completion, Example, Score, digest_json
from groupwise.inference.model import Model
from groupwise.inference.opening import open_model
from groupwise.judges import ModelJudge, Question, ReplyCache, build_judge
from groupwise.rewards import Fluency, Judged
from groupwise_recipes.task.config import JudgePart, TaskConfig


class Judges(dict[str, ModelJudge]):
    """The judges of a training by the names of their rewards, and the base that reads answers."""

    fluency: Fluency | None = None

    def report(self) -> dict[str, Any]:
        """Return what all of them counted together, and each of them."""
        reports = {name: judge.report() for name, judge in self.items()}
        found = cast("list[dict[str, Any]]", list(reports.values()))
        num_questions = sum(one["num_questions"] for one in found)
        num_silent = sum(sum(one["no_verdicts"].values()) for one in found)
        return {
            "judge": ", ".join(reports),
            "version": digest_json({name: judge.version for name, judge in self.items()}),
            "num_questions": num_questions,
            "no_verdict_rate": num_silent / num_questions if num_questions else None,
            "judges": reports,
        }


def list_judged(config: TaskConfig) -> dict[str, JudgePart]:
    """Return the rewards that a judge gives."""
    return {name: part for name, part in config.rewards.items() if isinstance(part, JudgePart)}


def digest_prompts(config: TaskConfig) -> Mapping[str, str]:
    """Return digests of the judges' prompts by their setting."""
    prompts = {
        name: p.judge.find_prompt(are_pairs=False) for name, p in list_judged(config).items()
    }
    return {f"rewards.{name}.judge.prompt": one.digest for name, one in prompts.items() if one}


def open_judges(config: TaskConfig, folder: Path) -> Judges:
    """Load the models, or make ready to ask their servers; replies are kept in ``folder``."""
    parts = list_judged(config)
    cache = ReplyCache(folder / "judge.sqlite") if parts else None
    return Judges(
        {
            name: make_judge(part, open_model(part.judge), cache=cache)
            for name, part in parts.items()
        }
    )


def make_judge(
    part: JudgePart, responder: Model | None = None, *, cache: ReplyCache | None = None
) -> ModelJudge:
    """Return a judge; without a responder it can only be looked at."""
    settings = part.judge.model_copy(update={"labels": tuple(part.scale)})
    unasked = cast("Model", object())
    judge = build_judge(settings, responder or unasked, are_pairs=False, cache=cache)
    return cast("ModelJudge", judge)


def make_judged(part: JudgePart, judge: ModelJudge, config: TaskConfig) -> Judged:
    """Return the reward; what is no answer earns nothing and is not asked about."""

    def ask(example: Example, completion: Completion) -> Question | Score:
        found = config.answer.parse(completion.text, example)
        if found.label is None:
            return Score(0.0, found.reason, invalid=True)
        texts = {
            **{name: str(value) for name, value in example.fields.items()},
            "question": example.prompt[-1].text,
            "reference": str(example.label),
            "answer": completion.text,
        }
        return Question(texts, example.pictures if part.pictures else ())

    return Judged(judge, ask=ask, pay=part.scale)
