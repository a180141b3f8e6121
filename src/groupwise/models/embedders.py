"""Published models that tell texts or pictures apart without being trained: what probes learn on.

They are looked for where ``groupwise models fetch`` puts them, and nothing is fetched here.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from groupwise.models.silence import silence_libraries
from groupwise.models.sources import find_cache

SENTENCES = "all-minilm-l6-v2"
"""MiniLM: sentence embeddings of English texts."""
TOWER = "dinov2-small"
"""DINOv2-S: features of pictures."""
Report = Callable[[int, int | None], None]
_BATCH = 16
_MAX_TOKENS = 256
_SIDE = 224
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def find_embedder(name: str) -> Path | None:
    """Return the folder of an embedder, or None where it was not fetched."""
    folders = sorted(find_cache().glob(f"models/{name}-*/config.json"))
    return folders[-1].parent if folders else None


@torch.inference_mode()
def embed_texts(
    folder: Path, texts: Sequence[str], report: Report = lambda done, total: None
) -> NDArray[np.float32]:
    """Return sentence embeddings (texts, width): the mean over a text's first 256 tokens."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model = _load(AutoModel, folder)
    found: list[Any] = []
    named = {"padding": True, "truncation": True, "max_length": _MAX_TOKENS}
    for start in range(0, len(texts), _BATCH):
        inputs = tokenizer(list(texts[start : start + _BATCH]), return_tensors="pt", **named)
        seen = inputs["attention_mask"].unsqueeze(-1)
        states = model(**inputs).last_hidden_state
        found.append((states * seen).sum(1) / seen.sum(1))
        report(sum(map(len, found)), len(texts))
    return torch.nn.functional.normalize(torch.cat(found), dim=-1).numpy()


@torch.inference_mode()
def embed_pictures(
    folder: Path,
    pictures: Iterable[Image.Image],
    report: Report = lambda done, total: None,
    *,
    num_pictures: int | None = None,
) -> NDArray[np.float32]:
    """Return features (pictures, 2 x width): the class token, and the mean over the patches.

    ``num_pictures`` is for ``report``; pictures may be opened as they are needed.
    """
    from transformers import Dinov2Model

    def scale(picture: Image.Image) -> NDArray[np.float32]:
        small = picture.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
        pixels = (np.asarray(small, dtype=np.float32) / 255 - _MEAN) / _STD
        return pixels.transpose(2, 0, 1).astype(np.float32)

    model = _load(Dinov2Model, folder)
    found: list[Any] = []
    scaled = map(scale, pictures)
    while batch := list(islice(scaled, _BATCH)):
        states = model(torch.from_numpy(np.stack(batch))).last_hidden_state
        found.append(torch.cat([states[:, 0], states[:, 1:].mean(1)], dim=-1))
        report(sum(map(len, found)), num_pictures)
    return torch.cat(found).numpy()


def _load(auto: Any, folder: Path) -> Any:
    with silence_libraries():
        return auto.from_pretrained(folder, dtype=torch.float32).eval()
