"""What a training would take and what would stop it, reported before anything is loaded."""

from collections.abc import Mapping
from pathlib import Path

from groupwise.core import Example, GroupwiseError, ModelError
from groupwise.data import TokenBudget
from groupwise.models import (
    ModelSettings,
    bring_base,
    explain_no_quantization,
    find_local_config,
    find_num_blocks,
)
from groupwise.training.place import Place
from groupwise.training.settings import GrpoSettings, SftSettings, TrainerSettings


def check_base(model: ModelSettings) -> list[str]:
    """Return clauses on why the base in the section ``model`` of a config cannot be loaded so.

    What is not on this machine is brought: of a model of the hub only what describes it.
    """
    if model.is_tiny:
        return []
    problems: list[str] = []
    if find_local_config(model.base) is None:
        try:
            bring_base(model.base, is_whole=False)
        except ModelError as error:
            if model.shape is None:
                return [f"model.base: {error}"]
    known = find_local_config(model.base)
    if model.quantization is not None and (problem := explain_no_quantization(known)):
        problems.append(f"model.quantization: {model.quantization} {problem}")
    if known is None and Path(model.base).is_dir():
        problems.append(
            f"model.base: {model.base} holds no whole model; "
            "where it is an adapter, take what export-model merges"
        )
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
    example: Example | None,
    tokens: tuple[int, int],
    place: Place,
) -> list[tuple[str, str]]:
    """Return what a dry run says of the memory of each training; nothing of a tiny model.

    Args:
        model: what is trained.
        stages: settings of each training, by their section of the config.
        example: the longest, whose pictures are counted; None: none is at hand.
        tokens: of the longest prompts, and of the longest answers.
        place: where it is trained.
    """
    if model.is_tiny or not stages:
        return []
    if find_local_config(model.base) is None:
        return [("memory", _describe_unknown(model))]
    from groupwise.training.memory.estimate import Base, estimate_memory

    base = Base.open(model)
    prompt = base.encode(example, num_tokens=tokens[0])
    kind = "on a GPU" if place.device == "cuda" else "on the CPU"
    found: list[tuple[str, str]] = []
    for name, settings in stages.items():
        try:
            memory = estimate_memory(base, prompt, settings, num_targets=tokens[1], place=place)
            told = memory.describe()
        except (RuntimeError, ValueError, GroupwiseError) as error:
            told = f"? ({base.config.model_type} could not be rehearsed: {_take_line(error)})"
        found.append((f"memory of {name}, each process {kind}", told))
    return found


def _describe_unknown(model: ModelSettings) -> str:
    told = f"? (the configuration of {model.base} is not on this machine"
    if model.shape is None or model.dtype == "auto" or model.quantization is not None:
        return f"{told})"
    size = model.shape.num_parameters * (4 if model.dtype == "float32" else 2) >> 20
    return f"{told}; its weights alone take {size:,} MiB)"


def _take_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


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
