"""The stages ``baselines``, ``evaluate`` and ``report``; and a finished policy on other data.

What comes of other labelled data is a folder like that of a run, without weights, so that
``compare`` and ``export`` read it as they read a run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise import core
from groupwise.core import ConfigError, DataError, Example, GroupwiseError, RunError, Say
from groupwise.data.audit import DataAudit, find_seen, list_near_examples, write_audit
from groupwise.data.examples import DropLog, read_splits
from groupwise.evaluation import metrics as measuring
from groupwise.evaluation import predictions as predicting
from groupwise.evaluation.metrics import Metric, PairedComparison
from groupwise.evaluation.predictions import (
    METRIC_VERSIONS,
    NEAR_DUPLICATE,
    Measure,
    Policies,
    Prediction,
    Prompts,
    RunPolicy,
    write_predictions,
)
from groupwise.evaluation.report.page import Section, Table, describe_metric, write_sections
from groupwise.evaluation.report.phrases import DASH, LANGUAGES, Phrases, format_plain
from groupwise.evaluation.report.run import write_report
from groupwise.evaluation.results import Conditions, record_look
from groupwise.inference.model import Sampling
from groupwise.models.base_model import find_weights, open_processor
from groupwise.models.identity import digest_base, digest_weights, is_adapter, read_base
from groupwise.models.prompts import render_prompt, show_written
from groupwise.models.tokenizing import find_tokenizer
from groupwise.run.asking import (
    BASE,
    Temperature,
    ask_policy,
    calibrate_policies,
    draw_items,
    open_policy,
    predict_each,
    read_again,
    temper,
)
from groupwise.run.predict import FinishedRun
from groupwise.run.steps import StepContext, mark_done

if TYPE_CHECKING:
    from groupwise.run.task import Task

_PHRASES = Path(__file__).with_name("phrases.yaml")
_LEFT_BY_TRAINING = (
    *("step.json", "metrics.jsonl", "on_policy.json", "judge.json", "resolved.json"),
    *("selection.json", "trainable.json", "warnings.json"),
)


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
        files["warmup"] = {
            "digest": core.digest_file(warmup),
            "num_rows": len(core.read_jsonl(warmup)),
        }
    return Conditions(
        data={**files, **{name: describe_examples(rows) for name, rows in splits.items()}},
        prompts={name: digest_prompts(rows) for name, rows in splits.items()},
        template=core.digest_json(processor.chat_template),
        tokenizer=core.digest_json(tokenizer.backend_tokenizer.to_str()),
        base_weights=_digest_start(base),
        decoding=core.dump_config(Sampling(max_new_tokens=config.grpo.max_new_tokens)),
        parser=task.describe_parser(config),
        metrics=METRIC_VERSIONS,
        measures=tuple(task.list_measures(config)),
    )


def describe_examples(examples: Sequence[Example]) -> dict[str, Any]:
    """Return digest, rows and clusters of examples, in the order they are used."""
    return {
        "digest": core.digest_json([[example.id, example.cluster] for example in examples]),
        "num_rows": len(examples),
        "num_clusters": len({example.cluster for example in examples}),
    }


def digest_prompts(examples: Iterable[Example]) -> str:
    """Return the digest of the messages of every item; the order of items does not count."""
    return core.digest_json(
        sorted([e.id, *(f"{turn.role}: {turn.text}" for turn in e.prompt)] for e in examples)
    )


def _digest_start(base: str | Path) -> str | None:
    """Return the digest of what training starts from: of an adapter, with its base."""
    folder = find_weights(base)
    own = digest_weights(folder)
    return core.digest_json([own, _digest_start(read_base(folder))]) if is_adapter(folder) else own


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
    found = predicting.read_predictions(context.output_of("baselines") / "predictions.jsonl")

    core.write_json(context.folder / "verbs.json", task.list_verbs())
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
    """Write the files of an evaluation: scored items, metrics, comparisons, conditions.

    Comparisons are by what heads the report, then by further measures. Each policy is held against
    the last one, what was trained before it first. P-values are adjusted within each measure.
    """
    config, seed = context.config, context.config.seed
    found = task.complete(config, context, predictions, test)
    found, marked = predicting.mark_items(found, marks)
    slices = (*list_slices(task, test), *marked)
    metrics = measuring.compute_metrics(
        found, labels=task.parser(config).labels, seed=seed, slices=slices
    )
    # Baselines that did not answer are left out; where nothing has a picture, none is blind to it.
    names = {one.policy for one in found}
    absent = () if any(example.pictures for example in test) else ("picture",)
    asked = [
        replace(one, blind_to=tuple(what for what in one.blind_to if what not in absent))
        for one in policies
        if one.name in names or one.kind != "baseline"
    ]
    *rivals, last = (one for one in policies if one.name in names)
    kinds = ("trained", "prompted", "baseline")
    pairs = [(one.name, last.name) for kind in kinds for one in rivals if one.kind == kind]
    own = task.list_measures(config)
    headline = predicting.choose_headline(measuring.list_measures(found), own).name
    comparisons: list[PairedComparison] = []
    for measure in dict.fromkeys((headline, *task.list_compared(config))):
        has_it = {one.policy for one in found if measure in (headline, *one.scores)}
        known = [pair for pair in pairs if {*pair} <= has_it]
        comparisons += measuring.compare_pairs(
            found, known, split="test", seed=seed, measure=measure
        )
    # Empty where nothing says how the model sees a prompt.
    tokenizer = find_tokenizer(task.find_base(config, context.run))
    shown = "" if tokenizer is None else show_written(render_prompt(tokenizer, test[0]))
    write_evaluation(
        context.folder,
        found,
        metrics=metrics,
        comparisons=comparisons,
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
    measuring.write_metrics(folder / "metrics.json", metrics)
    measuring.write_metrics(folder / "comparisons.json", comparisons)
    core.write_json(folder / "conditions.json", conditions.model_dump())
    predicting.write_policies(folder.parent, policies)
    core.write_json(folder / "prompts.json", asdict(prompts))
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
        and len({str(example.fields[name]) for example in test}) <= measuring.MAX_SLICES
    ]


def run_report(task: Task[Any], context: StepContext) -> None:
    """Write the report from the run's files."""
    del task
    write_report(context.run)


