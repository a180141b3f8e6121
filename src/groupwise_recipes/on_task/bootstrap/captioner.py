"""What says what a picture shows. A captioner is no chat model: it is given pictures alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from groupwise.core import ModelError, Picture, open_picture
from groupwise_recipes.on_task.bootstrap.config import CaptionerSettings

_TYPES = ("blip",)


class Captioner(Protocol):
    """Says of each picture what it shows."""

    @property
    def source(self) -> dict[str, str | None]:
        """Model and revision, kept with every caption."""
        ...

    def caption(self, pictures: Sequence[Picture]) -> list[str]:
        """Return a caption for each picture, in order."""
        ...


class BlipCaptioner:
    """BLIP from a model folder or the hub; the likeliest token is taken at every step.

    Args:
        settings: which model, and how it is asked.
        revision: digest of the folder, or the commit of the hub id.

    Raises:
        ModelError: if it cannot be loaded, or is no BLIP.
    """

    def __init__(self, settings: CaptionerSettings, *, revision: str) -> None:
        self._settings = settings
        self._processor, self._model = _load(settings.model, revision)
        self.source: dict[str, str | None] = {"model": settings.model, "revision": revision}

    def caption(self, pictures: Sequence[Picture]) -> list[str]:
        """Return a caption for each picture, in order."""
        import torch

        opened = [open_picture(picture) for picture in pictures]
        inputs = self._processor(images=opened, return_tensors="pt").to(self._model.device)
        with torch.inference_mode():
            tokens = self._model.generate(
                **inputs,
                max_new_tokens=self._settings.max_new_tokens,
                do_sample=False,
                num_beams=1,
            )
        return self._processor.batch_decode(tokens, skip_special_tokens=True)


def caption_in_batches(
    captioner: Captioner,
    pictures: Sequence[Picture],
    *,
    batch_size: int,
    keep: Callable[[Picture, str], None],
) -> None:
    """Caption pictures, and hand each caption over as soon as its batch is done."""
    for start in range(0, len(pictures), batch_size):
        batch = pictures[start : start + batch_size]
        for picture, caption in zip(batch, captioner.caption(batch), strict=True):
            keep(picture, caption)


def _load(model: str, revision: str) -> tuple[Any, Any]:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor

    from groupwise.models import refuse_missing

    known: dict[str, Any] = {"trust_remote_code": False}
    if not Path(model).is_dir():
        known["revision"] = revision
    with refuse_missing(model):
        kind = AutoConfig.from_pretrained(model, **known).model_type
        if kind not in _TYPES:
            raise ModelError(f"{model} is no captioner", got=kind, expected=" or ".join(_TYPES))
        # Pillow's pixels everywhere, whether or not torchvision is installed.
        processor = AutoProcessor.from_pretrained(model, backend="pil", **known)
        loaded: Any = AutoModelForImageTextToText.from_pretrained(model, **known)
    return processor, loaded.eval().to("cuda" if torch.cuda.is_available() else "cpu")
