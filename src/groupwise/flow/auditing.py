"""The stage ``audit``: what a result on the splits can be trusted for."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.core import Example, read_json
from groupwise.data import DataAudit, DropLog, audit_data, find_near_pictures, write_audit
from groupwise.flow.task import Task, read_splits
from groupwise.models import open_token_counter
from groupwise.pipeline import StepContext

SPLITS = ("train", "validation", "test")


def run_audit(task: Task[Any], context: StepContext) -> None:
    """Audit the splits and stop the run on an error.

    Raises:
        DataError: naming every error that was found.
    """
    prepared = context.output_of(task.data_stage)
    source = read_json(prepared / "source.json", dict)
    splits = read_splits(prepared, *SPLITS)
    drops = DropLog.from_json(source["drops"])
    audit = audit_splits(task, context, splits, drops=drops, num_rows=source["num_rows"])
    audit = audit.add(task.find_in_data(context.config, prepared))
    write_audit(audit, context.folder)
    audit.refuse_errors()


def audit_splits(
    task: Task[Any],
    context: StepContext,
    splits: Mapping[str, Sequence[Example]],
    *,
    drops: DropLog,
    num_rows: int,
) -> DataAudit:
    """Return what is found in splits, the last of which is measured.

    Args:
        task: of the recipe.
        context: of a step that uses the data.
        splits: examples by split.
        drops: rows that are not used.
        num_rows: rows that were found.
    """
    config, prepared = context.config, context.output_of(task.data_stage)
    warmup = list(task.show_warmup(config, prepared))
    shown = {name: task.show(config, context, rows) for name, rows in splits.items()}
    return audit_data(
        splits,
        drops=drops,
        num_rows=num_rows,
        budget=config.data.budget,
        count_tokens=open_token_counter(
            task.find_base(config, context.run), max_pixels=config.model.max_pixels
        ),
        near=find_near_pictures(
            {**({"warmup": warmup} if warmup else {}), **shown},
            mirrored=config.data.mirror_invariant,
        ),
    )
