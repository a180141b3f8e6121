"""Token ids of prompts: one way for training, answers, serving and whatever reads an export.

A chat template writes every control token of a prompt, the first one, too. Some tokenizers (those
of Llama 3, Gemma and Mistral) put that one before any text, and some callers let them: the model
would then be trained on one prompt and asked another.
"""

from functools import cache
from typing import Any


class _AsWritten:
    """A tokenizer that adds no tokens to a text, whoever calls it, and however."""

    def _encode_plus(
        self, text: Any, text_pair: Any = None, add_special_tokens: bool = False, **named: Any
    ) -> Any:
        own: Any = super()
        return own._encode_plus(text, text_pair, add_special_tokens=False, **named)


@cache
def _derive(own: type, more: type) -> type:
    """Return a class of the same name, so that what it saves others open."""
    return type(own.__name__, (more, own), {})


def encode_as_written(processor: Any) -> Any:
    """Let a processor, or a tokenizer, make ids of what its template writes and of nothing else.

    Calls, ``encode`` and ``apply_chat_template`` all do so then. What it saves stays as it was.
    """
    tokenizer = getattr(processor, "tokenizer", processor)
    tokenizer.__class__ = _derive(type(tokenizer), _AsWritten)
    return processor
