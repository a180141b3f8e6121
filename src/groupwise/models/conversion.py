"""Weights in other forms made into folders that Transformers loads: GGUF, ONNX, and both joined.

What is written has the same bytes on every machine: nothing depends on the number of threads or on
how a processor rounds, so the digest of a base says what it is.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitImageProcessorPil,
    Dinov2Config,
    Dinov2Model,
    GotOcr2ImageProcessorPil,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    InternVLVisionConfig,
)

from groupwise.core import ModelError
from groupwise.models.prompts import drop_videos
from groupwise.models.silence import silence_libraries

_PIXELS: Mapping[str, Any] = {
    "size": {"height": 224, "width": 224},
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}


def convert_gguf(path: Path, folder: Path) -> None:
    """Write model and tokenizer of a GGUF file, with the weights it stands for in float32."""
    model, tokenizer = _read_gguf(path)
    _save(folder, model, tokenizer)


def _save(folder: Path, model: Any, processor: Any) -> None:
    """Save both, without how the tokenizer was opened here."""
    with silence_libraries():
        model.save_pretrained(folder)
    processor.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    for name in ("is_local", "local_files_only"):
        settings.pop(name, None)
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read_gguf(path: Path) -> tuple[Any, Any]:
    try:
        with silence_libraries():
            auto: Any = AutoModelForCausalLM
            named = {"gguf_file": path.name}
            model = auto.from_pretrained(path.parent, dtype=torch.float32, **named)
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
    return model, tokenizer


def _convert_tower(onnx: Path, folder: Path) -> None:
    """Write the vision tower alone, with what turns pictures into its input."""
    with silence_libraries():
        _read_tower(onnx).save_pretrained(folder)
    BitImageProcessorPil(**_PIXELS, do_center_crop=False).save_pretrained(folder)


_TOWER: Mapping[str, Any] = {
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "layer_norm_eps": 1e-6,
}
_NAMES = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
}


def _read_tower(path: Path) -> Dinov2Model:
    """Return the DINOv2-S that an ONNX graph computes first, in float32."""
    nodes, weights = _read_graph(path)
    readers: dict[str, list[Any]] = {}
    for node in nodes:
        for name in node[1]:
            readers.setdefault(name, []).append(node)
    found = {k: v for k, v in weights.items() if k.startswith("backbone.")}
    for kind, inputs, outputs in nodes:
        own = [name for name in inputs if name in weights]
        if kind == "MatMul" and own:
            # A matrix has lost its name, and the bias that is added to the product has kept its.
            added = next(node for node in readers[outputs[0]] if node[0] == "Add")
            bias = next(name for name in added[1] if name in weights)
            found[bias.replace(".bias", ".weight")] = weights[own[0]].T
    [patches] = [value for value in weights.values() if value.shape == (1, 37 * 37, 384)]
    concatenated = [value for name, value in weights.items() if name.startswith("onnx::Concat")]
    [first] = [value for value in concatenated if value.shape == (1, 1, 384)]
    found["backbone.embeddings.position_embeddings"] = np.concatenate([first, patches], 1)
    state = {name.removeprefix("backbone."): torch.tensor(value) for name, value in found.items()}
    state = _rename(state, _NAMES)
    tower = Dinov2Model(Dinov2Config(**_TOWER, patch_size=14, image_size=518)).eval()
    # Tokens are masked only where a tower of this kind learns.
    state["embeddings.mask_token"] = torch.zeros(1, _TOWER["hidden_size"])
    tower.load_state_dict(state)
    return tower


_Node = tuple[str, list[str], list[str]]


def _read_graph(path: Path) -> tuple[list[_Node], dict[str, np.ndarray]]:
    """Return an ONNX graph's nodes (type, inputs, outputs) and its arrays of float32 by name."""
    [graph] = [value for field, value in _read_fields(memoryview(path.read_bytes())) if field == 7]
    nodes: list[_Node] = []
    weights: dict[str, np.ndarray] = {}
    for field, value in _read_fields(graph):
        if field == 1:
            parts = list(_read_fields(value))
            inputs, outputs, kinds = (
                [bytes(text).decode() for number, text in parts if number == wanted]
                for wanted in (1, 2, 4)
            )
            nodes.append((kinds[0], inputs, outputs))
        if field == 5:
            parts = list(_read_fields(value))
            one = dict(parts)
            if one[2] == 1 and 9 in one:
                shape = [size for number, size in parts if number == 1]
                name = bytes(one[8]).decode()
                weights[name] = np.frombuffer(one[9], "<f4").reshape(shape).copy()
    return nodes, weights


