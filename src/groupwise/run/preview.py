"""What a training would take and what would stop it, said before anything is loaded or run.

Memory is a sum of weights, gradients, the optimizer's states and the larger of what an update and
what sampling hold. What a backward pass needs of a token is about what goes into the linear layers
of a block and comes out of them; logits are counted by the tiles in which they are computed. The
factors were measured (``benchmarks/first_run.py``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, cast

from groupwise.core import Example, GroupwiseError, list_gpus, open_picture, read_free_memory
from groupwise.data.audit import TokenBudget
from groupwise.models.base_model import check_base, find_num_blocks
from groupwise.models.prompts import (
    TINY_TOKEN_SIDE,
    TOKEN_SIDE,
    estimate_picture_tokens,
    render_prompt,
    show_written,
)
from groupwise.models.settings import ModelSettings
from groupwise.models.sources import BLOCK, Outline, describe_base, find_outline
from groupwise.models.tokenizing import find_tokenizer
from groupwise.run.distributed import START, find_team
from groupwise.run.recipe import Preview, PreviewTable, ShownRow
from groupwise.run.settings import FlowConfig, find_batch
from groupwise.training.settings import GrpoSettings, SftSettings, TrainerSettings

if TYPE_CHECKING:
    from groupwise.run.task import Estimate, Task


_TOWER_BLOCK = re.compile(r"(?:layers|layer|blocks)\.(\d+)\.(?:.+\.)?(\w+)\.weight$")
_VISION = re.compile(r"(?:^|\.)(?:visual|vision_tower|vision_model)\.")
_MIB = 2**20
_FLOAT = 4
_NF4 = 0.516  # bytes of a weight in 4 bits, with its scales
# Python with torch, Transformers and TRL, in the same memory on a CPU.
_LIBRARIES = 620 * _MIB
# What a backward pass needs of a token, over what its linear layers take and give.
_KEPT = 1.1
# What is taken from the system over what is held, where all weights train and where not. On a CPU
# freed blocks are kept for tensors of their size; an adapter makes many that are soon free again.
_SPLIT = {("cpu", True): 1.1, ("cpu", False): 2.0, ("cuda", True): 1.1, ("cuda", False): 1.1}
# TRL computes logits of so many tokens and words at once, and holds so many copies of them.
_TILE = (4096, 32_768)
_COPIES = {"cpu": 8, "cuda": 1}
_SAMPLED_COPIES = 4


def check_lengths(
    budget: TokenBudget, grpo: GrpoSettings, *, tokens_per_prompt: int, tokens_per_answer: int
) -> list[str]:
    """Return clauses on prompts over ``data.budget`` and answers that would be truncated.

    About so many tokens the longest prompts have, and an answer in the right form.
    """
    problems: list[str] = []
    limit = budget.max_prompt_tokens
    if tokens_per_prompt > limit and not budget.allow_longer:
        problems.append(
            f"data.budget.max_prompt_tokens: {limit} is less than real rows have, "
            f"about {tokens_per_prompt} tokens; raise it"
        )
    if grpo.max_new_tokens < tokens_per_answer:
        problems.append(
            f"grpo.max_new_tokens: {grpo.max_new_tokens} cannot hold an answer, which has "
            f"about {tokens_per_answer} tokens; raise it"
        )
    return problems


def preview_grpo(
    model: ModelSettings, *, sft: SftSettings | None, grpo: GrpoSettings, num_prompts: int
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return facts and problems of training a model by SFT and then GRPO, for a dry run."""
    per_step = grpo.prompts_per_step * grpo.gradient_accumulation
    num_steps = grpo.epochs * num_prompts // per_step
    num_steps = min(num_steps, grpo.max_steps or num_steps)
    size = f"about {num_steps:,} of {per_step} prompts x {grpo.group_size} completions"
    if grpo.refill is not None:
        size += f"; each dead group may cost up to {grpo.refill.max_tries} more"
    problems: list[str] = []
    warmup = grpo.warmup_steps
    if warmup is not None and warmup >= num_steps and grpo.scheduler != "constant":
        problems.append(
            f"grpo.warmup_steps: {warmup} of about {num_steps} steps, so the learning rate would "
            "never reach its peak; lower it or train for more steps"
        )
    if sft is not None:
        first, then = sft.trainable, grpo.trainable
        if first.method not in ("full", then.method):
            problems.append(
                f"grpo.trainable.method: {then.method} cannot go on from sft.trainable.method: "
                f"{first.method}; train both in the same way"
            )
        elif first.method == "prompt" and first.prompt.num_tokens != then.prompt.num_tokens:
            problems.append(
                f"grpo.trainable.prompt.num_tokens: {then.prompt.num_tokens} are not the "
                f"{first.prompt.num_tokens} of sft"
            )
    num_blocks = find_num_blocks(model.base, model.shape)
    for name, stage in {"grpo": grpo, **({"sft": sft} if sft else {})}.items():
        last = stage.trainable.lora.last_blocks or 0
        if num_blocks is not None and stage.trainable.method == "lora" and last > num_blocks:
            problems.append(
                f"{name}.trainable.lora.last_blocks: {last} is more than the model's {num_blocks} "
                "blocks"
            )
    return [("grpo steps", size)], problems


