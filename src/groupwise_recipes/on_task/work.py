"""The work of each step of the recipe, by its name."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from groupwise.core import report_places
from groupwise.data import DropLog, audit_data, find_near_pictures, read_examples, write_audit
from groupwise.evaluation import write_report
from groupwise.models import open_token_counter
from groupwise.pipeline import StepContext
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.measure import run_baselines, run_evaluation
from groupwise_recipes.on_task.policies import (
    build_base,
    find_base,
    run_grpo,
    run_same_labels,
    run_sft,
)
from groupwise_recipes.on_task.screens import describe_sources, prepare_screens, show_warmup

_SPLITS = ("train", "validation", "test")


def run_prepare(config: OnTaskConfig, context: StepContext) -> None:
    """Make the splits and, for a preset, the untrained policy."""
    prepare_screens(config, context.folder)
    build_base(config, context.folder)


def run_audit(config: OnTaskConfig, context: StepContext) -> None:
    """Audit the splits and stop the run on an error.

    Raises:
        DataError: naming every error that was found.
    """
    prepared = context.output_of("prepare")
    source = json.loads((prepared / "source.json").read_text(encoding="utf-8"))
    drops = DropLog()
    for row in source["drops"]["rows"]:
        drops.add(row["reason"], row["where"])
    splits = {split: read_examples(prepared / f"{split}.jsonl") for split in _SPLITS}
    warmup = {"warmup": show_warmup(prepared)} if config.data.warmup_share else {}
    audit = audit_data(
        splits,
        drops=drops,
        num_rows=source["num_rows"],
        budget=config.data.budget,
        count_tokens=open_token_counter(
            find_base(config, context.run), max_pixels=config.model.max_pixels
        ),
        near=find_near_pictures({**warmup, **splits}, mirrored=config.data.mirror_invariant),
    )
    found = report_places(
        "info", "sources", "Screens come from:", describe_sources(source["sources"])
    )
    audit = replace(audit, findings=(*audit.findings, *found))
    write_audit(audit, context.folder)
    audit.refuse_errors()


def run_report(config: OnTaskConfig, context: StepContext) -> None:
    """Write the report from the run's files."""
    write_report(context.run)


WORK: Mapping[str, Callable[[OnTaskConfig, StepContext], None]] = {
    "prepare": run_prepare,
    "audit": run_audit,
    "baselines": run_baselines,
    "sft": run_sft,
    "grpo": run_grpo,
    "sft_same_labels": run_same_labels,
    "evaluate": run_evaluation,
    "report": run_report,
}
