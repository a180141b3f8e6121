"""Loading the processor (pictures and text) or tokenizer (text) of a policy.

With torchvision installed this is ``AutoProcessor``. Without it, the processors of Qwen-VL
models cannot be built, because their video half needs it; ``PictureProcessor`` then gives
the same token ids and pixels for pictures, and knows no videos.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoProcessor, AutoTokenizer, Qwen2VLImageProcessorPil
from transformers.processing_utils import ProcessorMixin

from groupwise.core import ModelError
from groupwise.models.identity import find_revision

_QWEN_VL_TYPES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")


class PictureProcessor(ProcessorMixin):
    """The Qwen-VL processor without its video half.

    Args:
        image_processor: turns pictures into patches (``pixel_values``, ``image_grid_thw``).
        tokenizer: knows ``<|image_pad|>``.
        chat_template: Jinja template that writes one ``<|image_pad|>`` for a picture.
    """

    return_mm_token_type_ids = True

    def __init__(
        self,
        image_processor: Any = None,
        tokenizer: Any = None,
        chat_template: str | None = None,
        **_: Any,
    ) -> None:
        self.image_token = "<|image_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        super().__init__(image_processor, tokenizer, chat_template=chat_template)

    @classmethod
    def get_attributes(cls) -> list[str]:
        """Return the parts this processor is made of."""
        return ["image_processor", "tokenizer"]

    def replace_image_token(self, image_inputs: dict, image_idx: int, **_: Any) -> str:
        """Return one placeholder token for each merged patch of a picture."""
        num_patches = int(image_inputs["image_grid_thw"][image_idx].prod())
        return self.image_token * (num_patches // self.image_processor.merge_size**2)

    @property
    def model_input_names(self) -> list[str]:
        """Return the names of the tensors that this processor makes."""
        return [*super().model_input_names, "mm_token_type_ids"]


def load_processor(
    name_or_path: str | Path, *, model_type: str, has_vision: bool, max_pixels: int | None = None
) -> Any:
    """Load the processor (``has_vision``) or the tokenizer of a policy, padding on the left.

    Args:
        name_or_path: a folder or a hub id.
        model_type: ``config.model_type`` of the model.
        has_vision: whether the model takes pictures.
        max_pixels: pictures are scaled down to at most this many pixels (None: as configured).

    Raises:
        ModelError: if torchvision is missing and this model type cannot do without it.
    """
    revision = find_revision(name_or_path)
    if not has_vision:
        return AutoTokenizer.from_pretrained(name_or_path, revision=revision, padding_side="left")
    if find_spec("torchvision") is not None:
        processor = AutoProcessor.from_pretrained(
            name_or_path, revision=revision, padding_side="left"
        )
    elif model_type in _QWEN_VL_TYPES:
        processor = _load_picture_processor(name_or_path, revision)
    else:
        raise ModelError(
            f"a {model_type} processor needs torchvision", fix="pip install torchvision"
        )
    if max_pixels is not None:
        _limit_pixels(processor.image_processor, max_pixels)
    return processor


def _load_picture_processor(name_or_path: str | Path, revision: str) -> PictureProcessor:
    tokenizer = AutoTokenizer.from_pretrained(name_or_path, revision=revision, padding_side="left")
    image_processor = Qwen2VLImageProcessorPil.from_pretrained(name_or_path, revision=revision)
    template = tokenizer.chat_template or _read_chat_template(name_or_path, revision)
    return PictureProcessor(image_processor, tokenizer, chat_template=template)


def _read_chat_template(name_or_path: str | Path, revision: str) -> str | None:
    from transformers.utils.hub import cached_file

    found = cached_file(
        str(name_or_path),
        "chat_template.jinja",
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
    )
    return Path(found).read_text(encoding="utf-8") if found else None


def _limit_pixels(image_processor: Any, max_pixels: int) -> None:
    size = dict(image_processor.size)
    smallest = min(size.get("shortest_edge", max_pixels), max_pixels)
    image_processor.size = {"shortest_edge": smallest, "longest_edge": max_pixels}
