"""What a training would take and what would stop it, reported before anything is loaded."""

from collections.abc import Mapping
from pathlib import Path

from groupwise.core import ModelError, read_free_memory
from groupwise.data import TokenBudget
from groupwise.models import (
    ModelSettings,
    bring_base,
    explain_no_quantization,
    find_num_blocks,
    find_outline,
)
from groupwise.training.memory.estimate import Batch, estimate_memory
from groupwise.training.place import Place
from groupwise.training.settings import GrpoSettings, SftSettings, TrainerSettings


def check_base(model: ModelSettings) -> list[str]:
    """Return clauses on why the base in the section ``model`` of a config cannot be loaded so.

    What is not on this machine is brought: of a model of the hub only what describes it.
    """
    problems: list[str] = []
    known = None
    if not model.is_tiny:
        try:
            if find_outline(model.base) is None:
                bring_base(model.base, is_whole=False)
        except ModelError as error:
            if model.shape is None:
                return [f"model.base: {error}"]
        known = find_outline(model.base)
        if known is None and Path(model.base).is_dir():
            problems.append(
                f"model.base: {model.base} holds no whole model; "
                "where it is an adapter, take what export-model merges"
            )
    has_experts = known is not None and known.has_experts
    if model.quantization and (problem := explain_no_quantization(has_experts=has_experts)):
        problems.append(f"model.quantization: {model.quantization} {problem}")
    return problems


def check_blocks(num_blocks: int, stages: Mapping[str, TrainerSettings]) -> list[str]:
    """Return clauses on adapters for more blocks than there are.

    Args:
        num_blocks: of the model.
        stages: settings of each training, by their section of the config.
    """
    asked = {
        name: stage.trainable.lora.last_blocks or 0
        for name, stage in stages.items()
        if stage.trainable.method == "lora"
    }
    return [
        f"{name}.trainable.lora.last_blocks: {last} is more than the model's {num_blocks} blocks"
        for name, last in asked.items()
        if last > num_blocks
    ]


