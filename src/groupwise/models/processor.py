"""Loading the processor (pictures and text) or tokenizer (text) of a policy.

Qwen-VL models take a ``PictureProcessor``, whether torchvision is installed or not. Theirs cannot
be built without it, and with it pictures are scaled by another implementation: the same picture
would give other pixels, and so other numbers, on another machine. ``PictureProcessor`` gives the
token ids of theirs and Pillow's pixels everywhere, and knows no videos. Other models have
``AutoProcessor``.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoProcessor, AutoTokenizer, Qwen2VLImageProcessorPil
from transformers.processing_utils import ProcessorMixin

from groupwise.core import ModelError
from groupwise.models.identity import find_revision

# By type of model: the names of its own processor and of that one's video half.
_QWEN_VL = {
    "qwen2_vl": ("Qwen2VLProcessor", "Qwen2VLVideoProcessor"),
    "qwen2_5_vl": ("Qwen2_5_VLProcessor", "Qwen2VLVideoProcessor"),
    "qwen3_vl": ("Qwen3VLProcessor", "Qwen3VLVideoProcessor"),
    "qwen3_vl_moe": ("Qwen3VLProcessor", "Qwen3VLVideoProcessor"),
    "qwen3_5": ("Qwen3VLProcessor", "Qwen3VLVideoProcessor"),
}
_OF_VIDEOS_TOO = ("patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std")


class PictureProcessor(ProcessorMixin):
    """The Qwen-VL processor without its video half.

    It is saved as what it stands for, so that ``AutoProcessor`` and other tools can open it.

    Args:
        image_processor: turns pictures into patches (``pixel_values``, ``image_grid_thw``).
        tokenizer: knows ``<|image_pad|>``.
        chat_template: Jinja template that writes one ``<|image_pad|>`` for a picture.
        model_type: ``config.model_type`` of its model.
    """

    return_mm_token_type_ids = True

    def __init__(
        self,
        image_processor: Any = None,
        tokenizer: Any = None,
        chat_template: str | None = None,
        model_type: str = "qwen2_5_vl",
        **_: Any,
    ) -> None:
        self.saved_as = _QWEN_VL[model_type]
        self.image_token = "<|image_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        super().__init__(image_processor, tokenizer, chat_template=chat_template)

    @classmethod
    def get_attributes(cls) -> list[str]:
        """Return the parts this processor is made of."""
        return ["image_processor", "tokenizer"]

    def to_dict(self) -> dict[str, Any]:
        """Return the processor's settings as its model's own processor would have them."""
        own = super().to_dict()
        name, video = self.saved_as
        shared = {key: own["image_processor"][key] for key in _OF_VIDEOS_TOO}
        videos = {"video_processor_type": video, **shared}
        return own | {"processor_class": name, "video_processor": videos}

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
        return _load_tokenizer(name_or_path, revision)
    if model_type in _QWEN_VL:
        processor = _load_picture_processor(name_or_path, revision, model_type)
    elif find_spec("torchvision") is not None:
        processor = AutoProcessor.from_pretrained(
            name_or_path, revision=revision, padding_side="left", trust_remote_code=False
        )
    else:
        raise ModelError(
            f"a {model_type} processor needs torchvision", fix="pip install torchvision"
        )
    if max_pixels is not None:
        _limit_pixels(processor.image_processor, max_pixels)
    return processor


def _load_picture_processor(
    name_or_path: str | Path, revision: str, model_type: str
) -> PictureProcessor:
    tokenizer = _load_tokenizer(name_or_path, revision)
    image_processor = Qwen2VLImageProcessorPil.from_pretrained(name_or_path, revision=revision)
    template = tokenizer.chat_template or _read_chat_template(name_or_path, revision)
    return PictureProcessor(
        image_processor, tokenizer, chat_template=template, model_type=model_type
    )


def _load_tokenizer(name_or_path: str | Path, revision: str) -> Any:
    """Load a tokenizer; code that comes with it is refused, and nobody is asked about it."""
    return AutoTokenizer.from_pretrained(
        name_or_path, revision=revision, padding_side="left", trust_remote_code=False
    )


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