def collect_prompts(examples: Sequence[Example], shown: str = "") -> Prompts:
    """Return what is asked of examples; ``shown`` is the first prompt as the model sees it."""
    first = examples[0]
    pictures = tuple(picture.path.name for picture in first.pictures)
    turns = {
        one.id: predicting.shorten(one.prompt[-1].text, predicting.MAX_TEXT) for one in examples
    }
    return Prompts(first.id, predicting.shorten(shown, 6_000), pictures, turns)


def make_calibration_sections(
    predictions: Sequence[Prediction],
    temperatures: Mapping[str, Temperature],
    *,
    labels: Sequence[str],
    policies: Sequence[RunPolicy],
    seed: int,
) -> list[Section]:
    """Return what the report says of confidence before and after, by language."""
    before = [one for one in predictions if one.policy in temperatures]
    if not before:
        return []
    after: list[Prediction] = []
    for one in before:
        value, shares = temperatures[one.policy].value, one.probabilities
        if value is not None and shares is not None:
            one = replace(one, probabilities=temper(shares, value))
        after.append(one)
    errors: list[dict[str, Metric]] = []
    for rows in (before, after):
        found = measuring.compute_metrics(rows, labels=labels, seed=seed)
        errors.append({one.policy: one for one in found if one.measure == "ece"})
    num_items = len({one.example_id for one in before})
    columns = ("policy", "temperature", "fitted_on", "mistakes", "error_before", "error_after")
    sections: list[Section] = []
    for language in LANGUAGES:
        phrases = Phrases(language, policies=Policies(tuple(policies)), own=_PHRASES)
        shown: list[tuple[str, ...]] = []
        for name, one in temperatures.items():
            if one.value is None:
                reason = phrases.title("reasons", one.reason)
                value = f"{DASH}\n{phrases.say('why_none', reason=reason)}"
            else:
                value = format_plain(one.value)
            told = (describe_metric(error[name]) if name in error else DASH for error in errors)
            counts = str(one.num_items), str(one.num_mistakes)
            shown.append((phrases.title_policy(name), value, *counts, *told))
        lead = phrases.say("calibration_lead", num=num_items, split="test", dash=DASH)
        table = Table("", phrases.say_each(*columns), tuple(shown))
        sections.append(Section(phrases.say("calibration"), lead, (table,), language=language))
    return sections


