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
from groupwise.models.silence import silence_libraries
from groupwise.models.tokenizing import train_tokenizer

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
    losses = _Losses(model, pixels, tokenizer, captioned, texts)
    optimizer = torch.optim.AdamW(losses.parameters(), lr=_LEARNING_RATE)
    rng = random.Random(derive_seed(seed, "order of captions"))
    for _ in range(num_steps):
        loss = losses.draw(rng, batch_size)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for part in (model, pixels, tokenizer):
        with silence_libraries():
            part.save_pretrained(folder)
    return folder


class _Losses:
    """Losses of batches that are drawn: captions find their pictures, texts keep their words."""

    def __init__(
        self,
        model: Any,
        pixels: Any,
        tokenizer: PreTrainedTokenizerFast,
        captioned: Sequence[tuple[Picture, str]],
        texts: Sequence[str],
    ) -> None:
        opened = [open_picture(picture) for picture, _ in captioned]
        self._model, self._tokenizer = model, tokenizer
        self._pictures = pixels(images=opened, return_tensors="pt")["pixel_values"]
        self._captions = self._read([caption for _, caption in captioned])
        # Reads the words off a text's embedding. Captions have few words of questions: without it
        # an embedding hardly tells questions apart that differ in one of them.
        self._words = torch.nn.Linear(model.config.projection_dim, len(tokenizer))
        self._texts = sorted(set(texts))

    def parameters(self) -> list[torch.nn.Parameter]:
        return [*self._model.parameters(), *self._words.parameters()]

    def draw(self, rng: random.Random, batch_size: int) -> torch.Tensor:
        places = rng.sample(range(len(self._pictures)), batch_size)
        loss = self._model(
            input_ids=self._captions["input_ids"][places],
            attention_mask=self._captions["attention_mask"][places],
            pixel_values=self._pictures[places],
            return_loss=True,
        ).loss
        if not self._texts:
            return loss
        told = rng.sample(self._texts, min(batch_size, len(self._texts)))
        return loss + self._find_words(self._read(told))

    def _read(self, texts: Sequence[str]) -> Any:
        return self._tokenizer(list(texts), padding=True, return_tensors="pt")

    def _find_words(self, inputs: Any) -> torch.Tensor:
        """Return the cross-entropy of the words of texts, read off their embeddings."""
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        found = self._model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output
        log_probs = self._words(_LOUDNESS * functional.normalize(found, dim=-1)).log_softmax(-1)
        is_word = (mask == 1) & (ids != self._model.config.text_config.eos_token_id)
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