@dataclass(frozen=True, slots=True)
class Place:
    """The devices of a training step, one for each of the processes that share it."""

    device: Literal["cpu", "cuda"]
    num_processes: int = 1
    is_spread: bool = False  # whether each holds a part of the weights (FSDP2), or all (DDP)


@dataclass(frozen=True)
class Batch:
    """How long rows are, in tokens."""

    prompt: int  # of the longest prompts, with their pictures
    answer: int  # of the longest answers that are taught
    pictures: int = 0  # of the pictures in a prompt


def preview_memory(
    model: ModelSettings,
    stages: Mapping[str, TrainerSettings],
    *,
    batch: Batch,
    place: Place,
    num_here: int = 1,
    num_readers: int = 0,
) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    """Return what a dry run says of the memory of each training, and by stage why it cannot fit.

    Stages have the names of their sections; nothing is said of a tiny model. So many processes are
    on this machine, and so many copies of the base read answers for a reward of GRPO.
    """
    if model.is_tiny or not stages:
        return [], {}
    outline = find_outline(model.base)
    if outline is None:
        unknown = f"? (the configuration of {model.base} is not on this machine"
        if model.shape is not None and model.dtype != "auto" and model.quantization is None:
            size = model.shape.num_parameters * (4 if model.dtype == "float32" else 2) >> 20
            unknown += f"; its weights alone take {size:,} MiB"
        return [("memory", f"{unknown})")], {}
    free, where = read_free_memory(), "in the memory of this machine"
    if place.device == "cuda":
        import torch

        free = torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else None
        where = "on a GPU"
    left = "" if free is None else f", where {free >> 20:,} MiB are free"
    each = "each process, " if place.num_processes > 1 else ""
    num_beside = num_here if each and place.device == "cpu" else 1
    facts: list[tuple[str, str]] = []
    problems: dict[str, list[str]] = {}
    for name, settings in stages.items():
        try:
            found = estimate_memory(
                outline, model, settings, batch=batch, place=place, num_readers=num_readers
            )
        except ValueError as error:
            facts.append((f"memory of {name}", f"? ({error})"))
            continue
        facts.append((f"memory of {name}", f"{each}{where}{left}: {found.describe()}"))
        together = found.total * num_beside
        if free is not None and together > 1.25 * free:  # an estimate may be a quarter too high
            rows, value = find_batch(cast("SftSettings | GrpoSettings", settings))
            ways = [f"lower {name}.{rows} ({value}) and raise gradient_accumulation"]
            if not settings.gradient_checkpointing:
                ways.append("set gradient_checkpointing to true")
            if settings.trainable.method == "full":
                ways.append("set trainable.method to lora")
            problems[name] = [
                f"{name}: it takes about {together >> 20:,} MiB {where}{left}; "
                f"{'; '.join([*ways, 'or take a smaller model'])}"
            ]
    return facts, problems


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that one process of a training takes at most."""

    libraries: int  # in the same memory; 0 on a GPU, whose context is not counted
    weights: int  # of the policy, a reference that is another model, and copies that read answers
    gradients: int
    optimizer: int  # the states of AdamW
    activations: int  # of a pass forward and back, with the logits of its answers
    sampling: int = 0  # keys, values and logits of completions; 0 where none are sampled here

    @property
    def total(self) -> int:
        """The most that is held at once: sampling and updates take turns."""
        lasting = self.libraries + self.weights + self.gradients + self.optimizer
        return lasting + max(self.activations, self.sampling)

    def describe(self) -> str:
        parts = [f"{name} {size // _MIB:,}" for name, size in vars(self).items() if size]
        return f"about {self.total // _MIB:,} MiB at most ({', '.join(parts)})"


def estimate_memory(
    outline: Outline,
    model: ModelSettings,
    settings: TrainerSettings,
    *,
    batch: Batch,
    place: Place,
    num_readers: int = 0,
) -> MemoryEstimate:
    """Estimate one process's memory with the longest rows; ValueError where none was measured."""
    if outline.has_experts:
        raise ValueError("no training of experts was held against an estimate")
    sizes, dtype = _measure(outline), model.dtype
    if dtype == "auto":
        dtype = str(outline.text.get("dtype") or outline.text.get("torch_dtype") or "float32")
    size = 2 if dtype in ("bfloat16", "float16") else _FLOAT
    trainable, is_full = settings.trainable, settings.trainable.method == "full"
    trained = sizes.num_parameters
    if is_full:
        trained -= sizes.num_in_tower if trainable.freeze_vision else 0
    elif trainable.method == "lora":
        lora = trainable.lora
        blocks = sizes.blocks[-lora.last_blocks :] if lora.last_blocks else sizes.blocks
        shapes = [one for block in blocks for name, one in block.items() if name in lora.modules]
        trained = lora.rank * sum(map(sum, shapes))
    else:
        trained = trainable.prompt.num_tokens * sizes.hidden
    bits = _NF4 if model.quantization else size
    base = weights = sizes.num_in_blocks * (bits - size) + sizes.num_parameters * size
    if not is_full:
        weights += trained * _FLOAT
    elif isinstance(settings, GrpoSettings) and settings.beta > 0:
        weights *= 2
    # FSDP2 keeps in float32 what trains, and adapters always are.
    gradients = trained * (size if is_full and not place.is_spread else _FLOAT)
    optimizer = 2 * gradients
    num = place.num_processes
    if place.is_spread:  # an update gathers what is in no block, a block, and the next
        gathered = sizes.num_parameters - sizes.num_in_blocks * (1 - 2 / len(sizes.blocks))
        weights, gradients, optimizer = (one / num for one in (weights, gradients, optimizer))
        weights += gathered * size
    elif num > 1:
        gradients *= 2  # DDP sends a copy of them
    weights += base * (num_readers if isinstance(settings, GrpoSettings) else 0)
    activations, sampling = _count_passes(sizes, settings, batch, place, size=size)
    if is_full:  # the greatest gradient is computed beside those that are there
        activations += sizes.num_words * sizes.hidden * _FLOAT
    libraries = _LIBRARIES if place.device == "cpu" else 0
    counted = (libraries, weights, gradients, optimizer, activations, sampling)
    return MemoryEstimate(*map(round, counted))


