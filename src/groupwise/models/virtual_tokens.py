"""Virtual tokens in front of every prompt, whose input vectors alone are trained (prompt tuning).

They are tokens of the tokenizer, and the chat template writes them first: pictures, positions,
generation, labels and shared prefixes take them as any other token of a prompt. Only the input
embedding knows the trained vectors. The head keeps the base's rows, so that the model is not
taught to write these ids; where the base has no row left for them, it cannot write them at all.

Source: Lester et al. 2021 (2104.08691).
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import Field

from groupwise.core import Config, ConfigError, ModelError

_TOKEN = "<|virtual_token_{}|>"
_LEADING = re.compile(r"^(?:<\|virtual_token_\d+\|>)+")
KIND = "TRAINABLE_TOKENS"
"""What PEFT calls an adapter of vectors of chosen ids."""


class PromptSettings(Config):
    """Virtual tokens in front of the prompt.

    Attributes:
        num_tokens: how many.
        words: their vectors start as those of these words' tokens, which are repeated or cut to
            their number; None: as those of tokens that are drawn by the seed.
    """

    num_tokens: int = Field(default=10, ge=1, le=16_384)
    words: str | None = Field(default=None, min_length=1)


def add_virtual_tokens(model: Any, processor: Any, settings: PromptSettings) -> Any:
    """Put virtual tokens before the prompts of a model that has none, and return a PEFT model.

    The processor is changed in place. The first vectors are drawn from torch's generator.
    """
    from peft import TrainableTokensConfig, get_peft_model

    starts = _choose_starts(get_tokenizer(processor), settings)
    vectors = model.get_input_embeddings().weight[starts].detach().clone()
    ids = write_virtual_tokens(processor, settings.num_tokens)
    make_room(model, ids)
    model = get_peft_model(model, TrainableTokensConfig(token_indices=ids, task_type="CAUSAL_LM"))
    find_vectors(model).data.copy_(vectors)
    return model


def continue_virtual_tokens(model: Any, settings: PromptSettings) -> Any:
    """Let the vectors that a PEFT model has be trained further."""
    vectors = find_vectors(model)
    if len(vectors) != settings.num_tokens:
        raise ConfigError(
            "prompt.num_tokens is not that of the policy that is continued",
            got=settings.num_tokens,
            expected=len(vectors),
        )
    vectors.requires_grad_(True)
    return model


def find_vectors(model: Any) -> Any:
    """Return the vectors of the virtual tokens of a PEFT model, shape [tokens, hidden]."""
    return model.get_input_embeddings().trainable_tokens_delta["default"]


def get_tokenizer(processor: Any) -> Any:
    """Return the tokenizer inside a processor, or the tokenizer itself."""
    return getattr(processor, "tokenizer", processor)


def write_virtual_tokens(processor: Any, num_tokens: int) -> list[int]:
    """Let every prompt of a processor begin with new tokens; return their ids."""
    tokenizer, names = get_tokenizer(processor), _name_tokens(num_tokens)
    if names[0] in tokenizer.get_vocab():
        raise ConfigError(
            "the base has virtual tokens already",
            got=f"a tokenizer with {names[0]}",
            fix="start from the base of that model, or go on from its adapter",
        )
    tokenizer.add_special_tokens(
        {"extra_special_tokens": names}, replace_extra_special_tokens=False
    )
    for one in _list_templated(processor):
        one.chat_template = "".join(names) + one.chat_template
    return tokenizer.convert_tokens_to_ids(names)


def make_room(model: Any, ids: Sequence[int]) -> None:
    """Keep the head of a model as it is, whatever becomes of the vectors of these ids.

    PEFT would train the rows of a tied head, too. The input embedding alone gets rows for ids
    that are beyond it.
    """
    import torch

    model.config.tie_word_embeddings = False
    embedding = model.get_input_embeddings()
    weight = embedding.weight.detach()
    num_missing = max(ids) + 1 - len(weight)
    if num_missing > 0:
        more = weight.new_zeros(num_missing, weight.shape[1])
        embedding.weight = torch.nn.Parameter(torch.cat([weight, more]), requires_grad=False)
        embedding.num_embeddings = len(embedding.weight)


def load_virtual_tokens(model: Any, processor: Any, ids: Sequence[int]) -> None:
    """Make a base and its processor ready for saved vectors of these ids."""
    found = write_virtual_tokens(processor, len(ids))
    if found != list(ids):
        raise ModelError(
            "the virtual tokens of the adapter do not belong to this base",
            got=f"ids {ids[0]} to {ids[-1]}",
            expected=f"{found[0]} to {found[-1]}, the next of its tokenizer",
        )
    make_room(model, ids)


def find_virtual_tokens(processor: Any) -> str:
    """Return the virtual tokens that prompts begin with; nothing if they begin with none."""
    found = _LEADING.match(processor.chat_template or "")
    return found.group() if found else ""


@contextmanager
def hide_virtual_tokens(processor: Any) -> Iterator[None]:
    """Let prompts begin without virtual tokens inside the block."""
    templated = [(one, one.chat_template) for one in _list_templated(processor)]
    try:
        for one, template in templated:
            one.chat_template = _LEADING.sub("", template)
        yield
    finally:
        for one, template in templated:
            one.chat_template = template


def separate_head(model: Any) -> None:
    """Give a head that shares its weights with the input embedding a copy, before it is merged."""
    import torch

    head, embedding = model.get_output_embeddings(), model.get_input_embeddings().base_layer
    if len(head.weight) < len(embedding.weight):
        raise ModelError(
            "virtual tokens cannot be merged into this base",
            got=f"{len(head.weight)} rows of the head",
            expected=f"{len(embedding.weight)}: its tokenizer uses all rows, and leaves none free",
            fix="take the policy's folder as it is, which is an adapter",
        )
    head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)


def _choose_starts(tokenizer: Any, settings: PromptSettings) -> list[int]:
    """Return the ids whose vectors the virtual tokens start as."""
    import torch

    num_tokens = settings.num_tokens
    if settings.words is not None:
        ids = tokenizer.encode(settings.words, add_special_tokens=False)
        return [ids[number % len(ids)] for number in range(num_tokens)]
    added = set(tokenizer.get_added_vocab().values())
    ids = [number for number in range(len(tokenizer)) if number not in added]
    return [ids[place] for place in torch.randint(len(ids), (num_tokens,)).tolist()]


def _name_tokens(num_tokens: int) -> list[str]:
    return [_TOKEN.format(number) for number in range(num_tokens)]


def _list_templated(processor: Any) -> list[Any]:
    """Return what has the chat template: a tokenizer, and the processor around it."""
    tokenizer = get_tokenizer(processor)
    return [tokenizer] if tokenizer is processor else [processor, tokenizer]
