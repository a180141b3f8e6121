"""A base with 4 bits for each weight of its linear layers, on which an adapter trains (QLoRA).

Source: Dettmers et al. 2023 (2305.14314), sections 2 and 3.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import ModelError, read_json, write_json
from groupwise.models.settings import Quantization
from groupwise.models.silence import silence_libraries
from groupwise.models.sources import EXPERTS

if TYPE_CHECKING:
    import torch

INSTALL = "pip install 'groupwise[quantization]'"
_FILE = "quantization.json"
_MARK = "is_loaded_in_4bit"


def explain_no_quantization(*, has_experts: bool) -> str | None:
    """Return why a model has no weights in 4 bits here, or None."""
    if find_spec("bitsandbytes") is None:
        return f"needs bitsandbytes, which is not installed ({INSTALL})"
    if has_experts:
        return "leaves experts as they are, and these are nearly all weights; leave it out"
    return None


def name_loading(quantization: Quantization, config: Any, *, dtype: str) -> dict[str, Any]:
    """Return what ``from_pretrained`` is told of weights in 4 bits.

    Layers compute in the type of all other weights; scales have 8 bits; the head stays as it is.
    """
    import torch
    from transformers import BitsAndBytesConfig

    text = config.get_text_config()
    has_experts = any(getattr(text, name, None) for name in EXPERTS)
    problem = explain_no_quantization(has_experts=has_experts)
    if problem is not None:
        raise ModelError(f"model.quantization {quantization} {problem}")
    computed = (config.dtype or torch.float32) if dtype == "auto" else getattr(torch, dtype)
    return {
        "quantization_config": BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=quantization,
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=computed,
        )
    }


def choose_quantized_device() -> "torch.device":
    """Return where weights in 4 bits are put as they are loaded: no trainer moves them later."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def find_quantization(model: Any) -> Quantization | None:
    """Return what a model's linear layers are held in, or None: in numbers as they are.

    Raises:
        ModelError: if it is nothing that was tried.
    """
    found = getattr(model.config, "quantization_config", None)
    if found is None:
        return None
    values = found if isinstance(found, dict) else found.to_dict()
    kind = values.get("bnb_4bit_quant_type")
    if not values.get("load_in_4bit") or kind != "nf4":
        raise ModelError(
            "the weights of this model are quantised in a way that was not tried",
            got=str(values.get("quant_method")),
            expected="bitsandbytes' nf4",
            fix="take the whole weights, and set model.quantization",
        )
    return kind


def compute_alike(model: Any) -> None:
    """Let layers in 4 bits compute in evaluation as in training.

    On CPUs with AVX512-BF16 bitsandbytes answers by bfloat16 whatever type it was told: what
    samples would be another policy than what trains.
    """
    for layer in model.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def count_weights(parameter: "torch.Tensor") -> int:
    """Return the weights that a parameter stands for: of 4 bits, two are in a byte."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else state.shape.numel()


@contextmanager
def keep_adapter_dtype(model: Any) -> Iterator[None]:
    """Within this context TRL does not see 4 bits, and leaves an adapter as exact as it is.

    It would round what trains to bfloat16, in which most updates are less than a last place.
    """
    if not getattr(model, _MARK, False):
        yield
        return
    setattr(model, _MARK, False)
    try:
        yield
    finally:
        delattr(model, _MARK)


def dequantize_adapted(model: Any) -> Any:
    """Return a LoRA model whose base has the numbers that its 4 bits stand for."""
    from peft import get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

    config, weights = model.peft_config["default"], get_peft_model_state_dict(model)
    base = model.unload()
    dtype = base.get_input_embeddings().weight.dtype
    with silence_libraries():
        base.dequantize(dtype=dtype)
    base.requires_grad_(False)
    adapted = get_peft_model(base, config)
    set_peft_model_state_dict(adapted, weights)
    return adapted.eval()


def note_quantization(model: Any, folder: Path) -> None:
    """Write beside a saved adapter what its base was held in: it belongs to no other numbers."""
    found = find_quantization(model)
    if found is not None:
        write_json(folder / _FILE, {"quantization": found})


def read_quantization(folder: Path) -> Quantization | None:
    """Return what the base of a saved adapter was held in."""
    path = folder / _FILE
    return read_json(path, dict)["quantization"] if path.is_file() else None
