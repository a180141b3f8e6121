"""A finished policy on other labelled data: asked, measured and reported as its run was.

What comes of it is a folder like that of a run, without weights, so that ``compare``
and ``export`` read it as they read a run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise import core
from groupwise.core import ConfigError, DataError, Example, GroupwiseError, RunError, Say
from groupwise.data.audit import DataAudit, find_seen, list_near_examples, write_audit
from groupwise.data.examples import DropLog, read_splits
from groupwise.evaluation.metrics import Metric, read_metrics
from groupwise.evaluation.predictions import (
    METRIC_VERSIONS,
    NEAR_DUPLICATE,
    SEEN,
    Measure,
    Prediction,
    RunPolicy,
    find_measure,
    read_policies,
)
from groupwise.evaluation.report.page import Section, Table
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases
from groupwise.evaluation.report.run import write_report
from groupwise.evaluation.results import record_look
from groupwise.models.identity import digest_base
from groupwise.run.asking import ask_policy, open_policy, predict_each
from groupwise.run.evaluating import describe_examples, measure_policies
from groupwise.run.predict import FinishedRun
from groupwise.run.steps import StepContext, mark_done
from groupwise.run.training import audit_splits

if TYPE_CHECKING:
    from groupwise.run.task import Task


_PHRASES = Path(__file__).with_name("phrases.yaml")
_LEFT_BY_TRAINING = (
    *("step.json", "metrics.jsonl", "on_policy.json", "judge.json", "resolved.json"),
    *("selection.json", "trainable.json", "warnings.json"),
)


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
        before = read_metrics(path) if path.is_file() else ()
        # Not those of one label or a part of the items.
        left, measured = (
            {one.measure for one in some if "[" not in one.measure and ":" not in one.measure}
            for some in (before, metrics)
        )
        own = self.run.task.list_measures(self.context.config)
        known = [find_measure(name, own) for name in sorted(left - measured)]
        unknown = [one for one in known if one is not None]
        return describe_origin(self.origin, self.examples, num_seen=num_seen, unknown=unknown)


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
        run=run.folder,
        folder=out / "evaluate",
        name="evaluate",
        is_resumed=True,
        uses=run.steps,
        say=say,
        config=run.config,
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

    Returns:
        The audit, and the number of rows that training has seen.
    """
    context, examples, chain = asked.context, asked.examples, asked.chain
    config = context.config
    train = read_splits(context.output_of(task.data_stage), "train", "validation")
    splits = {**train, "test": examples}
    audit = audit_splits(task, context, splits, drops=asked.drops, num_rows=asked.num_rows)
    audit = audit.add(task.find_in_settings(config))
    asked.keep_audit(audit)
    known = [one for rows in train.values() for one in rows]
    shown = task.show(config, context, examples)
    seen = find_seen(task.show(config, context, known), shown)

    def ask(name: str) -> list[Prediction]:
        policy = open_policy(config, asked.weights)
        return ask_policy(task, policy, examples, context, name=name)

    answers = predict_each([chain[-1].name], ask, folder=context.folder)
    near = list_near_examples(context.folder.parent / "audit", shown, split="test")
    listed = read_policies(asked.run.folder).listed
    measure_policies(
        task,
        context,
        [*task.predict_baselines(config, context, train["train"], examples), *answers],
        examples,
        policies=[*(one for one in listed if one.kind == "baseline"), *chain],
        marks={NEAR_DUPLICATE: near, SEEN: seen},
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
