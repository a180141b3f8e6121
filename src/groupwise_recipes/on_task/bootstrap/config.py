"""Settings of the bootstrap recipe."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from groupwise.core import Config, Seed, Source
from groupwise_recipes.on_task.config import OnTaskJudgeSettings


class CaptionerSettings(Config):
    """The model that says what a picture shows.

    Attributes:
        model: a model folder or hub id of BLIP, such as ``Salesforce/blip-image-captioning-base``.
        max_new_tokens: of a caption.
        batch_size: pictures per forward pass.
    """

    model: str
    max_new_tokens: int = Field(default=30, ge=1, le=1024)
    batch_size: int = Field(default=8, ge=1, le=65_536)


class BootstrapConfig(Config):
    """The whole job.

    Attributes:
        seed: of the tasks and of which picture gets whose.
        pictures: a folder of pictures at any depth, or of webdataset shards (``*.tar``). Pictures
            of one folder below it are one session; those in the folder itself, and those of
            shards, are a session each.
        stored_pixels: pictures are stored scaled down to at most this many pixels.
        captioner: writes the captions; None: those that come with the pictures in shards.
        judge: as in on_task; it gives the labels.
        easy_from: judge's confidence from which a row is ``easy``; the others are ``hard``.
        min_rows: with fewer rows in the end the run stops.
    """

    seed: Seed = 0
    pictures: Annotated[Path, Source("data")]
    stored_pixels: int = Field(default=1_000_000, ge=28 * 28)
    captioner: CaptionerSettings | None = None
    judge: OnTaskJudgeSettings
    easy_from: float = Field(default=0.8, ge=0.5, le=1)
    min_rows: int = Field(default=1000, ge=1)
