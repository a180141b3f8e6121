"""Models, prompts and rewards of the GRPO benchmarks: real architectures with random weights."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from groupwise.models.policy import load_policy
from groupwise.models.tiny import write_tiny_policy

_LINEAR = "(?:q|k|v|o|gate|up|down)_proj"


@dataclass(frozen=True)
class Shape:
    """One job of GRPO.

    Attributes:
        group_size: completions per prompt.
        num_tokens: tokens of every completion.
        prompt_tokens: tokens of a text prompt; None: pictures and a question.
        last_blocks: language blocks that have LoRA; None: all.
        beta: weight of the KL penalty; above 0 the reference is scored, too.
        num_prompts: of a step.
        num_pictures: of a prompt that is no text.
    """

    group_size: int
    num_tokens: int
    prompt_tokens: int | None = None
    last_blocks: int | None = None
    beta: float = 0.04
    num_prompts: int = 2
    num_pictures: int = 1


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model.

    Attributes:
        num_layers, hidden_size: of the language blocks.
        vision_layers, vision_size: of the vision tower.
        side: pixels of a picture's side.
    """

    num_layers: int = 12
    hidden_size: int = 384
    vision_layers: int = 12
    vision_size: int = 256
    side: int = 448

    @property
    def picture_size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.side, self.side


def build_policy(shape: Shape, sizes: Sizes, *, dtype: torch.dtype = torch.float32) -> Any:
    """Return a PEFT model and its processor for a shape."""
    torch.manual_seed(0)
    has_pictures = shape.prompt_tokens is None
    with tempfile.TemporaryDirectory() as folder:
        base = "tiny-qwen2.5-vl" if has_pictures else "tiny-qwen2"
        policy = load_policy(write_tiny_policy(base, Path(folder)))
    model = _build_vl(policy, sizes) if has_pictures else _build_text(policy, sizes)
    model.generation_config = policy.model.generation_config
    if has_pictures:
        _use_real_patches(policy.processor.image_processor, sizes.side)
    model = add_lora(model.to(dtype), shape, num_layers=sizes.num_layers)
    return model, policy.processor


def _describe_text(base: Any, sizes: Sizes) -> dict[str, Any]:
    return base.to_dict() | {
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.hidden_size * 8 // 3,
        "num_hidden_layers": sizes.num_layers,
        "num_attention_heads": sizes.hidden_size // 64,
        "num_key_value_heads": max(1, sizes.hidden_size // 192),
        "layer_types": None,
        "initializer_range": 0.02,
    }


def _build_text(policy: Any, sizes: Sizes) -> Any:
    return Qwen2ForCausalLM(Qwen2Config(**_describe_text(policy.model.config, sizes)))


def _build_vl(policy: Any, sizes: Sizes) -> Any:
    base = policy.model.config
    rotary = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}
    text = _describe_text(base.text_config, sizes) | {"rope_parameters": rotary}
    vision = {
        "depth": sizes.vision_layers,
        "hidden_size": sizes.vision_size,
        "intermediate_size": sizes.vision_size * 3,
        "num_heads": sizes.vision_size // 64,
        "out_hidden_size": sizes.hidden_size,
        "fullatt_block_indexes": list(range(2, sizes.vision_layers, 3)),
        "tokens_per_second": 2,
    }
    ids = {name: value for name, value in base.to_dict().items() if name.endswith("_token_id")}
    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **ids)
    )


def _use_real_patches(image_processor: Any, side: int) -> None:
    image_processor.patch_size = 14
    image_processor.merge_size = 2
    image_processor.size = {"shortest_edge": 28 * 28, "longest_edge": side * side}


def add_lora(model: Any, shape: Shape, *, num_layers: int) -> Any:
    """Return the model with LoRA on its last language blocks."""
    last = num_layers if shape.last_blocks is None else shape.last_blocks
    blocks = "|".join(str(block) for block in range(num_layers - last, num_layers))
    return get_peft_model(
        model,
        LoraConfig(
            r=8,
            lora_alpha=16,
            target_modules=rf"^(?!.*(?:visual|vision)).*layers\.(?:{blocks})\..*{_LINEAR}",
            task_type="CAUSAL_LM",
        ),
    )


def make_rows(
    shape: Shape, tokenizer: Any, *, num_steps: int, picture_size: tuple[int, int]
) -> Dataset:
    """Return prompts for so many steps: noise with a question, or random words.

    Args:
        shape: of the job.
        tokenizer: counts the words' tokens.
        num_steps: each takes new prompts.
        picture_size: width and height in pixels.
    """
    places = range(shape.num_prompts * num_steps)
    if shape.prompt_tokens is None:
        question = [{"role": "user", "content": "What is on the screen?"}]
        each = range(shape.num_pictures)
        pictures = [
            [_draw_noise(place * len(each) + n, picture_size) for n in each] for place in places
        ]
        rows = {"prompt": [question for _ in places], "images": pictures}
        return Dataset.from_dict({"place": list(places)}).with_transform(
            lambda batch: {name: [rows[name][p] for p in batch["place"]] for name in rows}
        )
    texts = [_write_text(place, tokenizer, shape.prompt_tokens) for place in places]
    return Dataset.from_dict({"prompt": [[{"role": "user", "content": text}] for text in texts]})


def _draw_noise(seed: int, size: tuple[int, int]) -> Image.Image:
    shape = (size[1] // 8, size[0] // 8, 3)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8)).resize(
        size
    )


def _write_text(seed: int, tokenizer: Any, num_tokens: int) -> str:
    """Return random words of about so many tokens."""
    rng = random.Random(seed)
    words: list[str] = []
    while len(tokenizer(" ".join(words))["input_ids"]) < num_tokens:
        words += ["".join(rng.choices("abcdefghij", k=5)) for _ in range(4)]
    return " ".join(words)


def score_completions(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    """A reward without sense that differs between completions, in [0, 1]."""
    return [(sum(ids) % 97) / 96 for ids in completion_ids]
