"""What ``--dry-run`` shows: rows as the model will see them, lengths, steps, memory, problems."""

from collections.abc import Mapping
from typing import Any

from groupwise.core import GroupwiseError
from groupwise.flow.preview_rows import Lengths, look_at_rows
from groupwise.flow.task import Estimate, Task
from groupwise.pipeline import Preview, PreviewTable
from groupwise.training import check_base, check_lengths, preview_grpo

_MOST_SOURCES = 10


def preview_run(task: Task[Any], config: Any) -> Preview:
    """Return what there is to say and show of a config without running it."""
    facts = [("model", config.model.base)]
    try:
        found = task.estimate(config)
    except GroupwiseError as error:
        return Preview(facts, [str(error)])
    shown, prompts, answers = look_at_rows(config, found)
    facts += [
        *found.facts,
        ("reward weights", task.describe_weights(config)),
        *_describe_sft(config, found),
        *_warn_of_long(answers, config.grpo.max_new_tokens),
    ]
    lengths = check_lengths(
        config.data.budget,
        config.grpo,
        tokens_per_prompt=prompts.longest,
        # Some long answers are truncated and counted; most must fit.
        tokens_per_answer=answers.longest if answers.median is None else answers.median,
    )
    more, training = preview_grpo(
        config.model,
        sft=config.sft,
        grpo=config.grpo,
        num_prompts=found.num_prompts,
        tokens_per_prompt=prompts.longest,
    )
    problems = check_base(config.model) if found.needs_base else []
    later = {"grpo" if config.sft is None else "sft": training, **found.later}
    if task.data_stage == "prepare":
        problems = [*lengths, *problems]
    else:
        later = {**later, task.data_stage: lengths}
    tables = [_list_sources(found.sources), _list_lengths(config, prompts, answers)]
    return Preview([*facts, *more], problems, later=later, shown=shown, tables=tables)


def _list_sources(sources: Mapping[str, Mapping[str, int]]) -> PreviewTable:
    rows = [
        (split, name, f"{count:,}", f"{count / sum(counts.values()):.1%}")
        for split, counts in sources.items()
        for name, count in _join_small(counts)
    ]
    return PreviewTable("Where rows come from", ("split", "source", "rows", "share"), rows)


def _join_small(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the sources by name; of very many the largest, and what the others have together."""
    by_size = sorted(counts, key=lambda name: (-counts[name], name))
    named, others = by_size[:_MOST_SOURCES], by_size[_MOST_SOURCES:]
    rows = [(name, counts[name]) for name in sorted(named)]
    together = (f"{len(others)} others", sum(counts[name] for name in others))
    return [*rows, together] if others else rows


def _list_lengths(config: Any, prompts: Lengths, answers: Lengths) -> PreviewTable:
    limits = {
        "prompt": (prompts, config.data.budget.max_prompt_tokens, "data.budget.max_prompt_tokens"),
        "answer": (answers, config.grpo.max_new_tokens, "grpo.max_new_tokens"),
    }
    rows = [
        (name, found.describe_median(), f"{found.longest:,}", f"{limit:,}", setting, found.how)
        for name, (found, limit, setting) in limits.items()
    ]
    return PreviewTable("Tokens", ("", "median", "longest", "limit", "set by", "counted"), rows)


def _warn_of_long(answers: Lengths, limit: int) -> list[tuple[str, str]]:
    if answers.longest <= limit:
        return []
    told = f"the longest answer has {answers.longest:,} tokens, and more than grpo.max_new_tokens"
    return [("warning", f"{told} ({limit:,}) are truncated")]


def _describe_sft(config: Any, found: Estimate) -> list[tuple[str, str]]:
    if config.sft is None:
        return []
    per_step = config.sft.batch_size * config.sft.gradient_accumulation
    num_steps = config.sft.epochs * found.num_sft_rows // per_step
    return [("sft steps", f"about {num_steps:,} on {found.num_sft_rows:,} rows per epoch")]
