"""What trains and what is frozen: LoRA on language blocks, virtual tokens, freezing, the table.

Virtual tokens stand in front of every prompt, and their input vectors alone are trained (prompt
tuning; Lester et al. 2021, 2104.08691). They are tokens of the tokenizer, and the chat template
writes them first: pictures, positions, generation, labels and shared prefixes take them as any
other token of a prompt. Only the input embedding knows the trained vectors. The head keeps the
base's rows, so that the model is not taught to write these ids; where the base has no row left for
them, it cannot write them at all.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar, Literal

from pydantic import Field

from groupwise.core import Config, ConfigError, ModelError
from groupwise.models.quantization import find_quantization
from groupwise.models.silence import silence_libraries

KIND = "TRAINABLE_TOKENS"
"""What PEFT calls an adapter of vectors of chosen ids."""
_TOKEN = "<|virtual_token_{}|>"
_LEADING = re.compile(r"^(?:<\|virtual_token_\d+\|>)+")
_BLOCK = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_VISION_NAMES = r"(?:visual|vision_tower|vision_model)\."
_VISION = re.compile(rf"(?:^|\.){_VISION_NAMES}")
_ALIGNER = re.compile(r"(?:^|\.)(?:merger|multi_modal_projector|aligner|deepstack_merger_list)\.")
_LANGUAGE = "language block "
_PARTS = ("vision", "aligner", "virtual tokens", "embeddings and head")
_TRAINED = "was_trained_since_loaded"


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
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    )


class PromptSettings(Config):
    """Virtual tokens in front of the prompt.

    Attributes:
        num_tokens: how many; their vectors start as those of tokens that are drawn by the seed.
    """

    retired: ClassVar = {"words": (None,)}

    num_tokens: int = Field(default=10, ge=1, le=16_384)


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
        ModelError: if no parameter is left to train, a PEFT model was made around the model, or an
            adapter is to stand on weights that are in no folder.
    """
    method = settings.method
    if find_quantization(model) is not None and method != "lora":
        raise ConfigError(
            "weights in 4 bits cannot be trained, only a LoRA on them",
            got=f"method: {method}",
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
        _continue_adapter(model, settings)
    elif method == "full":
        frozen = {"aligner": settings.freeze_aligner, "vision": settings.freeze_vision}
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not frozen.get(_name_part(name), False))
    else:
        refuse_trained(model)
        if method == "lora":
            model = _add_lora(model, settings.lora)
        else:
            model = _add_virtual_tokens(model, processor, settings.prompt.num_tokens)
    if not list_trainable(model):
        raise ModelError("no parameter is trainable", fix="check method, freeze_* and lora.modules")
    return model


def note_trained(model: Any) -> None:
    """Remember that a model's own weights are not those of its folder any more."""
    if not getattr(model, "peft_config", None):
        setattr(model, _TRAINED, True)


