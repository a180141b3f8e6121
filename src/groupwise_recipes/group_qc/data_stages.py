"""The stages of data: groups, their photos looked at, and Stage B's rows."""

from collections.abc import Mapping, Sequence

from groupwise.core import Example, Finding, report_places, write_json, write_jsonl
from groupwise.data import audit_data, write_audit, write_examples
from groupwise.models import open_token_counter
from groupwise.pipeline import StepContext
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import SPLITS, find_root, prepare_groups, read_groups
from groupwise_recipes.group_qc.orders import find_orders
from groupwise_recipes.group_qc.photo_audit import audit_photos
from groupwise_recipes.group_qc.stage_a import count_failures, read_summaries
from groupwise_recipes.group_qc.stage_b import make_group_rows, write_row
from groupwise_recipes.group_qc.teach import find_base


def run_prepare(context: StepContext) -> None:
    """Find or draw the groups and split them."""
    prepare_groups(context.config, context.folder)


def run_audit(context: StepContext) -> None:
    """Audit the photos of the splits and stop the run on an error."""
    audit = audit_photos(context.config, context.output_of("prepare"))
    write_audit(audit, context.folder)
    audit.refuse_errors()


def run_stage_b_data(context: StepContext) -> None:
    """Make Stage B's rows of the groups that have summaries, and check their lengths.

    Raises:
        DataError: if a split has no rows left or rows are longer than the budget.
    """
    config: GroupQcConfig = context.config
    prepared, done = context.output_of("prepare"), context.output_of("summarize")
    missions = config.data.load_missions()
    summaries = read_summaries(done, missions)
    groups = read_groups(config, prepared)
    root = find_root(config, prepared)
    rows = {name: make_group_rows(groups[name], summaries, missions, root=root) for name in SPLITS}
    if not config.data.warmup_share:
        rows["warmup"] = rows["train"]
    for name, examples in rows.items():
        write_examples(context.folder / f"{name}.jsonl", examples)
        write_jsonl(context.folder / "rows" / f"{name}.jsonl", map(write_row, examples))
    write_json(context.folder / "failed.json", count_failures(done, missions))
    audit = audit_data(
        {name: rows[name] for name in SPLITS if name != "warmup" or config.data.warmup_share},
        budget=config.data.budget,
        count_tokens=open_token_counter(find_base(config, context.run)),
    )
    audit = audit.add(report_orders(rows))
    write_audit(audit, context.folder)
    audit.refuse_errors()


def report_orders(rows: Mapping[str, Sequence[Example]]) -> list[Finding]:
    """Return a warning about descriptions that read like orders, if there are any."""
    found = {
        f"{example.fields['group_id']}: {key} {example.fields['stage_a_summaries'][key]}"
        for examples in rows.values()
        for example in examples
        for key in find_orders(example.fields["stage_a_summaries"])
    }
    return report_places(
        "warning",
        "orders_in_descriptions",
        "{count} descriptions read like an order to the judge; look at their photos.",
        sorted(found),
    )
