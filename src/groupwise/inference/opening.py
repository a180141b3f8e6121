"""Which model answers single requests, as written in a config, and how it is opened."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Config, ModelError
from groupwise.inference.responder import Responder
from groupwise.inference.server_settings import ServerSettings


class ResponderSettings(Config):
    """A model in this process or one behind a server.

    Attributes:
        model: a model folder or hub id, run in this process.
        server: where a model is served instead.
        tokenizer: folder or hub id of the served model's tokenizer, if at hand: the first tokens
            of labels are then known.
        dtype, batch_size: of a model in this process.
        max_pixels: pictures are scaled down to at most so many, before they are sent to a server
            (None: as the model's processor says).
        device_map: ``auto`` spreads it over all GPUs, then memory and the disk, where one device
            is too small for it; None: one device.
    """

    model: str | None = None
    server: ServerSettings | None = None
    tokenizer: str | None = None
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "auto"
    batch_size: int = Field(default=16, ge=1, le=65_536)
    max_pixels: int | None = Field(default=None, ge=28 * 28)
    device_map: Literal["auto"] | None = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.model is None) == (self.server is None):
            raise ValueError("give model or server, and not both")
        if self.device_map is not None and self.model is None:
            raise ValueError("device_map needs model: a server places its model itself")
        return self


def open_responder(settings: ResponderSettings) -> Responder:
    """Load the model, or make ready to ask the server.

    Raises:
        ModelError: if the model or the tokenizer cannot be loaded.
        ConfigError: if the server's key is not set.
    """
    if settings.model is None:
        from groupwise.inference.server import ServerEngine

        assert settings.server is not None
        return ServerEngine(
            settings.server,
            tokenizer=_load_tokenizer(settings.tokenizer),
            max_pixels=settings.max_pixels,
        )
    # Behind the server's branch: another trainer's environment may lack what these need.
    from groupwise.inference.local import LocalEngine
    from groupwise.inference.local_responder import LocalResponder
    from groupwise.models.policy import load_policy

    policy = load_policy(
        settings.model,
        dtype=settings.dtype,
        max_pixels=settings.max_pixels,
        device_map=settings.device_map,
    )
    engine = LocalEngine(policy, batch_size=settings.batch_size)
    name = Path(settings.model).name
    return LocalResponder(engine, model=name, max_pixels=settings.max_pixels)


def _load_tokenizer(name: str | None) -> Any:
    from groupwise.models.processor import load_processor

    if name is None:
        return None
    try:
        return load_processor(name, model_type="", has_vision=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"cannot load the tokenizer {name} ({reason})") from error
