"""Which model a recipe starts from, as its YAML says under ``model``."""

from typing import Literal

from pydantic import Field

from groupwise.core import Config
from groupwise.models.memory import ModelShape

PRESETS = ("tiny-qwen2.5-vl", "tiny-qwen2")


class ModelSettings(Config):
    """The policy that training starts from.

    Attributes:
        base: a preset (``tiny-qwen2.5-vl``), a model folder or a hub id.
        dtype: of the weights in every step that loads them; float32 on a CPU, bfloat16 on a GPU.
        max_pixels: pictures are scaled down to at most this many pixels.
        shape: used for estimates while the model is not in the local cache.
    """

    base: str
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    max_pixels: int = Field(ge=28 * 28)
    shape: ModelShape | None = None

    @property
    def is_preset(self) -> bool:
        """Whether the model is built here; it knows nothing until it is taught."""
        return self.base in PRESETS
