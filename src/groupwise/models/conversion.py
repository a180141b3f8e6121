"""Weights in other forms made into folders that Transformers loads: GGUF files."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.core import ModelError
from groupwise.models.silence import silence_libraries


def convert_gguf(path: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file, with the weights it stands for in float32.

    Raises:
        ModelError: if Transformers cannot read it.
    """
    named = {"gguf_file": path.name}
    try:
        with silence_libraries():
            model: Any = AutoModelForCausalLM.from_pretrained(
                path.parent, dtype=torch.float32, **named
            )
            tokenizer = AutoTokenizer.from_pretrained(path.parent, **named)
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        raise ModelError(
            f"Transformers cannot read {path}",
            got=str(error).splitlines()[0],
            fix="give the model as a folder with safetensors",
        ) from error
    # What was dequantised is quantised no more; else it could not be saved.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.config._name_or_path = ""
    with silence_libraries():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _forget_where(folder)


def _forget_where(folder: Path) -> None:
    """Take out of the tokenizer's settings how it was opened here."""
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    for name in ("is_local", "local_files_only"):
        settings.pop(name, None)
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


CONVERTERS: Mapping[str, Callable[..., None]] = {"smollm2-135m-instruct": convert_gguf}
"""By name, what writes the folder of a model: it gets the files of its packages and the folder."""
