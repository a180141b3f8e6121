"""What ``--dry-run`` shows: rows as the model will see them, lengths, steps, memory, problems."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from groupwise.core import Example, GroupwiseError, list_gpus, open_picture
from groupwise.flow.costs import Batch, Place, check_lengths, preview_grpo, preview_memory
from groupwise.flow.distributed import START, find_team
from groupwise.flow.settings import FlowConfig, find_batch
from groupwise.flow.task import Estimate, Task
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

NUM_SHOWN = 3
_MOST_COUNTED, _MOST_LETTERS = 2_000, 2_000_000
_LETTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts or answers.

    Attributes:
        median: None where only the longest are estimated.
        longest: of all that were counted.
        how: they were counted, a clause.
        example: the longest; None where there are only estimates.
    """

    median: int | None
    longest: int
    how: str
    example: Example | None = None

    def describe_median(self) -> str:
        """Return the median for people."""
        return "–" if self.median is None else f"{self.median:,}"


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
    write = _write_turns if tokenizer is None else _bind(tokenizer)
    count = estimate_tokens if tokenizer is None else _count_with(tokenizer)
    how = "by the tokenizer" if tokenizer is not None else "estimated: the base is not here"
    how += "" if step == 1 else f", {len(counted):,} of {len(rows):,} rows"
    prompts = [write(example) for example, _ in counted]
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
    _, longest = max(zip(sizes, counted, strict=True), key=lambda pair: pair[0])
    return shown, replace(_summarize(sizes, how), example=longest[0]), _summarize(ends, how)


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


def _bind(tokenizer: Any) -> Callable[[Example], str]:
    return lambda example: render_prompt(tokenizer, example)


def _count_with(tokenizer: Any) -> Callable[[str], int]:
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _write_turns(example: Example) -> str:
    return "\n".join(f"{turn.role}: {turn.text}" for turn in example.prompt)


def _summarize(sizes: Sequence[int], how: str) -> Lengths:
    return Lengths(round(median(sizes)), max(sizes), how)


_MOST_SOURCES = 10


def preview_run(task: Task[Any], config: Any) -> Preview:
    """Return what there is to say and show of a config without running it."""
    try:
        found = task.estimate(config)
    except GroupwiseError as error:
        return Preview([("model", config.model.base)], [str(error)])
    problems = check_base(config.model) if found.needs_base else []
    facts = [("model", describe_base(config.model.base))]
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
    )
    memory, too_large = _preview_memory(config, prompts, answers, num_readers=found.num_readers)
    more += memory
    layout, unshared = _describe_processes(config)
    more += layout
    problems += unshared
    later = {**too_large, **found.later}
    first = "grpo" if config.sft is None else "sft"
    later[first] = [*training, *later.get(first, [])]
    if task.data_stage == "prepare":
        problems = [*lengths, *problems]
    else:
        later = {**later, task.data_stage: lengths}
    tables = [_list_sources(found.sources), _list_lengths(config, prompts, answers)]
    return Preview(
        [*facts, *more], problems, later=later, shown=shown, tables=tables, case=found.case
    )


def _preview_memory(
    config: Any, prompts: Lengths, answers: Lengths, *, num_readers: int
) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    example, team = prompts.example, find_team()
    pictures = 0 if example is None else _count_pictures(config, example) + len(example.pictures)
    return preview_memory(
        config.model,
        {"grpo": config.grpo} if config.sft is None else {"sft": config.sft, "grpo": config.grpo},
        batch=Batch(prompts.longest, answers.longest, pictures),
        place=Place(
            "cuda" if list_gpus() else "cpu",
            1 if team is None else team.size,
            is_spread=config.compute.sharding == "fsdp",
        ),
        num_here=1 if team is None else team.local_size,
        num_readers=num_readers,
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
