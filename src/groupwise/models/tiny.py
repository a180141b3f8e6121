"""Tiny policies built here: real architectures with a few million random weights.

They take the same code path as a 7B model from the hub: the preset writes a folder and
``load_policy`` reads it. They know nothing until they are trained.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLImageProcessorPil,
)

from groupwise.core import ModelError, derive_seed, seed_everything
from groupwise.models.processor import PictureProcessor
from groupwise.models.silence import silence_libraries

PRESETS = ("tiny-qwen2.5-vl", "tiny-qwen2")

_SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_HIDDEN_SIZE = 192
_INITIAL_STD = 0.06
# A tiny model has few steps to learn where to look. Slow rotations would make neighbouring rows
# and columns of a small picture look alike, and random biases of queries and keys give each
# head a region of its own from the start.
_ROPE_THETA = 10.0
_INITIAL_BIAS_STD = 2.0
_NUM_SPREAD_BLOCKS = 2
_NUM_LAYERS = 4
_MAX_VOCABULARY_SIZE = 2048
_VOCABULARY_MULTIPLE = 64
_PATCH_SIZE = 14


def write_tiny_policy(
    preset: str, folder: Path, *, seed: int = 0, texts: Sequence[str] = (), max_pixels: int = 50_176
) -> Path:
    """Write a tiny policy with random weights as a folder that ``from_pretrained`` loads.

    Args:
        preset: ``tiny-qwen2.5-vl`` (pictures and text) or ``tiny-qwen2`` (text).
        folder: where to write; made if missing.
        seed: of the random weights.
        texts: texts of the task, learned by the byte-level BPE besides the built-in corpus.
        max_pixels: pictures are scaled down to at most this many pixels; one token stands for
            28 x 28 of them.

    Raises:
        ModelError: if the preset is unknown.
    """
    if preset not in PRESETS:
        raise ModelError("unknown preset", got=repr(preset), expected=" or ".join(PRESETS))
    has_vision = preset == "tiny-qwen2.5-vl"
    tokenizer = train_tokenizer(texts)
    template = files("groupwise.models").joinpath("chat_template.jinja").read_text("utf-8")
    tokenizer.chat_template = template
    if has_vision:
        image_processor = Qwen2VLImageProcessorPil(
            patch_size=_PATCH_SIZE,
            merge_size=2,
            temporal_patch_size=2,
            size={"shortest_edge": 28 * 28, "longest_edge": max_pixels},
        )
        PictureProcessor(image_processor, tokenizer, chat_template=template).save_pretrained(folder)
    else:
        tokenizer.save_pretrained(folder)
    seed_everything(derive_seed(seed, "weights", preset))
    model = (
        Qwen2_5_VLForConditionalGeneration(_make_vl_config(tokenizer))
        if has_vision
        else Qwen2ForCausalLM(_make_text_config(tokenizer))
    )
    if has_vision:
        _spread_attention(model)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.generation_config.pad_token_id = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    with silence_libraries():
        model.save_pretrained(folder)
    return folder


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
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(_SPECIAL_TOKENS[1:]),
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def _make_text_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2Config:
    return Qwen2Config(**_describe_text(tokenizer))


def _describe_text(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    return {
        "vocab_size": -(-len(tokenizer) // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE,
        "hidden_size": _HIDDEN_SIZE,
        "intermediate_size": 3 * _HIDDEN_SIZE,
        "num_hidden_layers": _NUM_LAYERS,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "initializer_range": _INITIAL_STD,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "pad_token_id": tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    }


def _make_vl_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    text = _describe_text(tokenizer) | {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": _ROPE_THETA,
            "mrope_section": [4, 6, 6],
        },
    }
    vision = {
        "depth": 4,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_heads": 4,
        "out_hidden_size": _HIDDEN_SIZE,
        "patch_size": _PATCH_SIZE,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [0, 1, 2, 3],
        "tokens_per_second": 2,
        "initializer_range": _INITIAL_STD,
    }
    ids: dict[str, Any] = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(token)
        for name, token in {
            "image": "<|image_pad|>",
            "video": "<|video_pad|>",
            "vision_start": "<|vision_start|>",
            "vision_end": "<|vision_end|>",
        }.items()
    }
    return Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **ids)


def _spread_attention(model: PreTrainedModel) -> None:
    """Draw the biases of the first blocks' queries and keys, which start at 0 otherwise."""
    for name, parameter in model.get_decoder().named_parameters():
        is_first = name.startswith(tuple(f"layers.{index}." for index in range(_NUM_SPREAD_BLOCKS)))
        if is_first and name.endswith(("q_proj.bias", "k_proj.bias")):
            torch.nn.init.normal_(parameter, std=_INITIAL_BIAS_STD)