def _count_passes(
    sizes: Any, settings: TrainerSettings, batch: Batch, place: Place, *, size: int
) -> tuple[float, float]:
    """Return the bytes of a pass forward and back, and of sampling, in one process."""
    sampling, attended, num_blocks = 0, 0, len(sizes.blocks)
    if isinstance(settings, GrpoSettings):
        num_prompts = settings.prompts_per_step // place.num_processes
        num_rows, num_new = num_prompts * settings.group_size, settings.max_new_tokens
        shares = settings.speed.shared_prefix != "off"
        once = num_prompts if shares else num_rows
        num_tokens, num_scored = once * batch.prompt + num_rows * num_new, num_rows * num_new
        # Every row attends to keys and values of its prompt, which are put together for it.
        attended = num_rows * (batch.prompt + num_new) * 2 * sizes.num_queries if shares else 0
        parts = settings.steps_per_generation or settings.gradient_accumulation
        num_sampled = 0 if settings.vllm else num_rows * parts
        kept = num_sampled * (batch.prompt + num_new) * 2 * sizes.num_keys * num_blocks
        sampling = kept * size + num_sampled * sizes.num_words * _FLOAT * _SAMPLED_COPIES
    else:
        assert isinstance(settings, SftSettings)
        once = settings.batch_size // place.num_processes
        num_tokens = once * (batch.prompt + batch.answer)
        # TRL scores every token of a row, except where Triton leaves the prompt out.
        num_scored = num_tokens if place.device == "cpu" else once * batch.answer
    trainable, num_kept = settings.trainable, num_blocks
    if trainable.method == "lora" and trainable.lora.last_blocks is not None:
        num_kept = min(num_kept, trainable.lora.last_blocks)
    held = num_tokens * _KEPT * sizes.width + attended
    if settings.gradient_checkpointing:
        held += num_kept * num_tokens * sizes.hidden
    else:
        held *= num_kept
    trains_tower = trainable.method == "full" and not trainable.freeze_vision
    num_tower = sizes.num_tower_blocks * _KEPT if trains_tower else 1
    held += once * batch.pictures * sizes.patches_per_token * sizes.tower_width * num_tower
    tile = min(num_scored, _TILE[0]) * min(sizes.num_words, _TILE[1])
    split = _SPLIT[place.device, trainable.method == "full"]
    return held * size * split + tile * _FLOAT * _COPIES[place.device], sampling * split


