"""What says what a picture shows: BLIP, which is given pictures alone, or a served chat model."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from groupwise.core import Message, ModelError, Picture, make_example, open_picture
from groupwise.inference.model import (
    RequestError,
    Sampling,
    ask_until_whole,
    retry,
    run_on_shared_loop,
)
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import ServerSettings
from groupwise_recipes.on_task.bootstrap.config import CaptionerSettings

_TYPES = ("blip",)
# A served caption that is cut off is asked for anew, with twice as many.
_MAX_NEW_TOKENS = 30
_PROMPT = "Say in one short sentence what this picture shows. Reply with that sentence alone."
_UNUSABLE = ("no_content", "empty", "truncated")
"""Replies that are no caption, however often they were asked for."""


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
        self._processor, self._model = _load(settings.name, revision)
        self.source: dict[str, str | None] = {"model": settings.name, "revision": revision}

    def caption(self, pictures: Sequence[Picture]) -> list[str]:
        """Return a caption for each picture, in order."""
        import torch

        opened = [open_picture(picture) for picture in pictures]
        inputs = self._processor(images=opened, return_tensors="pt").to(self._model.device)
        with torch.inference_mode():
            tokens = self._model.generate(
                **inputs,
                max_new_tokens=_MAX_NEW_TOKENS,
                do_sample=False,
                num_beams=1,
            )
        return self._processor.batch_decode(tokens, skip_special_tokens=True)


class ServedCaptioner:
    """A chat model behind a server; greedy.

    Args:
        server: where and how it is asked.

    Raises:
        ConfigError: if it may not be asked (see ``ServerModel``).
    """

    def __init__(self, server: ServerSettings) -> None:
        self._engine = ServerModel(server)
        self._sampling = Sampling(max_new_tokens=_MAX_NEW_TOKENS)
        self.source = {name: self._engine.identity[name] for name in ("model", "revision")}

    def caption(self, pictures: Sequence[Picture]) -> list[str]:
        """Return a caption for each picture, in order; empty where no reply was whole."""

        async def ask_all() -> list[str]:
            return await asyncio.gather(*map(self._ask, pictures))

        return run_on_shared_loop(ask_all())

    async def _ask(self, picture: Picture) -> str:
        asked = make_example([Message("user", _PROMPT)], cluster="", pictures=[picture])
        try:
            attempt = ask_until_whole(self._engine, asked, self._sampling)
            text, _ = await retry(attempt, self._engine.settings.retry)
        except RequestError as error:
            if error.cause in _UNUSABLE:
                return ""
            raise
        return text


def open_captioner(settings: CaptionerSettings, *, revision: str | None) -> Captioner:
    """Load the model, or make ready to ask its server; a server says its own revision."""
    if settings.server is not None:
        return ServedCaptioner(settings.server)
    assert revision is not None
    return BlipCaptioner(settings, revision=revision)


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

    from groupwise.models.base_model import refuse_missing

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
