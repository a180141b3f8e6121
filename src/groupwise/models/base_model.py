"""What is known of a base model without loading its weights: configuration, shape, files."""

from pathlib import Path
from typing import Any

from transformers import AutoConfig

from groupwise.models.memory import ModelShape
from groupwise.models.tiny import PRESETS


def find_local_config(name_or_path: str | Path) -> Any | None:
    """Return the model's configuration from a folder or the local cache, or None; no network."""
    try:
        return AutoConfig.from_pretrained(name_or_path, local_files_only=True)
    except (OSError, ValueError):
        return None


def find_shape(base: str, given: ModelShape | None = None) -> ModelShape | None:
    """Return the shape of a model whose configuration is at hand, else the given one.

    Parameters are counted from the configuration: four square matrices of attention and three of
    the MLP in every block, and the embedding; nothing of the vision tower.
    """
    found = None if base in PRESETS else find_local_config(base)
    if found is None:
        return given
    text = found.get_text_config()
    per_block = 4 * text.hidden_size**2 + 3 * text.hidden_size * text.intermediate_size
    return ModelShape(
        num_parameters=text.num_hidden_layers * per_block + text.vocab_size * text.hidden_size,
        num_blocks=text.num_hidden_layers,
        hidden_size=text.hidden_size,
        vocabulary_size=text.vocab_size,
    )
