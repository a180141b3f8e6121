"""What is known of a base model without loading its weights: configuration, processor, files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from groupwise.core import Example, GroupwiseError, ModelError
from groupwise.models.identity import find_revision
from groupwise.models.prompts import make_token_counter
from groupwise.models.quantization import explain_no_quantization
from groupwise.models.settings import TINY_MODELS, TINY_VISION_MODEL, ModelSettings, ModelShape
from groupwise.models.silence import silence_libraries
from groupwise.models.sources import bring_base, find_folder, find_outline


def takes_pictures(config: Any) -> bool:
    """Return whether the model of a configuration has a vision tower."""
    return getattr(config, "vision_config", None) is not None


@contextmanager
def refuse_missing(name_or_path: str | Path) -> Iterator[None]:
    """Say in one sentence that a model's files cannot be found or read: a ``ModelError``."""
    from torch import OutOfMemoryError

    try:
        with silence_libraries():
            yield
    except (GroupwiseError, ImportError, MemoryError, OutOfMemoryError):
        raise
    except Exception as error:  # libraries say anything of files that somebody made or damaged
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"cannot load the model {name_or_path} ({reason})",
            fix="give a model folder, or a hub id that is in the local cache or can be reached",
        ) from error


def open_processor(base: str | Path, *, max_pixels: int | None = None) -> Any:
    """Load the processor of a base model: its tokenizer, if it takes no pictures.

    Args:
        base: a model folder or a hub id.
        max_pixels: pictures are scaled down to at most this many pixels (None: as configured).

    Raises:
        ModelError: if it cannot be found or loaded.
    """
    return _open(base, max_pixels)[1]


def open_image_processor(base: str | Path, *, max_pixels: int) -> tuple[str, Any]:
    """Return the type of a base model and what turns pictures into patches for it.

    A tiny model need not be built yet.

    Raises:
        ModelError: if it cannot be found or loaded, or takes no pictures.
    """
    if base == TINY_VISION_MODEL:
        from groupwise.models.tiny import make_tiny_image_processor

        return "qwen2_5_vl", make_tiny_image_processor(max_pixels)
    if base not in TINY_MODELS:
        config, processor = _open(base, max_pixels)
        if takes_pictures(config):
            return config.model_type, processor.image_processor
    raise ModelError(f"the model {base} takes no pictures", fix="choose one with a vision tower")


def _open(base: str | Path, max_pixels: int | None) -> tuple[Any, Any]:
    from transformers import AutoConfig

    from groupwise.models.processor import load_processor

    base = bring_base(base, is_whole=False)
    with refuse_missing(base):
        named: Any = {"revision": find_revision(base), "trust_remote_code": False}
        config = AutoConfig.from_pretrained(base, **named)
        named = {"has_vision": takes_pictures(config), "max_pixels": max_pixels}
        return config, load_processor(base, model_type=config.model_type, **named)


def open_token_counter(
    base: str | Path, *, max_pixels: int | None = None
) -> Callable[[Example], int]:
    """Return a function that counts the prompt tokens of an example as the base model sees it.

    Raises:
        ModelError: if the model's processor cannot be found or loaded.
    """
    processor = open_processor(base, max_pixels=max_pixels)
    return make_token_counter(processor, has_vision=hasattr(processor, "image_processor"))


def find_weights(base: str | Path) -> Path:
    """Return the folder of a base's weights on this machine, or raise a ``ModelError``."""
    found = find_folder(base)
    if found is None:
        raise ModelError(f"there is no folder {base}, and it is not in the hub's local cache")
    return found


def find_num_blocks(base: str, given: ModelShape | None = None) -> int | None:
    """Return a model's language blocks where its configuration or a shape is at hand, or None."""
    known = (None if base in TINY_MODELS else find_outline(base)) or given
    return None if known is None else known.num_blocks


def check_base(model: ModelSettings) -> list[str]:
    """Return clauses on why the base in the section ``model`` of a config cannot be loaded so.

    What is not on this machine is brought: of a model of the hub only what describes it.
    """
    problems: list[str] = []
    known = None
    if not model.is_tiny:
        try:
            if find_outline(model.base) is None:
                bring_base(model.base, is_whole=False)
        except ModelError as error:
            if model.shape is None:
                return [f"model.base: {error}"]
        known = find_outline(model.base)
        if known is None and Path(model.base).is_dir():
            problems.append(
                f"model.base: {model.base} holds no whole model; "
                "where it is an adapter, take what `groupwise export` merges"
            )
    has_experts = known is not None and known.has_experts
    if model.quantization and (problem := explain_no_quantization(has_experts=has_experts)):
        problems.append(f"model.quantization: {model.quantization} {problem}")
    return problems
