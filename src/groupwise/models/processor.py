"""Loading the processor (pictures and text) or tokenizer (text) of a policy.

Qwen-VL models take a ``PictureProcessor``, whether torchvision is installed or not. Theirs cannot
be built without it, and with it pictures are scaled by another implementation: the same picture
would give other pixels, and so other numbers, on another machine. ``PictureProcessor`` gives the
token ids of theirs and Pillow's pixels everywhere, and knows no videos. Other models have their own
processor, with Pillow's image processor, too, and without its video half.
"""

from pathlib import Path
from typing import Any

from transformers import (
    CONFIG_MAPPING,
    PROCESSOR_MAPPING,
    AutoProcessor,
    AutoTokenizer,
    Idefics3Processor,
    LlavaOnevisionProcessor,
    Qwen2VLImageProcessorPil,
    SmolVLMProcessor,
)
from transformers.processing_utils import ProcessorMixin

from groupwise.core import ModelError
from groupwise.models.identity import find_revision
from groupwise.models.prompts import drop_videos, encode_as_written
from groupwise.models.sources import find_snapshot

PICTURE_FIELDS = ("pixel_values", "image_grid_thw", "pixel_attention_mask", "image_sizes")
"""What models are given of pictures, by the names that they, processors and TRL use."""
TOKEN_TYPES = ("mm_token_type_ids", "token_type_ids")
"""Which tokens stand for a part of a picture, by those names."""

# By type of model: the names of its own processor and of that one's video half.
_QWEN_VL = {
    "qwen2_vl": ("Qwen2VLProcessor", "Qwen2VLVideoProcessor"),
    "qwen2_5_vl": ("Qwen2_5_VLProcessor", "Qwen2VLVideoProcessor"),
    **dict.fromkeys(
        ("qwen3_vl", "qwen3_vl_moe", "qwen3_5"), ("Qwen3VLProcessor", "Qwen3VLVideoProcessor")
    ),
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


class _CountedPictures(LlavaOnevisionProcessor):
    """Counts pictures only where a prompt has several, as TRL does not know of them."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        made = super().__call__(*given, **named)
        counts = made.get("batch_num_images")
        if counts is not None and all(int(count) == 1 for count in counts):
            made.pop("batch_num_images")
        return made


def leave_videos(own: type[Any]) -> type[Any]:
    """Return a processor of Transformers, of the same name, without its video half."""
    # SmolVLM writes pictures as Idefics3 does; what its own processor adds is for videos.
    bases = {LlavaOnevisionProcessor: _CountedPictures, SmolVLMProcessor: Idefics3Processor}
    return drop_videos(bases.get(own, own), name=own.__name__)


def load_processor(
    name_or_path: str | Path, *, model_type: str, has_vision: bool, max_pixels: int | None = None
) -> Any:
    """Load the processor (``has_vision``) or the tokenizer of a policy, padding on the left.

    Args:
        name_or_path: a folder or a hub id.
        model_type: ``config.model_type`` of the model.
        has_vision: whether the model takes pictures.
        max_pixels: pictures are scaled down to at most this many pixels (None: as configured); not
            where a processor scales every picture to the sides of its configuration.

    Raises:
        ModelError: if a package is missing that this model type cannot do without, or it has no
            processor of pictures.
    """
    named: dict[str, Any] = {"revision": find_revision(name_or_path), "trust_remote_code": False}
    if not Path(name_or_path).is_dir():
        # By its id Transformers asks the hub for further templates, though all is in the cache.
        snapshot = find_snapshot(str(name_or_path))
        if snapshot is not None and (snapshot / "tokenizer_config.json").is_file():
            name_or_path = snapshot
    if not has_vision or model_type in _QWEN_VL:
        processor = AutoTokenizer.from_pretrained(name_or_path, padding_side="left", **named)
        if not has_vision:
            return encode_as_written(processor)
        processor = _add_pictures(processor, name_or_path, model_type, named["revision"])
    else:
        own: Any = PROCESSOR_MAPPING.get(CONFIG_MAPPING[model_type], None)
        kind: Any = AutoProcessor
        if own is not None and "video_processor" in own.get_attributes():
            kind = leave_videos(own)
        try:
            processor = kind.from_pretrained(
                name_or_path, padding_side="left", backend="pil", **named
            )
        except ImportError as error:
            raise ModelError(
                f"a {model_type} processor needs a package that is missing",
                got=str(error).strip().splitlines()[0],
                fix="install what it names (pip install torchvision, say)",
            ) from error
        if not hasattr(processor, "image_processor"):
            raise ModelError(
                f"no processor of pictures is known for models of type {model_type}",
                got=type(processor).__name__,
                fix="choose another model",
            )
    images = processor.image_processor
    if max_pixels is not None and hasattr(images, "merge_size"):
        smallest = min(dict(images.size).get("shortest_edge", max_pixels), max_pixels)
        images.size = {"shortest_edge": smallest, "longest_edge": max_pixels}
    return encode_as_written(processor)


def _add_pictures(
    tokenizer: Any, name_or_path: str | Path, model_type: str, revision: str
) -> PictureProcessor:
    from transformers.utils.hub import cached_file

    images = Qwen2VLImageProcessorPil.from_pretrained(name_or_path, revision=revision)
    template = tokenizer.chat_template
    if not template:
        found = cached_file(
            str(name_or_path),
            "chat_template.jinja",
            revision=revision,
            _raise_exceptions_for_missing_entries=False,
        )
        template = Path(found).read_text(encoding="utf-8") if found else None
    return PictureProcessor(images, tokenizer, chat_template=template, model_type=model_type)
