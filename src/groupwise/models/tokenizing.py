"""Tokenizers with their chat templates, without what loads weights: torch is not imported here."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from groupwise.models.prompts import encode_as_written
from groupwise.models.settings import TINY_MODELS
from groupwise.models.silence import silence_libraries
from groupwise.models.sources import find_place

_SPECIAL_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
)
_MAX_VOCABULARY_SIZE = 1024


def train_tokenizer(texts: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on the built-in English and Chinese corpus and ``texts``."""
    corpus = files("groupwise.models").joinpath("tokenizer_corpus.txt").read_text("utf-8")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_MAX_VOCABULARY_SIZE,
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    tokenizer.train_from_iterator([*corpus.splitlines(), *texts], trainer)
    trained = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(_SPECIAL_TOKENS[1:]),
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
    template = files("groupwise.models").joinpath("chat_template.jinja").read_text("utf-8")
    trained.chat_template = template
    return trained


def find_tokenizer(
    base: str | Path, *, texts: Sequence[str] = ()
) -> PreTrainedTokenizerFast | None:
    """Return the tokenizer of a base with its chat template; nothing is fetched.

    That of a tiny random-init model is trained on ``texts``. None if the base is neither in a
    folder nor in the local cache, or has no chat template.
    """
    if base in TINY_MODELS:
        return encode_as_written(train_tokenizer(texts))
    try:
        with silence_libraries():
            found = PreTrainedTokenizerFast.from_pretrained(find_place(base), local_files_only=True)
    except (OSError, ValueError):
        return None
    return encode_as_written(found) if found.chat_template else None
