"""Tiny policies built here: real architectures with a few million random weights.

They take the same code path as a 7B model from the hub: a folder is written and
``load_policy`` reads it. They know nothing until they are trained.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2VLImageProcessorPil,
)

from groupwise.core import ModelError, derive_seed, seed_everything
from groupwise.models.processor import PictureProcessor
from groupwise.models.prompts import TINY_TOKEN_SIDE
from groupwise.models.settings import TINY_MODELS, TINY_VISION_MODEL
from groupwise.models.silence import silence_libraries
from groupwise.models.tokenizing import train_tokenizer

_HIDDEN_SIZE = 192
_NUM_LAYERS = 3
_INITIAL_STD = 0.06
_VOCABULARY_MULTIPLE = 64
# Of a start that looks back: dimensions that rotate fastest, and how far weights are changed.
_FAST = 4
_SHARPNESS = 6.0
_FAINT = 0.1
_LOUDNESS = 2.0
# The aligner joins 8 x 8 patches into one token, side by side, so each patch of a token has
# weights of its own: a layout is learned in a few hundred steps. Patches that only meet in
# attention, as in larger models, have to learn first where they are.
_MERGE_SIZE = 8
_PATCH_SIZE = TINY_TOKEN_SIDE // _MERGE_SIZE


def write_tiny_policy(
    base: str,
    folder: Path,
    *,
    seed: int = 0,
    texts: Sequence[str] = (),
    max_pixels: int = 4 * TINY_TOKEN_SIDE**2,
    looks_back: bool = False,
) -> Path:
    """Write a tiny policy with random weights as a folder that ``from_pretrained`` loads.

    Args:
        base: ``tiny-qwen2.5-vl`` (pictures and text) or ``tiny-qwen2`` (text).
        folder: where to write; made if missing.
        seed: of the random weights.
        texts: texts of the task, learned by the byte-level BPE besides the built-in corpus.
        max_pixels: pictures are scaled down to at most this many pixels; one token stands for
            128 x 128 of them, and a picture has at least one.
        looks_back: a start that makes looking up what was shown before easy to learn. Three heads
            of the first block begin by looking at the token itself and at the ones 1 and 2 back,
            and write them to the same place; in the second block keys begin as queries, so that a
            token looks at others that come shortly after the same tokens. Models that have read
            much have both by themselves (induction heads). Nothing is fixed by it, and all other
            weights are random.

    Raises:
        ModelError: if there is no such model.
    """
    if base not in TINY_MODELS:
        raise ModelError("unknown tiny model", got=repr(base), expected=" or ".join(TINY_MODELS))
    has_vision = base == TINY_VISION_MODEL
    tokenizer = train_tokenizer(texts)
    if has_vision:
        image_processor = make_tiny_image_processor(max_pixels)
        template = str(tokenizer.chat_template)
        PictureProcessor(image_processor, tokenizer, chat_template=template).save_pretrained(folder)
    else:
        tokenizer.save_pretrained(folder)
    seed_everything(derive_seed(seed, "weights", base))
    model = (
        Qwen2_5_VLForConditionalGeneration(_make_vl_config(tokenizer))
        if has_vision
        else Qwen2ForCausalLM(Qwen2Config(**_describe_text(tokenizer)))
    )
    if looks_back:
        _let_look_back(model.model.language_model if has_vision else model.model)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.generation_config.pad_token_id = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    with silence_libraries():
        model.save_pretrained(folder)
    return folder


def make_tiny_image_processor(max_pixels: int) -> Qwen2VLImageProcessorPil:
    """Return what turns pictures into patches for a tiny model with vision."""
    return Qwen2VLImageProcessorPil(
        patch_size=_PATCH_SIZE,
        merge_size=_MERGE_SIZE,
        temporal_patch_size=2,
        size={"shortest_edge": TINY_TOKEN_SIDE**2, "longest_edge": max_pixels},
    )


@torch.no_grad()
def _let_look_back(decoder: Any) -> None:
    """Change random weights in place to what ``looks_back`` says."""
    first, second = (layer.self_attn for layer in decoder.layers[:2])
    size, per_key = first.head_dim, first.num_key_value_groups
    half, turns = size // 2, decoder.rotary_emb.inv_freq[:_FAST]
    first.k_proj.bias[:size] = 0
    first.k_proj.bias[:_FAST] = _SHARPNESS
    first.k_proj.weight[:size] *= _FAINT
    for distance in range(per_key):
        head = slice(distance * size, (distance + 1) * size)
        query = first.q_proj.bias[head]
        query.zero_()
        # The rotation between a query and a key that lies this far back is undone.
        query[:_FAST] = _SHARPNESS * torch.cos(distance * turns)
        query[half : half + _FAST] = -_SHARPNESS * torch.sin(distance * turns)
        first.q_proj.weight[head] *= _FAINT
    first.o_proj.weight[:, :size] *= _LOUDNESS
    for distance in range(1, per_key):
        head = slice(distance * size, (distance + 1) * size)
        first.o_proj.weight[:, head] = first.o_proj.weight[:, :size]
    keys = second.k_proj.weight.view(-1, 2, half, _HIDDEN_SIZE)
    keys[:, :, :_FAST] *= _FAINT  # what turns fast would tell distances apart, not contents
    shared = second.k_proj.weight.view(-1, 1, size, _HIDDEN_SIZE).expand(-1, per_key, -1, -1)
    second.q_proj.weight.copy_(_LOUDNESS * shared.reshape(-1, _HIDDEN_SIZE))


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
    rotary = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 6, 6]}
    text = _describe_text(tokenizer) | {"rope_parameters": rotary}
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 96,
        "num_heads": 2,
        "out_hidden_size": _HIDDEN_SIZE,
        "patch_size": _PATCH_SIZE,
        "spatial_merge_size": _MERGE_SIZE,
        "temporal_patch_size": 2,
        "window_size": 4 * TINY_TOKEN_SIDE,
        "fullatt_block_indexes": [0],
        "tokens_per_second": 2,
        "initializer_range": _INITIAL_STD,
    }
    tokens = ("image_pad", "video_pad", "vision_start", "vision_end")
    ids: dict[str, Any] = {
        f"{token.removesuffix('_pad')}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>")
        for token in tokens
    }
    return Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **ids)
