"""The stages of data: groups, their photos looked at, and Stage B's rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.core import Example, Finding, report_places, write_json, write_jsonl
from groupwise.data import audit_data, write_audit, write_examples
from groupwise.flow import Task, build_base
from groupwise.models import open_token_counter
from groupwise.pipeline import StepContext
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import (
    GIVEN,
    SPLITS,
    find_root,
    prepare_groups,
    read_groups,
)
from groupwise_recipes.group_qc.orders import find_orders
from groupwise_recipes.group_qc.photo_audit import audit_photos
from groupwise_recipes.group_qc.prompts import open_questions
from groupwise_recipes.group_qc.stage_a import count_failures, read_summaries
from groupwise_recipes.group_qc.stage_b import make_group_rows, write_row
from groupwise_recipes.group_qc.teach import find_base
from groupwise_recipes.group_qc.words import Words


def run_prepare(_: object, context: StepContext) -> None:
    """Find or draw the groups and split them."""
    prepare_groups(context.config, context.folder)


def run_audit(_: object, context: StepContext) -> None:
    """Audit the photos of the splits and stop the run on an error."""
    audit = audit_photos(context.config, context.output_of("prepare"))
    write_audit(audit, context.folder)
    audit.refuse_errors()


def run_stage_b_data(task: Task[Any], context: StepContext) -> None:
    """Make Stage B's rows of the groups that have summaries, and check their lengths.

    A tiny random-init model that is not taught Stage A is built of these rows' words.

    Raises:
        DataError: if a split has no rows left or rows are longer than the budget.
    """
    config: GroupQcConfig = context.config
    prepared, questions = context.output_of("prepare"), open_questions(config)
    done = prepared / GIVEN if config.data.summaries else context.output_of("summarize")
    summaries = read_summaries(done, questions)
    groups, root = read_groups(config, prepared), find_root(config.data, prepared)
    rows = {name: make_group_rows(groups[name], summaries, questions, root=root) for name in SPLITS}
    if not config.data.warmup_share:
        rows["warmup"] = rows["train"]
    for name, examples in rows.items():
        write_examples(context.folder / f"{name}.jsonl", examples)
        write_jsonl(context.folder / "rows" / f"{name}.jsonl", map(write_row, examples))
    write_json(context.folder / "failed.json", count_failures(done, questions.missions))
    if config.teach is None:
        build_base(task, context, has_warmup=True)
    audit = audit_data(
        {name: rows[name] for name in SPLITS if name != "warmup" or config.data.warmup_share},
        budget=config.data.budget,
        count_tokens=open_token_counter(find_base(config, context.run)),
    )
    audit = audit.add(report_orders(rows, config.words))
    write_audit(audit, context.folder)
    audit.refuse_errors()


def report_orders(rows: Mapping[str, Sequence[Example]], words: Words) -> list[Finding]:
    """Return a warning about descriptions that read like orders, if there are any."""
    found = {
        f"{example.fields['group_id']}: {key} {example.fields['stage_a_summaries'][key]}"
        for examples in rows.values()
        for example in examples
        for key in find_orders(example.fields["stage_a_summaries"], words)
    }
    return report_places(
        "warning",
        "orders_in_descriptions",
        "{count} descriptions read like an order to the judge; look at their photos.",
        sorted(found),
    )
