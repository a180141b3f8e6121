"""The last stage of a round: both versions are asked, and a certificate says what that shows."""

from pathlib import Path
from typing import Any

from groupwise.core import Example, write_json
from groupwise.data.audit import find_seen
from groupwise.data.examples import read_examples, write_examples
from groupwise.evaluation.predictions import Prediction, read_predictions, write_predictions
from groupwise.feedback import FeedbackItem, read_items
from groupwise.learning.certificate import (
    CANDIDATE,
    FILE,
    SERVED,
    Certificate,
    compare_sessions,
    describe_labels,
    digest_steps,
    list_findings,
    measure,
    write_certificate,
)
from groupwise.learning.promotion import find_level, judge_candidate
from groupwise.learning.rows import LEARNED, ORIGIN, RowMaker, open_origin
from groupwise.run.asking import ask_policy, open_policy, predict_each
from groupwise.run.predict import name_version
from groupwise.run.steps import StepContext
from groupwise.run.task import Task

AUDITS = ("audit", "audit_rewards")


def decide(task: Task[Any], context: StepContext) -> None:
    """Ask both versions about the sessions that test, and write the certificate."""
    config, folder = context.config, context.folder
    examples, used = _list_asked(context)
    weights: dict[str, str | Path] = {
        SERVED: config.model.base,
        CANDIDATE: context.output_of("grpo") / "policy",
    }

    def ask(name: str) -> list[Prediction]:
        return ask_policy(task, open_policy(config, weights[name]), examples, context, name=name)

    answers = predict_each(weights if examples else (), ask, folder=folder)
    write_predictions(folder / "predictions.jsonl", answers)
    others = read_predictions(context.output_of("evaluate") / "predictions.jsonl")
    predictor = task.open_predictor(config, weights[CANDIDATE], context.run)
    promotion = judge_candidate(
        compare_sessions(answers),
        compare_sessions(others),
        level=find_level(config.candidate, config.level),
        margin=config.margin,
    )
    certificate = Certificate(
        candidate=config.candidate,
        served=config.served,
        version=name_version(predictor),
        loop_level=config.level,
        promotion=promotion,
        asked=measure(answers),
        held_out=measure(others),
        sides=config.data.sides,
        labels=describe_labels(read_items(context.output_of("prepare") / LEARNED), used),
        asked_file=context.inputs["data.asked"],
        findings={name: list_findings(context.output_of(name)) for name in AUDITS},
        steps=digest_steps(context.run, context.uses),
    )
    write_certificate(folder / FILE, certificate)


def _list_asked(context: StepContext) -> tuple[list[Example], list[FeedbackItem]]:
    """Return the questions of sessions that test; none was trained on, nor its picture."""
    data, folder = context.config.data, context.folder
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    maker = RowMaker(
        run=open_origin(data.origin),
        pictures=data.pictures,
        folder=pictures,
        sides=data.sides,
        side="tests",
    )
    rows = maker.make(read_items(data.asked))
    train = read_examples(context.output_of("prepare") / "train.jsonl")
    seen = find_seen(train, rows.examples)
    examples = [one for one in rows.examples if one.id not in seen]
    for one in rows.examples:
        if one.id in seen:
            rows.drops.add("training has seen its picture or text", f"answer {one.fields[ORIGIN]}")
    write_json(folder / "drops.json", rows.drops.to_json())
    write_examples(folder / "asked.jsonl", examples)
    kept = {one.fields[ORIGIN] for one in examples}
    return examples, [item for item in rows.used if item.shown.id in kept]
