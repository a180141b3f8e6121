"""Settings of the bootstrap recipe."""

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from groupwise.core import Config, Seed, Source
from groupwise.inference.settings import ServerSettings
from groupwise_recipes.on_task.config import OnTaskJudgeSettings


class CaptionerSettings(Config):
    """The model that says what a picture shows.

    Attributes:
        model: a model folder or hub id of BLIP, such as ``Salesforce/blip-image-captioning-base``.
        server: where a chat model that sees pictures is served instead.
        batch_size: pictures per forward pass, or that a server is asked about at once.
    """

    retired: ClassVar = {"max_new_tokens": (30,)}
    model: str | None = None
    server: ServerSettings | None = None
    batch_size: int = Field(default=8, ge=1, le=65_536)

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.model is None) == (self.server is None):
            raise ValueError("give model or server, and not both")
        return self

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.server.model if self.server else str(self.model)


class BootstrapConfig(Config):
    """The whole job.

    Attributes:
        seed: of the tasks and of which picture gets whose.
        pictures: a folder of pictures at any depth, or of webdataset shards (``*.tar``). Pictures
            of one folder below it are one session; those in the folder itself, and those of
            shards, are a session each.
        captioner: writes the captions; None: those that come with the pictures in shards.
        judge: as in on_task; it gives the labels.
        min_rows: with fewer rows in the end the run stops.
    """

    retired: ClassVar = {"easy_from": (0.8,), "stored_pixels": (1_000_000,)}
    seed: Seed = 0
    pictures: Annotated[Path, Source("data")]
    captioner: CaptionerSettings | None = None
    judge: OnTaskJudgeSettings
    min_rows: int = Field(default=1000, ge=1)
