"""Features of pictures and texts: embeddings of a CLIP model, kept on disk by content."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from groupwise.core import (
    DataError,
    ModelError,
    Picture,
    digest_bytes,
    digest_json,
    open_picture,
    replace_file,
)
from groupwise.models.identity import digest_base
from groupwise.models.silence import silence_libraries

_BATCH_SIZE = 64


def join_features(pictures: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
    """Return the re-normalised mean of normalised picture and text embeddings, shape [n, d]."""
    mean = (functional.normalize(pictures, dim=-1) + functional.normalize(texts, dim=-1)) / 2
    return functional.normalize(mean, dim=-1)


@dataclass(frozen=True)
class FeatureTable:
    """Items and their embeddings, each of length 1.

    Attributes:
        ids: of the items, all different.
        pictures: shape [items, d].
        texts: shape [items, d].
        digest: of the model that made them and of what it saw.
    """

    ids: tuple[str, ...]
    pictures: torch.Tensor
    texts: torch.Tensor
    digest: str

    @property
    def joined(self) -> torch.Tensor:
        """Re-normalised means of the embeddings, shape [items, d]: what a selector sees."""
        return join_features(self.pictures, self.texts)


class ClipFeatures:
    """Embeds pictures and texts with a CLIP model; what was embedded before is read from disk.

    Args:
        base: a folder or a hub id of a ``CLIPModel``.
        cache: takes ``<digest of the model>-pictures.npz`` and ``…-texts.npz``. A picture is known
            by the digest of its file, a text by its own.

    Attributes:
        size: d, the number of values of an embedding.
        digest: of the model: the digest of its folder, or the commit that its hub id stands for.
    """

    def __init__(self, base: str | Path, *, cache: Path) -> None:
        # Who only reads feature tables is spared the seconds that this takes.
        from transformers import AutoTokenizer, CLIPImageProcessorPil, CLIPModel

        digest = digest_base(base)
        try:
            with silence_libraries():
                model: Any = CLIPModel.from_pretrained(
                    base, use_safetensors=True if Path(base).is_dir() else None
                )
                self._model = model.eval()
            self._tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
            self._pixels = CLIPImageProcessorPil.from_pretrained(base)
        except (OSError, ValueError) as error:
            raise ModelError(
                f"cannot load the CLIP model {base}",
                got=str(error).splitlines()[0],
                expected="a folder or a hub id of a CLIPModel",
            ) from error
        self.size = int(self._model.config.projection_dim)
        self.digest = str(digest)
        self._cache = cache

    def embed_pictures(self, pictures: Sequence[Picture]) -> torch.Tensor:
        """Return embeddings of length 1, shape [pictures, d]."""
        by_digest = {picture.digest: picture for picture in pictures}
        known = self._complete("pictures", by_digest, self._encode_pictures)
        return torch.stack([known[picture.digest] for picture in pictures])

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Return embeddings of length 1, shape [texts, d]; long texts are truncated."""
        digests = [digest_bytes(text.encode()) for text in texts]
        by_digest = dict(zip(digests, texts, strict=True))
        known = self._complete("texts", by_digest, self._encode_texts)
        return torch.stack([known[digest] for digest in digests])

    def tabulate(self, items: Sequence[tuple[str, Picture, str]]) -> FeatureTable:
        """Return the embeddings of (id, picture, text) triples."""
        ids = tuple(one for one, _, _ in items)
        if len(set(ids)) < len(ids):
            raise DataError("two items have the same id", expected="different ids")
        content = [[one, picture.digest, text] for one, picture, text in items]
        return FeatureTable(
            ids,
            self.embed_pictures([picture for _, picture, _ in items]),
            self.embed_texts([text for _, _, text in items]),
            digest_json([self.digest, content]),
        )

    def _complete(
        self, kind: str, items: dict[str, Any], encode: Callable[[list[Any]], torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Return the embeddings by digest, after those that are missing were written."""
        self._cache.mkdir(parents=True, exist_ok=True)
        path = self._cache / f"{self.digest}-{kind}.npz"
        known = _read(path)
        missing = [digest for digest in items if digest not in known]
        for start in range(0, len(missing), _BATCH_SIZE):
            batch = missing[start : start + _BATCH_SIZE]
            with torch.inference_mode():
                found = functional.normalize(encode([items[one] for one in batch]), dim=-1)
            known |= dict(zip(batch, found.float(), strict=True))
        if missing:
            _write(path, known)
        return known

    def _encode_pictures(self, pictures: list[Picture]) -> torch.Tensor:
        opened = [open_picture(picture) for picture in pictures]
        pixels = self._pixels(images=opened, return_tensors="pt")["pixel_values"]
        return self._model.get_image_features(pixel_values=pixels).pooler_output

    def _encode_texts(self, texts: list[str]) -> torch.Tensor:
        inputs = self._tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=self._model.config.text_config.max_position_embeddings,
            return_tensors="pt",
        )
        named = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        return self._model.get_text_features(**named).pooler_output


def _read(path: Path) -> dict[str, torch.Tensor]:
    if not path.exists():
        return {}
    with np.load(path) as stored:
        vectors = torch.from_numpy(stored["vectors"])
        return dict(zip(stored["digests"].tolist(), vectors, strict=True))


def _write(path: Path, known: dict[str, torch.Tensor]) -> None:
    vectors = torch.stack(list(known.values())).numpy()
    stream = BytesIO()
    np.savez(stream, digests=np.array(list(known)), vectors=vectors)
    replace_file(path, [stream.getvalue()])
