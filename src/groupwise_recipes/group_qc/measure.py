"""The baselines and evaluate steps: who misses defects, who is right, and where."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from groupwise.core import Example, ProgressLine, Say, write_json
from groupwise.data import list_near_examples, read_examples
from groupwise.evaluation import (
    Metric,
    Prediction,
    Section,
    compare_pairs,
    compute_metrics,
    mark_near_duplicates,
    predict_each,
    read_predictions,
    write_evaluation,
    write_predictions,
)
from groupwise.inference import LocalEngine, Sampling, time_answers
from groupwise.models import Policy
from groupwise.pipeline import StepContext
from groupwise_recipes.group_qc.baselines import predict_baselines
from groupwise_recipes.group_qc.conditions import TRAINED, describe_conditions
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import find_root, show_photos
from groupwise_recipes.group_qc.orders import try_orders
from groupwise_recipes.group_qc.policies import find_base, open_policy
from groupwise_recipes.group_qc.sections import make_sections
from groupwise_recipes.group_qc.verdicts import (
    FAIL,
    FALSE_ALARMS,
    MISSED,
    PASS,
    TWO_LINES,
    VERDICTS,
    parse_judgement,
)

SPLIT = "test"
COMPARED = (
    ("sft", "grpo"),
    ("sft_same_labels", "grpo"),
    ("prompt", "grpo"),
    ("majority", "grpo"),
    ("text_only", "grpo"),
    ("picture_only", "grpo"),
)


def run_baselines(config: GroupQcConfig, context: StepContext) -> None:
    """Predict without Stage B, and with the untrained base by prompting."""
    data = context.output_of("stage_b_data")
    prepared = context.output_of("prepare")
    train, test = (read_examples(data / f"{name}.jsonl") for name in ("train", SPLIT))
    shown = [show_photos(rows, config, prepared) for rows in (train, test)]
    found = predict_baselines(*shown, split=SPLIT, seed=config.seed)
    policy = open_policy(config, find_base(config, context.run))
    found += ask_policy(policy, test, config, name="prompt", say=context.say)
    write_predictions(context.folder / "predictions.jsonl", found)


def run_evaluation(config: GroupQcConfig, context: StepContext) -> None:
    """Ask every trained policy, and measure and compare all of them."""
    test = read_examples(context.output_of("stage_b_data") / f"{SPLIT}.jsonl")
    found = read_predictions(context.output_of("baselines") / "predictions.jsonl")

    def ask(name: str) -> list[Prediction]:
        policy = open_policy(config, context.output_of(name) / "policy")
        return ask_policy(policy, test, config, name=name, say=context.say)

    found += predict_each(TRAINED, ask, folder=context.folder)
    prepared = context.output_of("prepare")
    root = find_root(config, prepared)
    near = list_near_examples(
        context.output_of("audit"), show_photos(test, config, prepared), split=SPLIT
    )
    shown = [score_defects(show_group(one, root)) for one in found]
    found, slices = mark_near_duplicates(shown, near)
    metrics = compute_metrics(
        found, labels=VERDICTS, seed=config.seed, slices=("task_type", *slices)
    )
    missions = measure_missions(found, seed=config.seed)
    rows = {name: [asdict(metric) for metric in own] for name, own in missions.items()}
    write_json(context.folder / "missions.json", rows)
    write_evaluation(
        context.folder,
        found,
        metrics=metrics,
        comparisons=compare_pairs(found, COMPARED, split=SPLIT, seed=config.seed),
        conditions=describe_conditions(config, context, test),
        sections=describe_outcome(context, metrics, missions),
    )


def measure_missions(predictions: Sequence[Prediction], *, seed: int) -> dict[str, list[Metric]]:
    """Return every metric of every policy by mission."""
    missions = sorted({str(one.fields["task_type"]) for one in predictions})
    found: dict[str, list[Metric]] = {}
    for mission in missions:
        rows = [one for one in predictions if one.fields["task_type"] == mission]
        found[mission] = compute_metrics(rows, labels=VERDICTS, seed=seed)
    return found


def describe_outcome(
    context: StepContext, metrics: Sequence[Metric], missions: Mapping[str, Sequence[Metric]]
) -> list[Section]:
    """Return what the report says first: the numbers, and what steps before left."""
    text = (context.output_of("stage_b_data") / "failed.json").read_text(encoding="utf-8")
    trainable = context.output_of("grpo") / "trainable.json"
    return make_sections(metrics, missions, failed=json.loads(text), trainable=trainable)


def ask_policy(
    policy: Policy, examples: Sequence[Example], config: GroupQcConfig, *, name: str, say: Say
) -> list[Prediction]:
    """Ask a policy under greedy decoding; the first groups are asked one by one and timed."""
    sampling = Sampling(max_new_tokens=config.grpo.max_new_tokens)
    engine = LocalEngine(policy, batch_size=config.evaluation.batch_size)

    def ask(rows: Sequence[Example], **named: Any) -> list[str]:
        replies = engine.generate(rows, sampling=sampling, **named)
        return [found.text for [found] in replies]

    texts = ask(examples, report_progress=ProgressLine(f"groups judged by {name}", say))
    obeyed = try_orders(ask, examples, texts)
    shares = engine.label_probabilities(examples, labels=VERDICTS)
    latencies = time_answers(
        policy, examples, sampling=sampling, num_timed=config.evaluation.num_latency_items
    )
    answers = zip(examples, texts, shares, latencies, strict=True)
    found = [_predict(name, *row) for row in answers]
    return [replace(one, scores=own) for one, own in zip(found, obeyed, strict=True)]


def score_defects(one: Prediction) -> Prediction:
    """Return the prediction with what inspectors ask first: was a defect missed?

    ``missed_defects`` is known for groups that fail, ``false_alarms`` for those that pass. A
    group without a verdict is counted against the policy in either: nobody was told of the defect,
    and a sound group has to be looked at.
    """
    if one.label == FAIL:
        scores = {MISSED: float(one.predicted != FAIL)}
    else:
        scores = {FALSE_ALARMS: float(one.predicted != PASS)}
    if one.policy in (*TRAINED, "prompt"):
        scores[TWO_LINES] = float(parse_judgement(one.text).is_well_formed)
    return replace(one, scores={**one.scores, **scores})


def show_group(one: Prediction, root: Path) -> Prediction:
    """Return the prediction with what a reader needs to judge it: photos, and what was asked.

    Args:
        one: of a group of photos.
        root: folder of the photos.
    """
    summaries: Mapping[str, str] = one.fields["stage_a_summaries"]
    lines = "；".join(f"{key} {text}" for key, text in summaries.items())
    return replace(
        one,
        pictures=tuple(str(root / image) for image in one.fields["images"]),
        fields={**one.fields, "task": f"{one.fields['task_type']}：{lines}"},
    )


def _predict(
    name: str, example: Example, text: str, shares: dict[str, float], latency_s: float | None
) -> Prediction:
    reply = parse_judgement(text)
    return Prediction(
        example_id=example.id,
        group=example.group,
        split=SPLIT,
        policy=name,
        label=str(example.label),
        predicted=reply.verdict,
        reason=reply.problem if reply.verdict is None else "",
        text=text,
        probabilities=None if reply.verdict is None else shares,
        latency_s=latency_s,
        fields=dict(example.fields),
    )