def _read_fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield a protobuf message's fields by number: integers, or bytes, also of inner messages."""
    place = 0

    def read_varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    while place < len(message):
        field, kind = divmod(read_varint(), 8)
        if kind == 0:
            yield field, read_varint()
            continue
        size = {1: 8, 5: 4}[kind] if kind != 2 else read_varint()
        yield field, message[place : place + size]
        place += size


_PICTURE_TOKENS = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
_UNUSED_TOKEN = "<file_sep>"
_SIDE, _NUM_TOKENS = 16, 16
_IN_TOWER = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attention.o_proj": "attention.projection_layer",
    "layer_scale1.lambda1": "lambda_1",
    "layer_scale2.lambda1": "lambda_2",
}


def _join(gguf: Path, onnx: Path, folder: Path) -> None:
    """Write a language model that sees by a tower, in the form of InternVL.

    Only what joins them has no weights yet: it is random, and trained with what comes first.
    """
    model, tokenizer = _read_gguf(gguf)
    tokenizer.add_special_tokens({"additional_special_tokens": list(_PICTURE_TOKENS.values())})
    tokenizer._set_model_specific_special_tokens(_PICTURE_TOKENS)
    text = model.config.to_dict() | {"vocab_size": len(tokenizer)}
    config = InternVLConfig(
        vision_config=InternVLVisionConfig(
            **_TOWER,
            attention_bias=True,
            intermediate_size=4 * 384,
            patch_size=[14, 14],
            image_size=[224, 224],
            use_mean_pooling=False,
        ),
        text_config=text,
        downsample_ratio=0.25,
        image_token_id=tokenizer.convert_tokens_to_ids(_PICTURE_TOKENS["context_image_token"]),
        image_seq_length=_NUM_TOKENS,
        vision_feature_layer=-1,
        tie_word_embeddings=True,
    )
    joined = InternVLForConditionalGeneration(config).eval()
    joined.model.vision_tower.load_state_dict(_fit_tower(_read_tower(onnx)))
    own = model.model.state_dict()
    known = own["embed_tokens.weight"]
    # New tokens begin as one that is never written: what is random is not the same everywhere.
    unused = known[tokenizer.convert_tokens_to_ids(_UNUSED_TOKEN)]
    own["embed_tokens.weight"] = torch.cat([known, unused.expand(len(tokenizer) - len(known), -1)])
    joined.model.language_model.load_state_dict(own)
    joined.tie_weights()
    rng = np.random.default_rng(0)
    for name, weight in joined.model.multi_modal_projector.named_parameters():
        if name.startswith("linear"):
            drawn = 0.02 * rng.standard_normal(tuple(weight.shape)) * (weight.dim() > 1)
            weight.data = torch.tensor(drawn, dtype=torch.float32)
    joined.generation_config = model.generation_config
    images = GotOcr2ImageProcessorPil(**_PIXELS, min_patches=1, max_patches=1)
    template = Path(__file__).with_name("small_vlm_template.jinja").read_text(encoding="utf-8")
    build: Any = drop_videos(InternVLProcessor, name=InternVLProcessor.__name__)
    named = {"image_seq_length": _NUM_TOKENS, "chat_template": template}
    _save(folder, joined, build(images, tokenizer, **named))


def _fit_tower(tower: Dinov2Model) -> dict[str, torch.Tensor]:
    """Return a tower's weights by the names of InternVL's, for pictures of 224 x 224."""
    state = tower.state_dict()
    del state["embeddings.mask_token"]
    known = state["embeddings.position_embeddings"].double()
    patches = known[:, 1:].reshape(1, 37, 37, -1).permute(0, 3, 1, 2)
    fitted = functional.interpolate(patches, size=(_SIDE, _SIDE), mode="bicubic")
    flat = fitted.permute(0, 2, 3, 1).reshape(1, _SIDE * _SIDE, -1)
    state["embeddings.position_embeddings"] = torch.cat([known[:, :1], flat], 1).float()
    return _rename(state, _IN_TOWER)


def _rename(state: dict[str, torch.Tensor], names: Mapping[str, str]) -> dict[str, torch.Tensor]:
    for old, new in names.items():
        state = {name.replace(old, new): value for name, value in state.items()}
    return state


CONVERTERS: Mapping[str, Callable[..., None]] = {
    "smollm2-135m-instruct": convert_gguf,
    "small-vlm": _join,
    "dinov2-small": _convert_tower,
    "all-minilm-l6-v2": lambda archive, folder: shutil.unpack_archive(archive, folder, "zip"),
}
"""By name, what writes the folder of a model: it gets the files of its packages and the folder."""
