"""A tiny CLIP model, built here and trained by its contrastive loss on captioned pictures."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers.processors import TemplateProcessing
from torch.nn import functional
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, PreTrainedTokenizerFast

from groupwise.core import Picture, TrainingError, derive_seed, open_picture, seed_everything
from groupwise.models import silence_libraries, train_tokenizer

_SIDE = 32
_TEXT_LENGTH = 32
_LEARNING_RATE = 1e-3
_LOUDNESS = 10.0


def write_tiny_clip(
    folder: Path,
    captioned: Sequence[tuple[Picture, str]],
    *,
    texts: Sequence[str] = (),
    seed: int = 0,
    num_steps: int = 150,
    batch_size: int = 64,
) -> Path:
    """Train a tiny CLIP model and write it as a folder that ``CLIPModel`` loads.

    Its embeddings have 512 values, as those of ViT-B/32; pictures are scaled to 32 x 32 pixels.

    Args:
        folder: made if missing.
        captioned: pictures and what is seen on them.
        texts: such as questions; the tokenizer learns them and the captions, and the text tower
            learns to keep their words.
        seed: of the weights and of the order.
        num_steps: of AdamW.
        batch_size: pairs of a step; each caption has to find its picture among them.

    Raises:
        TrainingError: if there are fewer pairs than a batch.
    """
    if len(captioned) < batch_size:
        raise TrainingError(
            "too few captioned pictures for a batch",
            got=len(captioned),
            expected=f"at least {batch_size}",
        )
    tokenizer = _make_tokenizer([*texts, *(caption for _, caption in captioned)])
    size = {"shortest_edge": _SIDE}
    crop = {"height": _SIDE, "width": _SIDE}
    pixels = CLIPImageProcessorPil(size=size, crop_size=crop)
    seed_everything(derive_seed(seed, "tiny clip"))
    model: Any = CLIPModel(_make_config(tokenizer))
    pictures = pixels(
        images=[open_picture(picture) for picture, _ in captioned], return_tensors="pt"
    )["pixel_values"]
    captions = tokenizer([caption for _, caption in captioned], padding=True, return_tensors="pt")
    # Reads the words off a text's embedding. Captions have few words of questions: without it
    # an embedding hardly tells questions apart that differ in one of them.
    words = torch.nn.Linear(model.config.projection_dim, len(tokenizer))
    distinct = sorted(set(texts))
    parameters = [*model.parameters(), *words.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=_LEARNING_RATE)
    rng = random.Random(derive_seed(seed, "order of captions"))
    for _ in range(num_steps):
        places = rng.sample(range(len(captioned)), batch_size)
        loss = model(
            input_ids=captions["input_ids"][places],
            attention_mask=captions["attention_mask"][places],
            pixel_values=pictures[places],
            return_loss=True,
        ).loss
        if distinct:
            told = rng.sample(distinct, min(batch_size, len(distinct)))
            loss = loss + _find_words(
                model, words, tokenizer(told, padding=True, return_tensors="pt")
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for part in (model, pixels, tokenizer):
        with silence_libraries():
            part.save_pretrained(folder)
    return folder


def _find_words(model: Any, words: torch.nn.Linear, inputs: Any) -> torch.Tensor:
    """Return the cross-entropy of the words of texts, read off their embeddings."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    embedded = model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output
    log_probs = words(_LOUDNESS * functional.normalize(embedded, dim=-1)).log_softmax(-1)
    is_word = (mask == 1) & (ids != model.config.text_config.eos_token_id)
    return -log_probs.gather(1, ids)[is_word].mean()


def _make_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer that ends each text, where CLIP's text tower reads it.

    The end is the padding token, as CLIP's own: Transformers reads a text whose end has the id 2,
    as the policies' end token, at its largest id instead, whatever word that is.
    """
    tokenizer = train_tokenizer(texts)
    tokenizer.padding_side = "right"
    end = tokenizer.eos_token = str(tokenizer.pad_token)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, tokenizer.convert_tokens_to_ids(end))]
    )
    tokenizer.chat_template = None
    return tokenizer


def _make_config(tokenizer: PreTrainedTokenizerFast) -> CLIPConfig:
    shared = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "projection_dim": 512,
    }
    text = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": _TEXT_LENGTH,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {"image_size": _SIDE, "patch_size": 8}
    return CLIPConfig(text_config=shared | text, vision_config=shared | vision, projection_dim=512)
