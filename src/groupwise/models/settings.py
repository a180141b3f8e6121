"""Which model a recipe starts from, as its YAML says under ``model``."""

from pydantic import Field

from groupwise.core import Config
from groupwise.models.memory import ModelShape
from groupwise.models.tiny import PRESETS


class ModelSettings(Config):
    """The policy that training starts from.

    Attributes:
        base: a preset (``tiny-qwen2.5-vl``), a model folder or a hub id.
        max_pixels: pictures are scaled down to at most this many pixels.
        shape: used for estimates while the model is not in the local cache.
    """

    base: str
    max_pixels: int = Field(ge=28 * 28)
    shape: ModelShape | None = None

    @property
    def is_preset(self) -> bool:
        """Whether the model is built here; it knows nothing until it is taught."""
        return self.base in PRESETS