@dataclass(frozen=True, slots=True)
class OtherData:
    """What was asked, and what is to be known of it."""

    num_rows: int  # rows found; those that are not dropped were asked
    drops: DropLog  # rows that are not used
    num_seen: int  # rows whose text or picture training showed
    audit: DataAudit  # of the training splits and these rows, which it calls ``test``


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labelled rows of other data, and the policy that is to be measured on them."""

    run: FinishedRun  # of the policy
    context: StepContext  # of the run's steps; ``folder`` is that of the new evaluation
    chain: tuple[RunPolicy, ...]  # the policy, behind those that it was trained from
    weights: str | Path  # its folder or hub id
    examples: Sequence[Example]  # all different
    drops: DropLog  # rows that are not used
    origin: Mapping[str, Any]  # what is asked, of what policy

    @property
    def num_rows(self) -> int:
        """Number of rows that were found."""
        return len(self.examples) + self.drops.total

    def keep_audit(self, audit: DataAudit) -> None:
        """Write the audit of the training splits and these rows, its split ``test``."""
        folder = self.context.folder.parent / "audit"
        write_audit(audit, folder)
        mark_done(folder)

    def describe(self, metrics: Sequence[Metric], *, num_seen: int) -> list[Section]:
        """Return what was asked, of what policy, and what the run measured and this does not."""
        path = self.context.run / "evaluate" / "metrics.json"
        before = measuring.read_metrics(path) if path.is_file() else ()
        # Not those of one label or a part of the items.
        left, measured = (
            {one.measure for one in some if "[" not in one.measure and ":" not in one.measure}
            for some in (before, metrics)
        )
        own = self.run.task.list_measures(self.context.config)
        known = [predicting.find_measure(name, own) for name in sorted(left - measured)]
        unknown = [one for one in known if one is not None]
        return describe_origin(self.origin, self.examples, num_seen=num_seen, unknown=unknown)


def describe_origin(
    origin: Mapping[str, Any],
    examples: Sequence[Example],
    *,
    num_seen: int,
    unknown: Sequence[Measure] = (),
) -> list[Section]:
    """Return what was asked, of what policy, and what these rows cannot tell, by language."""
    counts = {"rows": len(examples), "clusters": len({example.cluster for example in examples})}
    found: list[Section] = []
    for language in LANGUAGES:
        phrases = Phrases(language, own=_PHRASES)
        told = {**origin, **counts, "seen": phrases.say("seen_rows", num=num_seen)}
        if unknown:
            told["not_measured"] = phrases.join(map(phrases.name_measure, unknown))
        rows = tuple((phrases.title("origin", name), str(value)) for name, value in told.items())
        table = Table("", phrases.say_each("what", "which"), rows, kind="wrap")
        title, text = phrases.say_each("other_data", "other_data_lead")
        found.append(Section(title, text, (table,), language=language))
    return found


def evaluate_on(
    run: FinishedRun, data: Path, *, out: Path, policy: str | None = None, say: Say = lambda _: None
) -> OtherData:
    """Ask a policy about the labelled rows of other data; write what the run's evaluation writes.

    The same call continues after any end, and writes again what it is made of. ``data`` is a file
    or folder, as the recipe reads it; ``out`` a new folder, or that of the same evaluation;
    ``policy`` one of the run, or ``STEP/checkpoint-N``, None the main one. A ConfigError if there
    is no such file or the recipe reads no labelled rows, a DataError if no row can be used, a
    RunError if there is no such policy, ``out`` holds something else, or rows would be asked
    otherwise than the run's.
    """
    if not data.exists():
        raise ConfigError(f"there is no file or folder {data}")
    run.task.check_tools(run.config, run.folder)
    chain, weights = run.describe_policy(policy), run.find_policy(policy)
    origin = {
        "run": str(run.folder.resolve()),
        "policy": chain[-1].name,
        "weights": digest_base(weights),
        "data": str(data.resolve()),
    }
    _check_folder(out, origin)
    context = StepContext(
        run.folder, out / "evaluate", "evaluate", True, run.steps, say, config=run.config
    )
    with core.RunFolder(out).lock():
        is_new = not core.RunFolder(out).manifest_path.is_file()
        if is_new:
            _record(run, out, chain, origin)
        try:
            read, drops = run.task.read_labelled(run.config, context, data, out / "data")
            kept: dict[str, Example] = {}
            for one in read:
                if kept.setdefault(one.id, one) is not one:
                    drops.add("repeats another row", one.id)
            examples = list(kept.values())
            if not examples:
                raise DataError(f"{data} has no row that can be used", got=drops.counts)
        except GroupwiseError:
            if is_new:  # nothing but the lock, so that mended data may be evaluated here
                for path in out.iterdir():
                    if path.is_dir():
                        shutil.rmtree(path)
                    elif not path.name.startswith("."):
                        path.unlink()
            raise
        found = {**origin, "data_digest": describe_examples(examples)["digest"]}
        _check_folder(out, found)
        _record(run, out, chain, found)
        record_look(out, examples, is_continued=True)
        asked = Labelled(run, context, chain, weights, examples, drops, found)
        audit, num_seen = run.task.measure_labelled(asked)
        mark_done(context.folder)
        write_report(out)
    return OtherData(asked.num_rows, drops, num_seen, audit)


def measure_labelled(task: Task[Any], asked: Labelled) -> tuple[DataAudit, int]:
    """Ask a policy of the usual stages about other data, and measure it as its run does.

    Returns the audit, and the number of rows that training has seen.
    """
    from groupwise.run.training import audit_splits

    context, examples, chain = asked.context, asked.examples, asked.chain
    config = context.config
    train = read_splits(context.output_of(task.data_stage), "train", "validation")
    splits = {**train, "test": examples}
    audit = audit_splits(task, context, splits, drops=asked.drops, num_rows=asked.num_rows)
    audit = audit.add(task.find_in_settings(config))
    asked.keep_audit(audit)
    shown = task.show(config, context, examples)
    known = [one for rows in train.values() for one in rows]
    seen = find_seen(task.show(config, context, known), shown)

    def ask(name: str) -> list[Prediction]:
        policy = open_policy(config, asked.weights)
        return ask_policy(task, policy, examples, context, name=name)

    answers = predict_each([chain[-1].name], ask, folder=context.folder)
    near = list_near_examples(context.folder.parent / "audit", shown, split="test")
    listed = predicting.read_policies(asked.run.folder).listed
    measure_policies(
        task,
        context,
        [*task.predict_baselines(config, context, train["train"], examples), *answers],
        examples,
        policies=[*(one for one in listed if one.kind == "baseline"), *chain],
        marks={NEAR_DUPLICATE: near, predicting.SEEN: seen},
        describe=partial(asked.describe, num_seen=len(seen)),
    )
    return audit, len(seen)


def _check_folder(out: Path, origin: Mapping[str, Any]) -> None:
    """Refuse a folder with something else than an evaluation of the same policy on this data."""
    if not out.is_dir() or not any(not path.name.startswith(".") for path in out.iterdir()):
        return
    manifest = core.RunFolder(out).manifest_path
    known = core.read_manifest(manifest).get("evaluated") if manifest.is_file() else None
    if known is None:
        raise RunError(
            f"{out} has files that are no evaluation on other data", fix="use another --out"
        )
    changed = [name for name, value in origin.items() if known.get(name, value) != value]
    if changed:
        what = ", ".join(f"{name} {known.get(name)}" for name in changed)
        raise RunError(f"{out} holds another evaluation", got=what, fix="use another --out")


def _record(
    run: FinishedRun, out: Path, chain: Sequence[RunPolicy], origin: Mapping[str, Any]
) -> None:
    """Write the run's manifest with what is evaluated, and what its training steps recorded."""
    manifest = core.RunFolder(run.folder).read_manifest()
    shutil.copyfile(run.folder / "history.jsonl", out / "history.jsonl")
    kept = ("recipe", "config", "inputs", "seed", "plan", "effects", "other_packages")
    core.RunFolder(out).write_manifest(
        **{name: manifest[name] for name in kept},
        accepted=manifest["accepted_findings"],
        metric_versions=METRIC_VERSIONS,
        evaluated=origin,
    )
    for step in (one.step for one in chain if one.step):
        (out / step).mkdir(exist_ok=True)
        for path in (run.folder / step / name for name in _LEFT_BY_TRAINING):
            if path.is_file():
                shutil.copyfile(path, out / step / path.name)
