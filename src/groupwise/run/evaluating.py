"""The stages ``baselines``, ``evaluate`` and ``report``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import Example, digest_file, digest_json, dump_config, read_jsonl, write_json
from groupwise.data.audit import list_near_examples
from groupwise.data.examples import read_splits
from groupwise.evaluation.metrics import (
    MAX_SLICES,
    Metric,
    PairedComparison,
    compare_pairs,
    compute_metrics,
    list_measures,
    write_metrics,
)
from groupwise.evaluation.predictions import (
    MAX_TEXT,
    METRIC_VERSIONS,
    NEAR_DUPLICATE,
    Prediction,
    Prompts,
    RunPolicy,
    choose_headline,
    mark_items,
    read_predictions,
    shorten,
    write_policies,
    write_predictions,
)
from groupwise.evaluation.report.page import Section, write_sections
from groupwise.evaluation.report.run import write_report
from groupwise.evaluation.results import Conditions, record_look
from groupwise.inference.model import Sampling
from groupwise.models.base_model import find_weights, open_processor
from groupwise.models.identity import digest_weights, is_adapter, read_base
from groupwise.models.prompts import render_prompt, show_written
from groupwise.models.tokenizing import find_tokenizer
from groupwise.run.asking import ask_policy, draw_items, open_policy, predict_each, read_again
from groupwise.run.calibrating import calibrate_policies, make_calibration_sections
from groupwise.run.predict import BASE
from groupwise.run.steps import StepContext

if TYPE_CHECKING:
    from groupwise.run.task import Task


def describe_conditions(
    task: Task[Any], context: StepContext, test: Sequence[Example]
) -> Conditions:
    """Return the conditions of a run whose policies were asked about ``test``."""
    config, data = context.config, context.output_of(task.data_stage)
    splits = {**read_splits(data, "train", "validation"), "test": list(test)}
    warmup = data / "warmup.jsonl"
    base = task.find_base(config, context.run)
    processor = open_processor(base)
    tokenizer = getattr(processor, "tokenizer", processor)
    files: dict[str, dict[str, Any]] = {}
    if warmup.is_file():
        files["warmup"] = {"digest": digest_file(warmup), "num_rows": len(read_jsonl(warmup))}
    return Conditions(
        data={**files, **{name: describe_examples(rows) for name, rows in splits.items()}},
        prompts={name: digest_prompts(rows) for name, rows in splits.items()},
        template=digest_json(processor.chat_template),
        tokenizer=digest_json(tokenizer.backend_tokenizer.to_str()),
        base_weights=_digest_start(base),
        decoding=dump_config(Sampling(max_new_tokens=config.grpo.max_new_tokens)),
        parser=task.describe_parser(config),
        metrics=METRIC_VERSIONS,
        measures=tuple(task.list_measures(config)),
    )


def describe_examples(examples: Sequence[Example]) -> dict[str, Any]:
    """Return digest, rows and clusters of examples, in the order they are used."""
    return {
        "digest": digest_json([[example.id, example.cluster] for example in examples]),
        "num_rows": len(examples),
        "num_clusters": len({example.cluster for example in examples}),
    }


def digest_prompts(examples: Iterable[Example]) -> str:
    """Return the digest of the messages of every item; the order of items does not count."""
    return digest_json(
        sorted([e.id, *(f"{turn.role}: {turn.text}" for turn in e.prompt)] for e in examples)
    )


def _digest_start(base: str | Path) -> str | None:
    """Return the digest of what training starts from: of an adapter, with its base."""
    folder = find_weights(base)
    own = digest_weights(folder)
    return digest_json([own, _digest_start(read_base(folder))]) if is_adapter(folder) else own


def run_baselines(task: Task[Any], context: StepContext) -> None:
    """Predict without a policy, and with the untrained policy by prompting."""
    config = context.config
    splits = read_splits(context.output_of(task.data_stage), "train", "test")
    test = draw_items(splits["test"], config)
    found = task.predict_baselines(config, context, splits["train"], test)
    policy = open_policy(config, task.find_base(config, context.run))
    asked = ask_policy(task, policy, test, context, name="prompt")
    found += asked
    if task.reads_prompting:
        found += read_again(task, policy, test, asked, config)
    found += task.ask_rivals(config, context, policy, {**splits, "test": test})
    write_predictions(context.folder / "predictions.jsonl", found)


def run_evaluate(task: Task[Any], context: StepContext) -> None:
    """Ask every trained policy, and measure and compare all of them."""
    config = context.config
    splits = read_splits(context.output_of(task.data_stage), "test")
    test = draw_items(splits["test"], config)
    record_look(context.run, test, is_continued=context.is_resumed)
    found = read_predictions(context.output_of("baselines") / "predictions.jsonl")

    write_json(context.folder / "verbs.json", task.list_verbs())
    policies = task.policies(context)
    trained = {one.name: one.step for one in policies if one.kind == "trained" and one.step}

    def ask(name: str) -> list[Prediction]:
        policy = open_policy(config, context.output_of(trained[name]) / "policy")
        return ask_policy(task, policy, test, context, name=name)

    found += predict_each(trained, ask, folder=context.folder)
    shown = task.show(config, context, test)
    near = list_near_examples(context.output_of("audit"), shown, split="test")
    places = {BASE: task.find_base(config, context.run)}
    places |= {name: context.output_of(step) / "policy" for name, step in trained.items()}
    temperatures = calibrate_policies(task, context, places)
    measure_policies(
        task,
        context,
        found,
        test,
        policies=policies,
        marks={NEAR_DUPLICATE: near},
        describe=lambda _: make_calibration_sections(
            found,
            temperatures,
            labels=task.parser(config).labels,
            policies=policies,
            seed=config.seed,
        ),
    )


def measure_policies(
    task: Task[Any],
    context: StepContext,
    predictions: Sequence[Prediction],
    test: Sequence[Example],
    *,
    policies: Sequence[RunPolicy],
    marks: Mapping[str, Collection[str]],
    describe: Callable[[Sequence[Metric]], Sequence[Section]] = lambda _: (),
) -> None:
    """Write the files of an evaluation: scored items, metrics, comparisons, conditions."""
    config, seed = context.config, context.config.seed
    found = task.complete(config, context, predictions, test)
    found, marked = mark_items(found, marks)
    slices = (*list_slices(task, test), *marked)
    metrics = compute_metrics(found, labels=task.parser(config).labels, seed=seed, slices=slices)
    # Baselines that did not answer are left out; where nothing has a picture, none is blind to it.
    names = {one.policy for one in found}
    absent = () if any(example.pictures for example in test) else ("picture",)
    asked = [
        replace(one, blind_to=tuple(what for what in one.blind_to if what not in absent))
        for one in policies
        if one.name in names or one.kind != "baseline"
    ]
    # Empty where nothing says how the model sees a prompt.
    tokenizer = find_tokenizer(task.find_base(config, context.run))
    shown = "" if tokenizer is None else show_written(render_prompt(tokenizer, test[0]))
    write_evaluation(
        context.folder,
        found,
        metrics=metrics,
        comparisons=_compare(task, config, found, policies),
        conditions=describe_conditions(task, context, test),
        policies=asked,
        prompts=collect_prompts(test, shown),
        sections=(*describe(metrics), *task.describe(config, context, found, metrics, test)),
    )


def write_evaluation(
    folder: Path,
    predictions: Sequence[Prediction],
    *,
    metrics: Sequence[Metric],
    comparisons: Sequence[PairedComparison],
    conditions: Conditions,
    policies: Sequence[RunPolicy],
    prompts: Prompts,
    sections: Sequence[Section] = (),
) -> None:
    """Write the files that reports, comparisons and the fairness gate look for.

    ``folder`` is the stage's in the run folder; ``predictions`` of all policies and ``policies``
    are in the order of reports; ``sections`` are what the recipe adds to the report.
    """
    write_predictions(folder / "predictions.jsonl", predictions)
    write_metrics(folder / "metrics.json", metrics)
    write_metrics(folder / "comparisons.json", comparisons)
    write_json(folder / "conditions.json", conditions.model_dump())
    write_policies(folder.parent, policies)
    write_json(folder / "prompts.json", asdict(prompts))
    if sections:
        write_sections(folder / "sections.json", sections)


def list_slices(task: Task[Any], test: Sequence[Example]) -> list[str]:
    """Return the fields that measures are told by: every item has them, and they have few values.

    Where data have more relations than a table can show, the run goes on without that table.
    """
    return [
        name
        for name in task.slices
        if all(name in example.fields for example in test)
        and len({str(example.fields[name]) for example in test}) <= MAX_SLICES
    ]


def run_report(task: Task[Any], context: StepContext) -> None:
    """Write the report from the run's files."""
    del task
    write_report(context.run)


