"""What trains and what is frozen: LoRA on language blocks, virtual tokens, freezing, the table."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from pydantic import Field

from groupwise.core import Config, ConfigError, ModelError
from groupwise.models.quantization import count_weights, find_quantization
from groupwise.models.silence import silence_libraries
from groupwise.models.virtual_tokens import (
    KIND,
    PromptSettings,
    add_virtual_tokens,
    continue_virtual_tokens,
)

_BLOCK = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_VISION_NAMES = r"(?:visual|vision_tower|vision_model)\."
_VISION = re.compile(rf"(?:^|\.){_VISION_NAMES}")
_LANGUAGE = "language block "
_TRAINED = "was_trained_since_loaded"
_ALIGNER = re.compile(r"(?:^|\.)(?:merger|multi_modal_projector|aligner|deepstack_merger_list)\.")


class LoraSettings(Config):
    """A low-rank adapter on the language blocks.

    Source: Hu et al. 2021 (2106.09685). Dropout is fixed at 0: with dropout the policy that
    samples and the policy that is trained are different ones, and the ratio is not 1 at the
    first step.

    Attributes:
        rank: width of the two factors.
        alpha: the product of the factors is scaled by alpha / rank.
        last_blocks: only the last so many language blocks; None: all.
        modules: names of linear layers inside a block.
    """

    rank: int = Field(default=16, ge=1, le=16_384)
    alpha: int = Field(default=32, ge=1, le=1_000_000)
    last_blocks: int | None = Field(default=None, ge=1)
    modules: tuple[str, ...] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )


class TrainableSettings(Config):
    """Which weights are trained.

    Attributes:
        method: ``full`` trains the language model; ``lora`` trains an adapter on its blocks;
            ``prompt`` trains the vectors of virtual tokens in front of the prompt.
        lora: of the adapter; used by ``lora`` alone.
        prompt: the virtual tokens; used by ``prompt`` alone.
        freeze_vision, freeze_aligner: keep the vision tower, and what joins it to the language
            model, as they are; ``lora`` and ``prompt`` always do.
    """

    method: Literal["full", "lora", "prompt"] = "lora"
    lora: LoraSettings = LoraSettings()
    prompt: PromptSettings = PromptSettings()
    freeze_vision: bool = True
    freeze_aligner: bool = True


@dataclass(frozen=True)
class TrainableRow:
    """Number of parameters of one part of a model, and how many of them train."""

    part: str
    num_trainable: int
    num_frozen: int


@silence_libraries()
def prepare_trainable(model: Any, settings: TrainableSettings, *, processor: Any = None) -> Any:
    """Freeze and wrap a model in place as configured; returns the model to train.

    A model that has an adapter already is trained on that adapter, in the blocks and modules
    of ``settings.lora``, or on the virtual tokens that it has.

    Args:
        model: of Transformers or PEFT.
        settings: what trains.
        processor: of the model; ``prompt`` changes it in place.

    Raises:
        ConfigError: if more blocks are asked for than the model has, an adapter is to be
            continued that does not fit the settings, or other weights in 4 bits than a LoRA's base.
        ModelError: if no parameter is left to train, a PEFT model was made around the model, it
            was loaded with a ``device_map``, or an adapter is to stand on weights that are in no
            folder.
    """
    if getattr(model, "hf_device_map", None) is not None:
        raise ModelError(
            "a model that is loaded with a device_map only answers",
            fix="load it without; compute.sharding fsdp trains what is larger than one device",
        )
    if find_quantization(model) is not None and settings.method != "lora":
        raise ConfigError(
            "weights in 4 bits cannot be trained, only a LoRA on them",
            got=f"method: {settings.method}",
            expected="method: lora",
            fix="load the model without model.quantization, or take the whole weights",
        )
    has_adapter = bool(getattr(model, "peft_config", None))
    if has_adapter and not hasattr(model, "get_base_model"):
        raise ModelError(
            "the model to train is inside a PEFT model",
            got=type(model).__name__,
            expected="the PEFT model",
            fix="make the policy with the PEFT model",
        )
    if has_adapter:
        model = _continue_adapter(model, settings)
    elif settings.method == "lora":
        refuse_trained(model)
        model = _add_lora(model, settings.lora)
    elif settings.method == "prompt":
        refuse_trained(model)
        model = add_virtual_tokens(model, processor, settings.prompt)
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not _is_frozen(name, settings))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ModelError("no parameter is trainable", fix="check method, freeze_* and lora.modules")
    return model


def note_trained(model: Any) -> None:
    """Remember that a model's own weights are not those of its folder any more."""
    if not getattr(model, "peft_config", None):
        setattr(model, _TRAINED, True)


def refuse_trained(model: Any) -> None:
    """Raise if a model's own weights were trained since it was loaded.

    An adapter and a reference name their base by the folder it came from: they would mean others.

    Raises:
        ModelError: if they were.
    """
    if getattr(model, _TRAINED, False):
        raise ModelError(
            "the weights of this model are not those of its folder any more: they were trained",
            expected="a model as it was loaded, for an adapter or a reference (beta above 0)",
            fix="save the policy, load it from there, and train that",
        )


def count_blocks(model: Any) -> int:
    """Return the number of language blocks (the vision tower's do not count)."""
    names = (name for name, _ in model.named_parameters() if not _VISION.search(name))
    return 1 + max((int(m.group(1)) for name in names if (m := _BLOCK.search(name))), default=-1)


def list_trainable(model: Any) -> frozenset[str]:
    """Return the names of the parameters that train."""
    return frozenset(name for name, value in model.named_parameters() if value.requires_grad)