def preview_grpo(
    model: ModelSettings, *, sft: SftSettings | None, grpo: GrpoSettings, num_prompts: int
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return facts and problems of training a model by SFT and then GRPO, for a dry run."""
    num_steps = _count_steps(grpo, num_prompts)
    facts = [("grpo steps", _describe_steps(grpo, num_steps))]
    problems = [*_check_warmup(grpo, num_steps), *(_check_start(sft, grpo) if sft else ())]
    num_blocks = find_num_blocks(model.base, model.shape)
    if num_blocks is not None:
        problems += check_blocks(num_blocks, {"grpo": grpo, **({"sft": sft} if sft else {})})
    return facts, problems


def preview_memory(
    model: ModelSettings,
    stages: Mapping[str, TrainerSettings],
    *,
    batch: Batch,
    place: Place,
    num_here: int = 1,
    num_readers: int = 0,
) -> tuple[list[tuple[str, str]], dict[str, list[str]]]:
    """Return what a dry run says of the memory of each training, and why one cannot fit.

    Nothing is said of a tiny model.

    Args:
        model: what is trained.
        stages: settings of each training, by their section of the config.
        batch: how long its rows are.
        place: where it is trained.
        num_here: how many of its processes share this machine.
        num_readers: copies of the base that read answers for a reward of GRPO.

    Returns:
        Facts, and problems by stage.
    """
    if model.is_tiny or not stages:
        return [], {}
    outline = find_outline(model.base)
    if outline is None:
        return [("memory", _describe_unknown(model))], {}
    free = read_free_memory() if place.device == "cpu" else _read_free_of_gpu()
    where = "in the memory of this machine" if place.device == "cpu" else "on a GPU"
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
        each, together = "", found.total
        if place.num_processes > 1:
            each = "each process, "
            together *= num_here if place.device == "cpu" else 1
        left = "" if free is None else f", where {free >> 20:,} MiB are free"
        facts.append((f"memory of {name}", f"{each}{where}{left}: {found.describe()}"))
        # An estimate may be a quarter too high.
        if free is not None and together > 1.25 * free:
            problems[name] = [
                f"{name}: it takes about {together >> 20:,} MiB {where}, where {free >> 20:,} MiB "
                f"are free; {_tell_savings(name, settings)}"
            ]
    return facts, problems


def _read_free_of_gpu() -> int | None:
    import torch

    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else None


def _tell_savings(name: str, settings: TrainerSettings) -> str:
    """Return what would let a training take less memory."""
    rows = "prompts_per_step" if isinstance(settings, GrpoSettings) else "batch_size"
    ways = [f"lower {name}.{rows} ({getattr(settings, rows)}) and raise gradient_accumulation"]
    if not settings.gradient_checkpointing:
        ways.append("set gradient_checkpointing to true")
    if settings.trainable.method == "full":
        ways.append("set trainable.method to lora")
    return "; ".join([*ways, "or take a smaller model"])


def _describe_unknown(model: ModelSettings) -> str:
    told = f"? (the configuration of {model.base} is not on this machine"
    if model.shape is None or model.dtype == "auto" or model.quantization is not None:
        return f"{told})"
    size = model.shape.num_parameters * (4 if model.dtype == "float32" else 2) >> 20
    return f"{told}; its weights alone take {size:,} MiB)"


def check_lengths(
    budget: TokenBudget,
    grpo: GrpoSettings,
    *,
    tokens_per_prompt: int,
    tokens_per_answer: int,
    fix: str = "raise it",
) -> list[str]:
    """Return clauses on prompts over the budget and answers that would be truncated.

    Args:
        budget: the section ``data.budget`` of a config.
        grpo: the section ``grpo``.
        tokens_per_prompt: about how many the longest prompts have.
        tokens_per_answer: of an answer in the right form.
        fix: what to do about a budget that is too small.
    """
    problems: list[str] = []
    limit = budget.max_prompt_tokens
    if tokens_per_prompt > limit and not budget.allow_longer:
        problems.append(
            f"data.budget.max_prompt_tokens: {limit} is less than real rows have, "
            f"about {tokens_per_prompt} tokens; {fix}"
        )
    if grpo.max_new_tokens < tokens_per_answer:
        problems.append(
            f"grpo.max_new_tokens: {grpo.max_new_tokens} cannot hold an answer, which has "
            f"about {tokens_per_answer} tokens; raise it"
        )
    return problems


def _count_steps(settings: GrpoSettings, num_prompts: int) -> int:
    per_step = settings.prompts_per_step * settings.gradient_accumulation
    num_steps = settings.epochs * num_prompts // per_step
    return min(num_steps, settings.max_steps or num_steps)


def _describe_steps(settings: GrpoSettings, num_steps: int) -> str:
    """Return how many steps GRPO takes, and how large they are."""
    per_step = settings.prompts_per_step * settings.gradient_accumulation
    told = f"about {num_steps:,} of {per_step} prompts x {settings.group_size} completions"
    if settings.refill is None:
        return told
    return f"{told}; each dead group may cost up to {settings.refill.max_tries} more"


def _check_warmup(settings: GrpoSettings, num_steps: int) -> list[str]:
    """Return a clause if the learning rate would still be rising at the last step."""
    warmup = settings.warmup_steps
    if warmup is None or warmup < num_steps or settings.scheduler == "constant":
        return []
    return [
        f"grpo.warmup_steps: {warmup} of about {num_steps} steps, so the learning rate would "
        "never reach its peak; lower it or train for more steps"
    ]


def _check_start(sft: SftSettings, grpo: GrpoSettings) -> list[str]:
    """Return a clause if what the warm-up trains is nothing that GRPO could go on with."""
    first, then = sft.trainable, grpo.trainable
    if first.method not in ("full", then.method):
        return [
            f"grpo.trainable.method: {then.method} cannot go on from sft.trainable.method: "
            f"{first.method}; train both in the same way"
        ]
    if first.method == "prompt" and first.prompt.num_tokens != then.prompt.num_tokens:
        return [
            f"grpo.trainable.prompt.num_tokens: {then.prompt.num_tokens} are not the "
            f"{first.prompt.num_tokens} of sft"
        ]
    return []
