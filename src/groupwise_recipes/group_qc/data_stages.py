"""The stages between groups and questions: photos looked at, and the rows of Stage B."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import (
    Example,
    Finding,
    Message,
    make_example,
    read_json,
    read_picture,
    report_places,
    write_json,
    write_jsonl,
)
from groupwise.data.audit import DataAudit, audit_data, find_near_pictures, write_audit
from groupwise.data.examples import DropLog, write_examples
from groupwise.models.base_model import open_token_counter
from groupwise.run.steps import StepContext
from groupwise.run.task import Task
from groupwise.run.training import build_base
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.groups import (
    GIVEN,
    SPLITS,
    TEACH,
    can_decode,
    find_root,
    has_pictures,
    read_groups,
)
from groupwise_recipes.group_qc.photos import PhotoGroup
from groupwise_recipes.group_qc.prompts import open_questions
from groupwise_recipes.group_qc.stage_a import count_failures, read_summaries
from groupwise_recipes.group_qc.stage_b import find_orders, make_group_rows, write_row
from groupwise_recipes.group_qc.teach import find_base
from groupwise_recipes.group_qc.words import Words


def run_audit(_: object, context: StepContext) -> None:
    """Audit the photos of the splits and stop the run on an error."""
    audit = audit_photos(context.config, context.output_of("prepare"))
    write_audit(audit, context.folder).refuse_errors()


def audit_photos(config: GroupQcConfig, prepared: Path) -> DataAudit:
    """Audit the groups of all splits by their photos: leakage, duplicates, balance, drops.

    A photo that cannot be decoded is counted here; its group fails in Stage A.
    """
    source, groups = read_json(prepared / "source.json", dict), read_groups(config, prepared)
    unreadable: list[str] = []
    splits = {
        name: [_show(group, unreadable, config) for group in groups[name]]
        for name in (TEACH, *SPLITS)
        if groups[name] or name not in (TEACH, "warmup")
    }
    audit = audit_data(
        splits,
        drops=DropLog.from_json(source["drops"]),
        num_rows=source["num_files"],
        near=find_near_pictures(splits, mirrored=config.data.mirror_invariant),
    )
    skipped = [f"{row['reason']}: {row['where']}" for row in source["skipped"]["rows"]]
    extra = {
        "unreadable_photos": (
            "{count} photos cannot be decoded; their photo groups will fail in Stage A.",
            unreadable,
        ),
        "label_conflicts": (
            "{count} group ids stand under pass and under fail; all are kept, apart.",
            source["conflicts"],
        ),
        "joined_groups": (
            "{count} group ids share photos with another one and are on its side.",
            source["joined"],
        ),
        "skipped_folders": ("{count} folders gave no photo group.", skipped),
    }
    return audit.add(
        finding
        for name, told in extra.items()
        for finding in report_places("info" if name == "joined_groups" else "warning", name, *told)
    )


def run_stage_b_data(task: Task[Any], context: StepContext) -> None:
    """Make Stage B's rows of the groups that have summaries, and check their lengths.

    A tiny random-init model that is not taught Stage A is built of these rows' words.
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
        build_base(task, context, has_warmup=config.sft is not None)
    audit = audit_data(
        {name: rows[name] for name in SPLITS if name != "warmup" or config.data.warmup_share},
        budget=config.data.budget,
        count_tokens=open_token_counter(find_base(config, context.run)),
    )
    audit = audit.add(report_orders(rows, config.words))
    write_audit(audit, context.folder).refuse_errors()


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


def _show(group: PhotoGroup, unreadable: list[str], config: GroupQcConfig) -> Example:
    """Return an example with the photos that can be decoded; drawn ones can, so are not tried."""
    photos = group.photos if has_pictures(config.data) else ()
    torn = [one for one in photos if config.data.root is not None and not can_decode(one)]
    unreadable += [f"{group.key}/{path.name}" for path in torn]
    return make_example(
        [Message("user", group.key)],
        cluster=group.group_id,
        pictures=[read_picture(path) for path in photos if path not in torn],
        label=config.words.find_verdict(group.label),
    )