def restore_trainable(model: Any, names: frozenset[str]) -> None:
    """Let exactly these parameters train; switching adapters lets others train, too."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)


def tabulate_trainable(model: Any) -> list[TrainableRow]:
    """Count trainable and frozen parameters by part: vision, aligner, each language block, rest."""
    counts: dict[str, list[int]] = {}
    for name, parameter in model.named_parameters():
        row = counts.setdefault(_name_part(name), [0, 0])
        row[0 if parameter.requires_grad else 1] += count_weights(parameter)
    return [TrainableRow(part, *counts[part]) for part in sorted(counts, key=_sort_key)]


def format_trainable(rows: Iterable[TrainableRow]) -> str:
    """Return the table as text: neighbouring blocks that are alike in one line, and a total."""
    rows = list(rows)
    total = TrainableRow(
        "total", sum(r.num_trainable for r in rows), sum(r.num_frozen for r in rows)
    )
    lines = [f"{'part':<32}{'trainable':>14}{'frozen':>16}"]
    lines += [
        f"{r.part:<32}{r.num_trainable:>14,}{r.num_frozen:>16,}" for r in [*_join(rows), total]
    ]
    return "\n".join(lines)


def _join(rows: Sequence[TrainableRow]) -> Iterator[TrainableRow]:
    """Yield the rows, with one for each stretch of blocks that are alike."""
    for (is_block, *_), alike in groupby(
        rows, lambda row: (row.part.startswith(_LANGUAGE), row.num_trainable, row.num_frozen)
    ):
        first, *others = alike
        if is_block and others:
            start, end = (row.part.removeprefix(_LANGUAGE) for row in (first, others[-1]))
            yield replace(first, part=f"language blocks {start} to {end}, each")
        else:
            yield from (first, *others)


_CONTINUED = {"lora": ("LORA", "LoRA adapter"), "prompt": (KIND, "set of virtual tokens")}


def _continue_adapter(model: Any, settings: TrainableSettings) -> Any:
    kinds = {name: config.peft_type.value for name, config in model.peft_config.items()}
    if settings.method == "full":
        raise ConfigError(
            "a policy with an adapter cannot be trained in full",
            got="method: full",
            expected=f"method: {'prompt' if KIND in kinds.values() else 'lora'}",
            fix="train both stages in the same way",
        )
    wanted, adapter = _CONTINUED[settings.method]
    if kinds != {"default": wanted}:
        raise ConfigError(
            f"only one {adapter} can be continued",
            got=", ".join(f"{name}: {kind}" for name, kind in kinds.items()),
            expected=f"default: {wanted}",
            fix="merge the others into the base model, or train with TRL itself",
        )
    if settings.method == "prompt":
        return continue_virtual_tokens(model, settings.prompt)
    return _continue_lora(model, settings.lora)


def _add_lora(model: Any, settings: LoraSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,
        target_modules=_match_modules(count_blocks(model), settings) + "$",
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        raise ModelError(
            "no parameter is trainable",
            got=f"lora.modules {list(settings.modules)}, which the model does not have",
            fix="name linear layers of its language blocks",
        ) from error


def _continue_lora(model: Any, settings: LoraSettings) -> Any:
    given = model.peft_config["default"]
    if (given.r, given.lora_alpha) != (settings.rank, settings.alpha):
        raise ConfigError(
            "lora.rank and lora.alpha are not those of the adapter that is continued",
            got=(settings.rank, settings.alpha),
            expected=(given.r, given.lora_alpha),
        )
    wanted = re.compile(_match_modules(count_blocks(model), settings) + r"\.lora_[AB]\.default\.")
    linear = re.compile(
        _match_modules(count_blocks(model), settings) + r"\.(?:base_layer\.)?weight$"
    )
    names = [name for name, _ in model.named_parameters()]
    num_wanted = 2 * sum(bool(linear.match(name)) for name in names)
    found = frozenset(name for name in names if wanted.match(name))
    if len(found) < num_wanted:
        raise ConfigError(
            "the adapter that is continued is not on all of the blocks and modules to train",
            got=f"{len(found)} of its weights",
            expected=num_wanted,
            fix="set lora.last_blocks and lora.modules to those of the earlier stage, or fewer",
        )
    restore_trainable(model, found)
    return model


def _match_modules(num_blocks: int, settings: LoraSettings) -> str:
    last = num_blocks if settings.last_blocks is None else settings.last_blocks
    if last > num_blocks:
        raise ConfigError("lora.last_blocks is too large", got=last, expected=f"<= {num_blocks}")
    kept = "|".join(str(index) for index in range(num_blocks - last, num_blocks))
    modules = "|".join(re.escape(module) for module in settings.modules)
    return rf"^(?!.*{_VISION_NAMES}).*layers\.(?:{kept})\.(?:.*\.)?(?:{modules})"


def _is_frozen(name: str, settings: TrainableSettings) -> bool:
    if _ALIGNER.search(name):
        return settings.freeze_aligner
    return bool(_VISION.search(name)) and settings.freeze_vision


def _name_part(name: str) -> str:
    if "trainable_tokens_delta" in name:
        return "virtual tokens"
    if _ALIGNER.search(name):
        return "aligner"
    if _VISION.search(name):
        return "vision"
    block = _BLOCK.search(name)
    if block:
        return f"{_LANGUAGE}{block.group(1)}"
    return "embeddings and head"


def _sort_key(part: str) -> tuple[int, int]:
    order = ("vision", "aligner", "virtual tokens", "embeddings and head")
    return (order.index(part), 0) if part in order else (len(order), int(part.rsplit(" ", 1)[1]))
