"""What ``--dry-run`` shows: rows as the model will see them, lengths, steps, memory, problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from groupwise.core import Example, GroupwiseError, list_gpus, open_picture
from groupwise.flow.costs import Batch, Place, check_lengths, preview_grpo, preview_memory
from groupwise.flow.distributed import START, find_team
from groupwise.flow.settings import FlowConfig, find_batch
from groupwise.models.base_model import check_base
from groupwise.models.encoding import show_written
from groupwise.models.prompts import (
    TINY_TOKEN_SIDE,
    TOKEN_SIDE,
    estimate_picture_tokens,
    render_prompt,
)
from groupwise.models.sources import describe_base
from groupwise.models.tokenizing import find_tokenizer
from groupwise.pipeline import Preview, PreviewTable, ShownRow

if TYPE_CHECKING:
    from groupwise.flow.task import Estimate, Task


NUM_SHOWN = 3
_MOST_COUNTED, _MOST_LETTERS = 2_000, 2_000_000
_LETTERS_PER_TOKEN = 4
_MOST_SOURCES = 10


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts or answers."""

    median: int | None  # None where only the longest are estimated
    longest: int
    how: str  # they were counted, a clause
    example: Example | None = None  # the longest; None where there are only estimates


def look_at_rows(config: Any, found: Estimate) -> tuple[list[ShownRow], Lengths, Lengths]:
    """Return the first rows as the base sees them, and the lengths of prompts and answers.

    Rows are counted with the base's tokenizer where it is at hand, and otherwise estimated. Of
    very many or very long rows, every so-and-so-many-th is counted, and the longest text.
    """
    rows = found.rows
    if not rows:
        prompts, answers = found.tokens_per_prompt, found.tokens_per_answer
        return [], Lengths(None, prompts, "estimated"), Lengths(None, answers, "estimated")
    letters = [sum(len(turn.text) for turn in example.prompt) for example, _ in rows]
    step = max(-(-len(rows) // _MOST_COUNTED), -(-sum(letters) // _MOST_LETTERS))
    places = {*range(NUM_SHOWN), *range(NUM_SHOWN, len(rows), step), letters.index(max(letters))}
    counted = [rows[place] for place in sorted(places) if place < len(rows)]
    texts = [turn.text for example, _ in counted for turn in example.prompt]
    answers = [answer for _, answer in counted]
    tokenizer = find_tokenizer(config.model.base, texts=[*texts, *answers])
    if tokenizer is None:
        count, how = estimate_tokens, "estimated: the base is not here"
        prompts = ["\n".join(f"{t.role}: {t.text}" for t in one.prompt) for one, _ in counted]
    else:
        known, how = tokenizer, "by the tokenizer"
        prompts = [render_prompt(known, example) for example, _ in counted]

        def count(text: str) -> int:
            return len(known.encode(text, add_special_tokens=False))

    how += "" if step == 1 else f", {len(counted):,} of {len(rows):,} rows"
    pictures = [_count_pictures(config, example) for example, _ in counted]
    sizes = [count(text) + extra for text, extra in zip(prompts, pictures, strict=True)]
    shown = [
        ShownRow(show_written(text), answer, [picture.path.name for picture in example.pictures])
        for text, (example, answer) in zip(prompts, counted[:NUM_SHOWN], strict=False)
    ]
    limit = config.data.budget.max_prompt_tokens
    fitting = [pair for pair in zip(sizes, counted, strict=True) if pair[0] <= limit]
    if config.data.budget.drop_longer and fitting:
        how += f"; {len(counted) - len(fitting):,} longer ones are dropped"
        sizes, counted = [size for size, _ in fitting], [row for _, row in fitting]
    # An answer ends with a token of its own.
    ends = [count(answer) + 1 for answer in answers]
    longest, _ = counted[sizes.index(max(sizes))]
    lengths = Lengths(round(median(sizes)), max(sizes), how, longest)
    return shown, lengths, Lengths(round(median(ends)), max(ends), how)


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: 4 Latin letters, or a Chinese character, in each."""
    num_others = sum(not character.isascii() for character in text)
    return num_others + -(-(len(text) - num_others) // _LETTERS_PER_TOKEN)


def estimate_picture(config: Any, size: tuple[int, int]) -> int:
    """Return about how many tokens a picture of so many pixels (width, height) has."""
    side = TINY_TOKEN_SIDE if config.model.is_tiny else TOKEN_SIDE
    return estimate_picture_tokens(*size, max_pixels=config.model.max_pixels, token_side=side)


def _count_pictures(config: Any, example: Example) -> int:
    """Return the tokens of pictures beside the one that stands for each in the text."""
    sizes = [open_picture(picture).size for picture in example.pictures]
    return sum(estimate_picture(config, size) - 1 for size in sizes)


def preview_run(task: Task[Any], config: Any) -> Preview:
    """Return what there is to say and show of a config without running it."""
    try:
        found = task.estimate(config)
    except GroupwiseError as error:
        return Preview([("model", config.model.base)], [str(error)])
    problems = check_base(config.model) if found.needs_base else []
    shown, prompts, answers = look_at_rows(config, found)
    facts = [("model", describe_base(config.model.base)), *found.facts]
    facts.append(("reward weights", task.describe_weights(config)))
    if config.sft is not None:
        per_step = config.sft.batch_size * config.sft.gradient_accumulation
        num_steps = config.sft.epochs * found.num_sft_rows // per_step
        told = f"about {num_steps:,} on {found.num_sft_rows:,} rows per epoch"
        facts.append(("sft steps", told))
    if answers.longest > config.grpo.max_new_tokens:
        told = f"the longest answer has {answers.longest:,} tokens, and more than "
        told += f"grpo.max_new_tokens ({config.grpo.max_new_tokens:,}) are truncated"
        facts.append(("warning", told))
    lengths = check_lengths(
        config.data.budget,
        config.grpo,
        tokens_per_prompt=prompts.longest,
        # Some long answers are truncated and counted; most must fit.
        tokens_per_answer=answers.longest if answers.median is None else answers.median,
    )
    steps, training = preview_grpo(
        config.model,
        sft=config.sft,
        grpo=config.grpo,
        num_prompts=found.num_prompts,
    )
    longest, team = prompts.example, find_team()
    pictures = 0 if longest is None else _count_pictures(config, longest) + len(longest.pictures)
    memory, too_large = preview_memory(
        config.model,
        config.list_trainings(),
        batch=Batch(prompts.longest, answers.longest, pictures),
        place=Place(
            "cuda" if list_gpus() else "cpu",
            1 if team is None else team.size,
            is_spread=config.compute.sharding == "fsdp",
        ),
        num_here=1 if team is None else team.local_size,
        num_readers=found.num_readers,
    )
    layout, unshared = _describe_processes(config)
    problems += unshared
    later = {**too_large, **found.later}
    first = "grpo" if config.sft is None else "sft"
    later[first] = [*training, *later.get(first, [])]
    if task.data_stage == "prepare":
        problems = [*lengths, *problems]
    else:
        later = {**later, task.data_stage: lengths}
    return Preview(
        [*facts, *steps, *memory, *layout],
        problems,
        later=later,
        shown=shown,
        tables=[_list_sources(found.sources), _list_lengths(config, prompts, answers)],
        case=found.case,
    )


def _describe_processes(config: FlowConfig) -> tuple[list[tuple[str, str]], list[str]]:
    """Return what there is to say of several processes, and what they would train otherwise."""
    team, is_spread = find_team(), config.compute.sharding == "fsdp"
    if team is None:
        alone = f"compute.sharding fsdp: one process holds all weights; start several ({START})"
        return [], [alone] if is_spread else []
    problems = config.list_unshared(team.size)
    if problems:
        return [], [f"{team.size} processes: {'; '.join(problems)}"]
    shares: list[str] = []
    for name, training in config.list_trainings().items():
        setting, size = find_batch(training)
        rows = "prompts" if setting == "prompts_per_step" else "rows"
        shares.append(f"{size // team.size} of {size} {rows} of {name}")
    told = f"{team.size} on {team.device}"
    if team.local_size < team.size:
        told += f", {team.local_size} of them on this machine"
    told += f"; each takes {', '.join(shares)} at a time"
    if is_spread:
        told += f", and holds 1/{team.size} of the weights (FSDP2)"
    return [("processes", told)], []


def _list_sources(sources: Mapping[str, Mapping[str, int]]) -> PreviewTable:
    """Return the sources by name; of very many the largest, and what the others have together."""
    rows: list[tuple[str, str, str, str]] = []
    for split, counts in sources.items():
        by_size = sorted(counts, key=lambda name: (-counts[name], name))
        named, others = by_size[:_MOST_SOURCES], by_size[_MOST_SOURCES:]
        known = {name: counts[name] for name in sorted(named)}
        if others:
            known[f"{len(others)} others"] = sum(counts[name] for name in others)
        total = sum(counts.values())
        rows += [(split, name, f"{n:,}", f"{n / total:.1%}") for name, n in known.items()]
    return PreviewTable("Where rows come from", ("split", "source", "rows", "share"), rows)


def _list_lengths(config: Any, prompts: Lengths, answers: Lengths) -> PreviewTable:
    limits = (
        ("prompt", prompts, config.data.budget.max_prompt_tokens, "data.budget.max_prompt_tokens"),
        ("answer", answers, config.grpo.max_new_tokens, "grpo.max_new_tokens"),
    )
    rows: list[tuple[str, ...]] = []
    for name, found, limit, setting in limits:
        middle = "–" if found.median is None else f"{found.median:,}"
        rows.append((name, middle, f"{found.longest:,}", f"{limit:,}", setting, found.how))
    return PreviewTable("Tokens", ("", "median", "longest", "limit", "set by", "counted"), rows)
