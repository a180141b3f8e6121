"""A base with 4 bits for each weight of its linear layers, on which an adapter trains (QLoRA).

Source: Dettmers et al. 2023 (2305.14314), sections 2 and 3.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from groupwise.core import ModelError, read_json, write_json
from groupwise.models.settings import Quantization
from groupwise.models.sources import EXPERTS

_FILE = "quantization.json"
_MARK = "is_loaded_in_4bit"


def explain_no_quantization(*, has_experts: bool) -> str | None:
    """Return why a model has no weights in 4 bits here, or None."""
    if find_spec("bitsandbytes") is None:
        install = "pip install 'groupwise[quantization]'"
        return f"needs bitsandbytes, which is not installed ({install})"
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


def note_quantization(model: Any, folder: Path) -> None:
    """Write beside a saved adapter what its base was held in: it belongs to no other numbers."""
    found = find_quantization(model)
    if found is not None:
        write_json(folder / _FILE, {"quantization": found})


def read_quantization(folder: Path) -> Quantization | None:
    """Return what the base of a saved adapter was held in."""
    path = folder / _FILE
    return read_json(path, dict)["quantization"] if path.is_file() else None
