"""Which model a recipe starts from, and a first estimate of the memory that training it takes."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from groupwise.core import Config, Harmless, Source

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}
_STORED_PER_BLOCK = 16


class ModelShape(Config):
    """What is known of a model without loading it.

    Attributes:
        num_parameters: all of them.
        num_blocks: language blocks.
        hidden_size: width of the residual stream.
        vocabulary_size: rows of the output layer.
    """

    num_parameters: int = Field(ge=1, le=10**13)
    num_blocks: int = Field(ge=1)
    hidden_size: int = Field(ge=1)
    vocabulary_size: int = Field(ge=1)


@dataclass(frozen=True)
class MemoryEstimate:
    """Mebibytes by what they are for."""

    weights_mib: int
    training_state_mib: int
    activations_mib: int
    logits_mib: int

    @property
    def total_mib(self) -> int:
        """Sum of all parts."""
        return self.weights_mib + self.training_state_mib + self.activations_mib + self.logits_mib

    def describe(self, what: str) -> str:
        """Return one line for a person: the sum, what it is for, and the parts."""
        return (
            f"{self.total_mib:,} MiB in {what} (weights {self.weights_mib:,}, training state "
            f"{self.training_state_mib:,}, activations {self.activations_mib:,}, "
            f"logits {self.logits_mib:,})"
        )


def estimate_memory(  # noqa: PLR0913 (each is a fact of its own)
    shape: ModelShape,
    *,
    num_trainable: int,
    dtype: str,
    rows: int,
    tokens_per_row: int,
    new_tokens: int,
    is_checkpointed: bool,
) -> MemoryEstimate:
    """Estimate the memory of one training step.

    Weights in ``dtype``; gradient and two Adam moments in float32 for trainable weights; about
    16 stored values per token, channel and block (with checkpointing 1, and 16 in the block
    that is computed again); logits and their gradient in float32 for the completion tokens. It
    leaves out the vision tower and the allocator's slack: plan for 30 % more.
    """
    width = _BYTES[dtype]
    per_block = rows * tokens_per_row * shape.hidden_size
    whole = _STORED_PER_BLOCK * (1 if is_checkpointed else shape.num_blocks)
    stored = per_block * (whole + (shape.num_blocks if is_checkpointed else 0))
    return MemoryEstimate(
        weights_mib=shape.num_parameters * width >> 20,
        training_state_mib=num_trainable * 12 >> 20,
        activations_mib=stored * width >> 20,
        logits_mib=rows * new_tokens * shape.vocabulary_size * 8 >> 20,
    )


def count_lora_parameters(shape: ModelShape, *, rank: int, num_blocks: int, modules: int) -> int:
    """Return about how many weights a LoRA has: two factors per module and block."""
    return 2 * rank * shape.hidden_size * modules * num_blocks


TINY_VISION_MODEL = "tiny-qwen2.5-vl"
TINY_MODELS = (TINY_VISION_MODEL, "tiny-qwen2")
_ESTIMATED = Harmless("only for estimates before a run", "仅用于运行前的估算")


class ModelSettings(Config):
    """The policy that training starts from.

    Attributes:
        base: a tiny random-init model (``tiny-qwen2.5-vl``), a model folder or a hub id.
        dtype: of the weights in every step that loads them; float32 on a CPU, bfloat16 on a GPU.
        max_pixels: pictures are scaled down to at most this many pixels.
        shape: used for estimates while the model is not in the local cache.
    """

    base: Annotated[str, Source("base_weights")]
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    max_pixels: int = Field(ge=28 * 28)
    shape: Annotated[ModelShape | None, _ESTIMATED] = None

    @property
    def is_tiny(self) -> bool:
        """Whether the model is built here; it knows nothing until it is taught."""
        return self.base in TINY_MODELS