def refuse_trained(model: Any) -> None:
    """Raise ``ModelError`` if a model's own weights were trained since it was loaded.

    An adapter and a reference name their base by the folder it came from: they would mean others.
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
    return 1 + max((int(m[1]) for name in names if (m := _BLOCK.search(name))), default=-1)


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
        # A parameter of 4 bits has two weights in a byte.
        state = getattr(parameter, "quant_state", None)
        number = parameter.numel() if state is None else state.shape.numel()
        counts.setdefault(_name_part(name), [0, 0])[not parameter.requires_grad] += number
    parts = [part for part in _PARTS if part in counts]
    blocks = counts.keys() - parts
    parts += sorted(blocks, key=lambda part: int(part.removeprefix(_LANGUAGE)))
    return [TrainableRow(part, *counts[part]) for part in parts]


def format_trainable(rows: Iterable[TrainableRow]) -> str:
    """Return the table as text: neighbouring blocks that are alike in one line, and a total."""
    rows = list(rows)
    shown: list[TrainableRow] = []
    for (is_block, *_), alike in groupby(
        rows, lambda row: (row.part.startswith(_LANGUAGE), row.num_trainable, row.num_frozen)
    ):
        first, *others = alike
        if is_block and others:
            start, end = (row.part.removeprefix(_LANGUAGE) for row in (first, others[-1]))
            shown.append(replace(first, part=f"language blocks {start} to {end}, each"))
        else:
            shown += [first, *others]
    trainable, frozen = (sum(r.num_trainable for r in rows), sum(r.num_frozen for r in rows))
    lines = [f"{'part':<32}{'trainable':>14}{'frozen':>16}"]
    for row in (*shown, TrainableRow("total", trainable, frozen)):
        lines.append(f"{row.part:<32}{row.num_trainable:>14,}{row.num_frozen:>16,}")
    return "\n".join(lines)


def _name_part(name: str) -> str:
    if "trainable_tokens_delta" in name:
        return "virtual tokens"
    if _ALIGNER.search(name):
        return "aligner"
    if _VISION.search(name):
        return "vision"
    block = _BLOCK.search(name)
    return f"{_LANGUAGE}{block[1]}" if block else "embeddings and head"


def _continue_adapter(model: Any, settings: TrainableSettings) -> None:
    kinds = {name: config.peft_type.value for name, config in model.peft_config.items()}
    if settings.method == "full":
        raise ConfigError(
            "a policy with an adapter cannot be trained in full",
            got="method: full",
            expected=f"method: {'prompt' if KIND in kinds.values() else 'lora'}",
            fix="train both stages in the same way",
        )
    is_lora = settings.method == "lora"
    kind, adapter = ("LORA", "LoRA adapter") if is_lora else (KIND, "set of virtual tokens")
    if kinds != {"default": kind}:
        raise ConfigError(
            f"only one {adapter} can be continued",
            got=", ".join(f"{name}: {kind}" for name, kind in kinds.items()),
            expected=f"default: {kind}",
            fix="merge the others into the base model, or train with TRL itself",
        )
    if not is_lora:
        vectors = find_vectors(model)
        if len(vectors) != settings.prompt.num_tokens:
            raise ConfigError(
                "prompt.num_tokens is not that of the policy that is continued",
                got=settings.prompt.num_tokens,
                expected=len(vectors),
            )
        vectors.requires_grad_(True)
        return
    lora, given = settings.lora, model.peft_config["default"]
    if (given.r, given.lora_alpha) != (lora.rank, lora.alpha):
        raise ConfigError(
            "lora.rank and lora.alpha are not those of the adapter that is continued",
            got=(lora.rank, lora.alpha),
            expected=(given.r, given.lora_alpha),
        )
    modules, names = _match_modules(model, lora), [name for name, _ in model.named_parameters()]
    linear = re.compile(modules + r"\.(?:base_layer\.)?weight$")
    factor = re.compile(modules + r"\.lora_[AB]\.default\.")
    num_wanted = 2 * sum(bool(linear.match(name)) for name in names)
    found = frozenset(name for name in names if factor.match(name))
    if len(found) < num_wanted:
        raise ConfigError(
            "the adapter that is continued is not on all of the blocks and modules to train",
            got=f"{len(found)} of its weights",
            expected=num_wanted,
            fix="set lora.last_blocks and lora.modules to those of the earlier stage, or fewer",
        )
    restore_trainable(model, found)


def _add_lora(model: Any, settings: LoraSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,
        target_modules=_match_modules(model, settings) + "$",
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


def _match_modules(model: Any, settings: LoraSettings) -> str:
    num_blocks = count_blocks(model)
    last = num_blocks if settings.last_blocks is None else settings.last_blocks
    if last > num_blocks:
        raise ConfigError("lora.last_blocks is too large", got=last, expected=f"<= {num_blocks}")
    kept = "|".join(str(index) for index in range(num_blocks - last, num_blocks))
    modules = "|".join(map(re.escape, settings.modules))
    return rf"^(?!.*{_VISION_NAMES}).*layers\.(?:{kept})\.(?:.*\.)?(?:{modules})"


def _add_virtual_tokens(model: Any, processor: Any, num_tokens: int) -> Any:
    """Put virtual tokens before the prompts of a model that has none, and return a PEFT model.

    The processor is changed in place. The first vectors are drawn from torch's generator.
    """
    import torch
    from peft import TrainableTokensConfig, get_peft_model

    tokenizer = getattr(processor, "tokenizer", processor)
    added = set(tokenizer.get_added_vocab().values())
    ids = [number for number in range(len(tokenizer)) if number not in added]
    starts = [ids[place] for place in torch.randint(len(ids), (num_tokens,)).tolist()]
    vectors = model.get_input_embeddings().weight[starts].detach().clone()
    ids = write_virtual_tokens(model, processor, num_tokens)
    model = get_peft_model(model, TrainableTokensConfig(token_indices=ids, task_type="CAUSAL_LM"))
    find_vectors(model).data.copy_(vectors)
    return model


def find_vectors(model: Any) -> Any:
    """Return the vectors of the virtual tokens of a PEFT model, shape [tokens, hidden]."""
    return model.get_input_embeddings().trainable_tokens_delta["default"]


def write_virtual_tokens(
    model: Any, processor: Any, num_tokens: int, *, saved: Sequence[int] = ()
) -> list[int]:
    """Let every prompt of a base begin with new tokens, in place; return their ids.

    The head stays as it is, whatever becomes of the vectors: PEFT would train the rows of a tied
    head, too. The input embedding alone gets rows for ids that are beyond it. ``saved`` are the ids
    of an adapter's vectors, which these must be.
    """
    import torch

    tokenizer = getattr(processor, "tokenizer", processor)
    names = [_TOKEN.format(number) for number in range(num_tokens)]
    if names[0] in tokenizer.get_vocab():
        raise ConfigError(
            "the base has virtual tokens already",
            got=f"a tokenizer with {names[0]}",
            fix="start from the base of that model, or go on from its adapter",
        )
    tokenizer.add_special_tokens(
        {"extra_special_tokens": names}, replace_extra_special_tokens=False
    )
    for one in {id(processor): processor, id(tokenizer): tokenizer}.values():
        one.chat_template = "".join(names) + one.chat_template
    ids = tokenizer.convert_tokens_to_ids(names)
    if saved and ids != list(saved):
        raise ModelError(
            "the virtual tokens of the adapter do not belong to this base",
            got=f"ids {saved[0]} to {saved[-1]}",
            expected=f"{ids[0]} to {ids[-1]}, the next of its tokenizer",
        )
    model.config.tie_word_embeddings = False
    embedding = model.get_input_embeddings()
    weight = embedding.weight.detach()
    num_missing = max(ids) + 1 - len(weight)
    if num_missing > 0:
        more = weight.new_zeros(num_missing, weight.shape[1])
        embedding.weight = torch.nn.Parameter(torch.cat([weight, more]), requires_grad=False)
        embedding.num_embeddings = len(embedding.weight)
    return ids


def find_virtual_tokens(processor: Any) -> str:
    """Return the virtual tokens that prompts begin with; nothing if they begin with none."""
    found = _LEADING.match(processor.chat_template or "")
    return found.group() if found else ""


@contextmanager
def hide_virtual_tokens(processor: Any) -> Iterator[None]:
    """Let prompts begin without virtual tokens inside the block."""
    tokenizer = getattr(processor, "tokenizer", processor)
    templated = [(one, one.chat_template) for one in (processor, tokenizer)]
    try:
        for one, template in templated:
            one.chat_template = _LEADING.sub("", template)
        yield
    finally:
        for one, template in templated:
            one.chat_template = template
