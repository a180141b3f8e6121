"""Loading a policy: a model with its processor, from a folder or the hub."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    GenerationConfig,
    PreTrainedTokenizerBase,
)

from groupwise.core import Example, ModelError
from groupwise.models.base_model import refuse_missing, takes_pictures
from groupwise.models.identity import (
    find_revision,
    is_adapter,
    name_base,
    read_base,
    refuse_pickled,
)
from groupwise.models.processor import load_processor
from groupwise.models.prompts import render_prompt
from groupwise.models.quantization import name_loading, note_quantization, read_quantization
from groupwise.models.settings import Quantization
from groupwise.models.silence import silence_libraries
from groupwise.models.sources import bring_base, find_cache
from groupwise.models.trainable import (
    KIND,
    hide_virtual_tokens,
    list_trainable,
    restore_trainable,
    write_virtual_tokens,
)


class PatchProjection(nn.Conv3d):
    """A Conv3d with the same weights whose inputs are single patches, as large as its kernel."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return [patches, out, 1, 1, 1] for [patches, in, time, height, width]."""
        if input.shape[1:] != self.weight.shape[1:] or any(self.padding):
            return super().forward(input)
        projected = functional.linear(input.flatten(1), self.weight.flatten(1), self.bias)
        return projected[:, :, None, None, None]


def project_patches_fast(model: nn.Module) -> None:
    """Let every Conv3d of a model take single patches by a matrix product; weights stay.

    Besides, a convolution on a GPU rounds float32 to TF32 by default, and a matrix product does
    not: of two models that are to agree, both need it.
    """
    for module in model.modules():
        if type(module) is nn.Conv3d:
            module.__class__ = PatchProjection