def collect_prompts(examples: Sequence[Example], shown: str = "") -> Prompts:
    """Return what is asked of examples; ``shown`` is the first prompt as the model sees it."""
    first = examples[0]
    pictures = tuple(picture.path.name for picture in first.pictures)
    turns = {one.id: shorten(one.prompt[-1].text, MAX_TEXT) for one in examples}
    return Prompts(first.id, shorten(shown, 6_000), pictures, turns)


def _compare(
    task: Task[Any], config: Any, predictions: Sequence[Prediction], policies: Sequence[RunPolicy]
) -> list[PairedComparison]:
    """Return the comparisons by what heads the report, then by further measures.

    Each policy is held against the last one, what was trained before it first. P-values are
    adjusted within each measure.
    """
    names = {one.policy for one in predictions}
    *rivals, last = (one for one in policies if one.name in names)
    kinds = ("trained", "prompted", "baseline")
    pairs = [(one.name, last.name) for kind in kinds for one in rivals if one.kind == kind]
    headline = choose_headline(list_measures(predictions), task.list_measures(config)).name
    found: list[PairedComparison] = []
    for measure in dict.fromkeys((headline, *task.list_compared(config))):
        has_it = {one.policy for one in predictions if measure in (headline, *one.scores)}
        known = [pair for pair in pairs if {*pair} <= has_it]
        found += compare_pairs(predictions, known, split="test", seed=config.seed, measure=measure)
    return found