def _measure(outline: Outline) -> Any:
    """Return what of a base decides how much a training takes; ``blocks`` are linear (out, in)."""
    text, shapes = outline.text, outline.shapes
    if not shapes:  # those of a usual decoder of this configuration
        try:
            hidden, inner, num_words, num_heads = (
                text[name]
                for name in (
                    "hidden_size",
                    "intermediate_size",
                    "vocab_size",
                    "num_attention_heads",
                )
            )
            num_blocks = text["num_hidden_layers"]
        except KeyError as error:
            told = "its weights are not on this machine, and its sizes not said"
            raise ValueError(told) from error
        head = text.get("head_dim") or hidden // num_heads
        queries, keys = head * num_heads, head * (text.get("num_key_value_heads") or num_heads)
        linear = {f"self_attn.{name}_proj": (keys, hidden) for name in "kv"}
        linear |= {"self_attn.q_proj": (queries, hidden), "self_attn.o_proj": (hidden, queries)}
        linear |= {f"mlp.{name}_proj": (inner, hidden) for name in ("gate", "up")}
        linear |= {"mlp.down_proj": (hidden, inner)}
        shapes = {"embed_tokens.weight": (num_words, hidden)}
        if not text.get("tie_word_embeddings", False):
            shapes["lm_head.weight"] = (num_words, hidden)
        for block in range(num_blocks):
            shapes |= {f"layers.{block}.{name}.weight": one for name, one in linear.items()}
    found: dict[bool, dict[int, dict[str, tuple[int, int]]]] = {True: {}, False: {}}
    for name, shape in shapes.items():
        is_tower = bool(_VISION.search(name))
        block = (_TOWER_BLOCK if is_tower else BLOCK).search(name)
        if block and len(shape) == 2:
            found[is_tower].setdefault(int(block[1]), {})[block[2]] = (shape[0], shape[1])
    towers, blocks = ([one for _, one in sorted(found[key].items())] for key in (True, False))
    language = {name: one for name, one in shapes.items() if not _VISION.search(name)}
    words = [one for name, one in language.items() if name.endswith("embed_tokens.weight")]
    if not blocks or not words:
        raise ValueError("its weights have names that are not known here")
    num_words, hidden = words[0]
    num_heads = text.get("num_attention_heads") or hidden // 64
    head = text.get("head_dim") or hidden // num_heads
    count = sum(map(math.prod, shapes.values()))
    return SimpleNamespace(
        num_parameters=count,
        num_in_blocks=sum(math.prod(one) for block in blocks for one in block.values()),
        num_in_tower=count - sum(map(math.prod, language.values())),
        blocks=blocks,
        hidden=hidden,
        num_words=num_words,
        num_queries=head * num_heads,
        num_keys=head * (text.get("num_key_value_heads") or num_heads),
        width=sum(map(sum, blocks[0].values())),
        tower_width=sum(map(sum, towers[0].values())) if towers else 0,
        num_tower_blocks=len(towers),
        patches_per_token=outline.config.get("vision_config", {}).get("spatial_merge_size", 2) ** 2,
    )


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
    sft, budget, max_new_tokens = config.sft, config.data.budget, config.grpo.max_new_tokens
    facts = [("model", describe_base(config.model.base)), *found.facts]
    facts.append(("reward weights", task.describe_weights(config)))
    if sft is not None:
        num_steps = sft.epochs * found.num_sft_rows // (sft.batch_size * sft.gradient_accumulation)
        told = f"about {num_steps:,} on {found.num_sft_rows:,} rows per epoch"
        facts.append(("sft steps", told))
    if answers.longest > max_new_tokens:
        told = f"the longest answer has {answers.longest:,} tokens, and more than "
        facts.append(("warning", f"{told}grpo.max_new_tokens ({max_new_tokens:,}) are truncated"))
    lengths = check_lengths(
        budget,
        config.grpo,
        tokens_per_prompt=prompts.longest,
        # Some long answers are truncated and counted; most must fit.
        tokens_per_answer=answers.longest if answers.median is None else answers.median,
    )
    steps, training = preview_grpo(
        config.model, sft=sft, grpo=config.grpo, num_prompts=found.num_prompts
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
    first = "grpo" if sft is None else "sft"
    later[first] = [*training, *later.get(first, [])]
    if task.data_stage == "prepare":
        problems = [*lengths, *problems]
    else:
        later = {**later, task.data_stage: lengths}
    limits = (
        ("prompt", prompts, budget.max_prompt_tokens, "data.budget.max_prompt_tokens"),
        ("answer", answers, max_new_tokens, "grpo.max_new_tokens"),
    )
    rows: list[tuple[str, ...]] = []
    for name, one, limit, setting in limits:
        middle = "–" if one.median is None else f"{one.median:,}"
        rows.append((name, middle, f"{one.longest:,}", f"{limit:,}", setting, one.how))
    columns = ("", "median", "longest", "limit", "set by", "counted")
    return Preview(
        [*facts, *steps, *memory, *layout],
        problems,
        later=later,
        shown=shown,
        tables=[_list_sources(found.sources), PreviewTable("Tokens", columns, rows)],
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
