"""Which model a recipe starts from."""

from typing import Annotated, Literal

from pydantic import Field

from groupwise.core import Config, Harmless, Source


class ModelShape(Config):
    """What is known of a model without loading it.

    Attributes:
        num_parameters: all of them.
        num_blocks: language blocks.
    """

    num_parameters: int = Field(ge=1, le=10**13)
    num_blocks: int = Field(ge=1)


Quantization = Literal["nf4"]
TINY_VISION_MODEL = "tiny-qwen2.5-vl"
TINY_MODELS = (TINY_VISION_MODEL, "tiny-qwen2")
_ESTIMATED = Harmless("only for estimates before a run", "仅用于运行前的估算")


class ModelSettings(Config):
    """The policy that training starts from.

    Attributes:
        base: a name that ``groupwise models`` lists, a hub id, a model folder, a GGUF file, or a
            tiny random-init model (``tiny-qwen2.5-vl``).
        dtype: of the weights in every step that loads them; float32 on a CPU, bfloat16 on a GPU.
        quantization: ``nf4``: linear layers but the output head are held in 4 bits for each weight
            in every step, and a LoRA trains on them (QLoRA; ``pip install
            'groupwise[quantization]'``); None: in ``dtype``, as all else.
        max_pixels: pictures, where there are any, are scaled down to at most this many pixels; not
            where a processor scales every picture to the sides of its configuration (Gemma 3,
            LLaVA).
        shape: what is said of the model while it is not in the local cache.
    """

    base: Annotated[str, Source("base_weights")]
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    quantization: Quantization | None = None
    max_pixels: int = Field(default=512 * 28 * 28, ge=28 * 28)
    shape: Annotated[ModelShape | None, _ESTIMATED] = None

    @property
    def is_tiny(self) -> bool:
        """Whether the model is built here; it knows nothing until it is taught."""
        return self.base in TINY_MODELS