@dataclass(eq=False)
class Policy:
    """A model and what turns examples into its inputs.

    Attributes:
        model: a Transformers model, or a PEFT model around one, which a training with LoRA makes
            of it.
        processor: a processor (vision-language) or a tokenizer (text).
        has_vision: whether pictures can be given.
    """

    model: Any
    processor: Any
    has_vision: bool

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer, also inside a processor."""
        return self.processor.tokenizer if self.has_vision else self.processor

    @property
    def end_token_ids(self) -> tuple[int, ...]:
        """Every id that ends a completion."""
        ids = self.model.generation_config.eos_token_id
        found: list[Any] = [ids] if isinstance(ids, int) else list(ids or [])
        found.append(self.tokenizer.eos_token_id)
        return tuple(dict.fromkeys(int(token) for token in found if token is not None))

    @cached_property
    def max_tokens(self) -> int | None:
        """Prompt and completion together, in tokens; None where the config does not say."""
        config = self.model.config.get_text_config()
        return getattr(config, "max_position_embeddings", None)

    def render_prompt(self, example: Example) -> str:
        """Return the prompt as the chat template writes it, up to where the answer starts.

        Raises:
            ModelError: if the example has pictures and this policy takes none.
        """
        if example.pictures and not self.has_vision:
            raise ModelError(
                "this policy takes no pictures",
                got=f"an example with {len(example.pictures)}",
                fix="choose a vision-language model",
            )
        return render_prompt(self.processor, example)

    @contextmanager
    def adapter_off(self) -> Iterator[None]:
        """Let the base model answer inside the block; it is the same one, nothing is copied.

        A policy without an adapter stays as it is. What trains is the same afterwards.
        """
        if not getattr(self.model, "peft_config", None):
            yield
            return
        names = list_trainable(self.model)
        try:
            with self.model.disable_adapter(), hide_virtual_tokens(self.processor):
                yield
        finally:
            restore_trainable(self.model, names)

    def save(self, folder: Path) -> None:
        """Write the model (or only its adapter) and the processor.

        An adapter names a base that lies on this machine by its way from ``folder``, so that both
        can be moved together; one in the cache of models stays where it is.
        """
        with silence_libraries():
            self.model.save_pretrained(folder)
        self.processor.save_pretrained(folder)
        if is_adapter(folder):
            note_quantization(self.model, folder)
            # PEFT names it as it was loaded: a relative path is from the working folder.
            loaded = Path(self.model.peft_config["default"].base_model_name_or_path)
            base = loaded.resolve() if loaded.is_dir() else Path(read_base(folder)).resolve()
            if base.is_dir() and not base.is_relative_to(find_cache()):
                name_base(folder, os.path.relpath(base, folder.resolve()))


@contextmanager
def unplanned_attention() -> Iterator[None]:
    """Keep cuDNN's attention out of the block, for passes whose lengths always change.

    It makes a plan for every new shape, which costs more than the attention itself where each token
    that is sampled makes a new shape.
    """
    cuda = torch.backends.cuda
    before = cuda.cudnn_sdp_enabled()
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(before)


def choose_device() -> torch.device:
    """Return where a model goes: the GPU of a process that is alone, else the CPU.

    One process of several keeps its model on the CPU: its trainer places or shards it. A GPU that
    ``CUDA_VISIBLE_DEVICES`` hides is not used.
    """
    is_alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    return torch.device("cuda" if is_alone and torch.cuda.is_available() else "cpu")


def load_policy(
    name_or_path: str | Path,
    *,
    dtype: str = "float32",
    max_pixels: int | None = None,
    device: torch.device | None = None,
    quantization: Quantization | None = None,
) -> Policy:
    """Load a language or vision-language model through the Auto classes.

    Args:
        name_or_path: what ``model.base`` may name (of a hub id the commit that is in the local
            cache, if one is), or a PEFT adapter folder (its base is loaded first and the adapter
            put on it).
        dtype: ``float32``, ``bfloat16``, ``float16`` or ``auto``.
        max_pixels: pictures are scaled down to at most this many pixels (None: as configured); not
            where a processor scales every picture to the sides of its configuration.
        device: of the weights; None: ``choose_device``.
        quantization: what linear layers are held in; None: in ``dtype``. An adapter that trained on
            4 bits is put on the same ones, whatever is given.

    Raises:
        ModelError: if it cannot be found or loaded.
    """
    place = bring_base(name_or_path)
    folder, adapted = Path(place), is_adapter(Path(place))
    with refuse_missing(place):
        if adapted:
            refuse_pickled(folder)
            quantization = read_quantization(folder) or quantization
        if quantization is not None and device is None:
            # Weights in 4 bits are put there as they are loaded: no trainer moves them later.
            index, has_gpu = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.is_available()
            device = torch.device("cuda", index) if has_gpu else torch.device("cpu")
        named: Any = {"dtype": dtype, "max_pixels": max_pixels}
        named |= {"device": device, "quantization": quantization}
        if not adapted:
            policy = _load_base(place, **named)
        else:
            from peft import PeftConfig, PeftModel

            base = read_base(folder)
            policy = _load_base(bring_base(base), **named)
            adapter: Any = PeftConfig.from_pretrained(str(folder))
            if adapter.peft_type == KIND:
                ids = adapter.token_indices
                write_virtual_tokens(policy.model, policy.processor, len(ids), saved=ids)
            model = PeftModel.from_pretrained(policy.model, str(folder), torch_device="cpu")
            for config in model.peft_config.values():
                config.base_model_name_or_path = base  # where it is saved next, the way is another
            policy = replace(policy, model=model.eval())
        policy.model.to(device or choose_device())
        return policy


def _load_base(
    place: str | Path,
    *,
    dtype: str,
    max_pixels: int | None,
    device: torch.device | None,
    quantization: Quantization | None,
) -> Policy:
    revision = find_revision(place)
    config = AutoConfig.from_pretrained(place, revision=revision, trust_remote_code=False)
    has_vision = takes_pictures(config)
    auto = AutoModelForImageTextToText if has_vision else AutoModelForCausalLM
    more: dict[str, Any] = {}
    if quantization is not None:
        more = name_loading(quantization, config, dtype=dtype)
        more["device_map"] = {"": device}
    model = auto.from_pretrained(
        place,
        revision=revision,
        dtype=dtype if dtype == "auto" else getattr(torch, dtype),
        # A hub's older models have pickles alone, of which Transformers takes only weights.
        use_safetensors=True if Path(place).is_dir() else None,
        trust_remote_code=False,
        **more,
    )
    # Of a folder's wishes for generation only its tokens are kept. ``generate`` fills what it is
    # not given from them (a repetition penalty here, a forced token there), so that training would
    # sample from another policy than it scores, and greedy answers would not be the model's own.
    wishes = model.generation_config
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    kept = {name: getattr(wishes, name) for name in names}
    for name, value in kept.items():
        ids = value if isinstance(value, list) else [value or 0]
        if not all(isinstance(one, int) for one in ids):
            raise ValueError(f"{name} is no token: {value!r}")
    model.generation_config = GenerationConfig(**kept)
    layers: Any = model.modules()
    for layer in layers:
        # On CPUs with AVX512-BF16 bitsandbytes answers by bfloat16 whatever type it was told: what
        # samples would be another policy than what trains.
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False
    project_patches_fast(model)
    processor = load_processor(
        place, model_type=config.model_type, has_vision=has_vision, max_pixels=max_pixels
    )
    return Policy(model.eval(), processor, has_vision)
