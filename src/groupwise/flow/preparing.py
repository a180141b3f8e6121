"""The stages ``prepare`` (splits, and a tiny base that is built here) and ``audit``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import (
    ROW_FIELD,
    ConfigError,
    DataError,
    EvaluationError,
    Example,
    derive_seed,
    read_json,
    write_json,
)
from groupwise.data.audit import DataAudit, audit_data, find_near_pictures, write_audit
from groupwise.data.examples import DropLog, read_splits, write_examples
from groupwise.evaluation.baselines import MAJORITY, Candidate, predict_joint
from groupwise.models.base_model import open_token_counter
from groupwise.models.tiny import write_tiny_policy
from groupwise.pipeline import StepContext

if TYPE_CHECKING:
    from groupwise.flow.task import Task


SPLITS = ("train", "validation", "test")


def run_prepare(task: Task[Any], context: StepContext) -> None:
    """Make the splits, and build the base where it is not a published one."""
    task.prepare(context.config, context.folder)
    build_base(task, context, has_warmup=True)
    drop_longer(task, context)


def run_prepare_without_warmup(task: Task[Any], context: StepContext) -> None:
    """Do the same where no warm-up follows."""
    task.prepare(context.config, context.folder)
    build_base(task, context, has_warmup=False)
    drop_longer(task, context)


def drop_longer(task: Task[Any], context: StepContext) -> None:
    """Leave rows over the budget out of the splits, counted, if ``data.budget`` says so."""
    config, folder = context.config, context.folder
    budget = config.data.budget
    if not budget.drop_longer:
        return
    if task.data_stage != "prepare":
        raise ConfigError(
            "data.budget.drop_longer is for rows that the stage prepare reads",
            got=f"splits that the stage {task.data_stage} makes",
            fix="leave it out, and set data.budget.allow_longer or a larger budget",
        )
    count = open_token_counter(
        task.find_base(config, context.run), max_pixels=config.model.max_pixels
    )
    source = read_json(folder / "source.json", dict)
    drops = DropLog.from_json(source["drops"])
    for split, rows in read_splits(folder, *SPLITS).items():
        sizes = {row.id: count(row) for row in rows}
        kept = [row for row in rows if sizes[row.id] <= budget.max_prompt_tokens]
        if not kept:
            raise DataError(
                f"every row of split {split} is longer than the budget",
                got=f"{min(sizes.values())} tokens and more",
                expected=f"at most {budget.max_prompt_tokens}",
                fix="raise data.budget.max_prompt_tokens",
            )
        for row in rows:
            if sizes[row.id] > budget.max_prompt_tokens:
                where = f"{row.fields.get(ROW_FIELD, row.id)} ({split}, {sizes[row.id]} tokens)"
                drops.add("longer than data.budget.max_prompt_tokens", where)
        write_examples(folder / f"{split}.jsonl", kept)
    write_json(folder / "source.json", {**source, "drops": drops.to_json()})


def build_base(task: Task[Any], context: StepContext, *, has_warmup: bool) -> None:
    """Write the tiny model, its tokenizer trained on the words of the warm-up and GRPO splits."""
    config, folder = context.config, context.folder
    if not config.model.is_tiny:
        return
    examples = read_splits(folder, "train")["train"]
    targets = [example.label for example in examples if example.label is not None]
    if has_warmup:
        rows = task.warmup(config, folder)(0)
        examples = [row.example for row in rows] + examples
        targets = [row.target for row in rows]
    texts = [message.text for example in examples for message in example.prompt]
    base = write_tiny_policy(
        config.model.base,
        folder / "base",
        seed=derive_seed(config.seed, "base"),
        texts=[*texts, *targets],
        max_pixels=config.model.max_pixels,
        looks_back=task.looks_back,
    )
    task.pretrain(context, base)


def run_audit(task: Task[Any], context: StepContext) -> None:
    """Audit the splits and stop the run on an error."""
    prepared = context.output_of(task.data_stage)
    source = read_json(prepared / "source.json", dict)
    splits = read_splits(prepared, *SPLITS)
    drops = DropLog.from_json(source["drops"])
    audit = audit_splits(task, context, splits, drops=drops, num_rows=source["num_rows"])
    audit = audit.add(task.find_in_settings(context.config))
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
    """Return what is found in splits, the last of which is measured."""
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


def rate_baselines(task: Task[Any], config: Any, run: Path) -> dict[str, float]:
    """Return the share of training examples that simple models get right, by their names.

    Each example is answered by models that have seen nothing of its cluster. The test split is not
    looked at, so this may be asked as often as one likes. ``run`` has the outputs of the data
    stages. A ConfigError if answers are no labels, an EvaluationError if the training labels do
    not differ or are of one cluster.
    """
    from groupwise.flow.probing import Probes

    if not task.parser(config).labels:
        raise ConfigError("the baselines are rated where answers are labels")
    uses = tuple(dict.fromkeys(("prepare", task.data_stage)))
    context = StepContext(run, run / "audit", "audit", is_resumed=False, uses=uses, config=config)
    train = task.show(config, context, read_splits(run / task.data_stage, "train")["train"])
    counts = Counter(str(example.label) for example in train)
    probes = Probes(config, task.find_base(config, run), context, train)
    seen: Any = {"suggest": task.joint_candidates, "read": task.read, "embed": probes}
    ranked: list[Candidate] = []
    predict_joint(train, (), split="train", seed=config.seed, record=ranked.extend, **seen)
    if not ranked:
        raise EvaluationError("the joint baseline needs two clusters to learn from", got=1)
    return {
        **{one.name: one.accuracy for one in ranked},
        MAJORITY.name: max(counts.values()) / len(train),
    }
