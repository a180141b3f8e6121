"""Sampling that reads every prompt once: its keys are repeated, then ``generate`` goes on."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import torch
from transformers import GenerationConfig
from transformers.cache_utils import DynamicCache, DynamicLayer, LinearAttentionLayer
from trl.models.utils import unwrap_model_for_generation

from groupwise.models.policy import unplanned_attention
from groupwise.models.processor import PICTURE_FIELDS, TOKEN_TYPES
from groupwise.training.fast.decoding import can_record, fill_static_layer, recorded_decoding
from groupwise.training.fast.pictures import Pictures, find_pictures
from groupwise.training.fast.round import Round
from groupwise.training.fast.scoring import PromptRows, Sharing, find_positions
from groupwise.training.fast.shared import Trunk, find_text_model, list_block_types
from groupwise.training.on_policy import find_precision

# What depends on nothing but the tokens so far and their scores.
_EXACT = frozenset(
    (
        *("_from_model_config", "transformers_version", "disable_compile"),
        *("pad_token_id", "bos_token_id", "eos_token_id"),
        *("max_new_tokens", "max_length", "min_new_tokens", "min_length"),
        *("do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p"),
        *("epsilon_cutoff", "eta_cutoff", "renormalize_logits", "remove_invalid_values"),
        *("repetition_penalty", "no_repeat_ngram_size", "exponential_decay_length_penalty"),
        *("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias"),
        *("forced_bos_token_id", "forced_eos_token_id"),
    )
)


def find_sampling_obstacle(given: GenerationConfig, own: GenerationConfig) -> str | None:
    """Return which option of ``generate`` needs prompts read once per completion, or None."""
    if given.max_new_tokens is None:
        return "max_new_tokens is None"
    usual = GenerationConfig._get_default_generation_params()
    for name in sorted(given.to_dict().keys() - _EXACT):
        value = getattr(given, name, None)
        value = getattr(own, name, None) if value is None else value
        if value is not None and value != usual.get(name, False):
            return f"{name} is {value}"
    return None


def sample_round(
    trainer: Any,
    prompt_ids: Sequence[Sequence[int]],
    images: Sequence[Any] | None,
    fields: Mapping[str, Any],
) -> list[list[int]]:
    """Sample with every prompt read once; return token ids up to and including an end token."""
    first = trainer._round.groups.first_rows.tolist()
    backbone, device = trainer._backbones[0], trainer.accelerator.device
    unique = [prompt_ids[row] for row in first]
    pictures = None
    if "pixel_values" in fields:
        given = {name: np.asarray(fields[name]) for name in PICTURE_FIELDS if name in fields}
        picture_id = getattr(backbone.config, "image_token_id", None)
        pictures = find_pictures(
            {name: torch.as_tensor(values).to(device) for name, values in given.items()},
            [len(images[row] or ()) for row in first] if images else (),
            [sum(one == picture_id for one in ids) for ids in unique],
        )
    prompts = collate_prompts(
        unique,
        fields,
        pictures=pictures,
        padding_id=trainer._tokenizer.pad_token_id,
        width_unit=trainer.pad_to_multiple_of or 1,
        device=device,
    )
    unwrapped = trainer.accelerator.unwrap_model(trainer.model)
    with trainer.accelerator.autocast():
        is_cast = find_precision(unwrapped) != unwrapped.get_output_embeddings().weight.dtype
    with (
        unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            generation_kwargs=trainer.generation_kwargs,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        ) as model,
        trainer._dist.summon_full_params(trainer.model_wrapped, recurse=False),
    ):
        tokens = sample_rows(
            model,
            backbone,
            prompts,
            trainer._round,
            # Scoring takes nothing over that it computes less finely: passes run under autocast,
            # reading prompts does not.
            sharing=Sharing() if is_cast else trainer._sharing,
            generation_config=trainer.generation_config,
            records=trainer.speed.decoding_graph,
        )
    return cut_after_end(tokens, trainer.eos_token_ids)


@torch.no_grad()
def sample_rows(
    model: Any,
    backbone: Any,
    prompts: PromptRows,
    round_: Round,
    *,
    sharing: Sharing,
    generation_config: Any,
    records: bool = False,
) -> torch.Tensor:
    """Sample a completion for every row of the round, as ``generate`` would; [rows, tokens]."""
    rows = round_.groups.prompt_of_row
    positions = find_positions(backbone, prompts)
    # It keeps every token's keys, also those that leave a window.
    cache: Any = DynamicCache()
    types = list_block_types(find_text_model(backbone).config)
    cache.layers = [
        LinearAttentionLayer() if one == "linear_attention" else DynamicLayer() for one in types
    ]
    pictures: dict[str, Any] = {}
    # What enters the first trained block, of the prompts, then of each token: later passes would
    # compute it again.
    states: list[torch.Tensor] = []
    hook: Any = nullcontext()
    if sharing.keeps_trunk:
        block = find_text_model(backbone).layers[sharing.first_trained]
        hook = block.register_forward_pre_hook(lambda _, given: states.append(given[0]))
    with hook:
        if prompts.pictures is not None:
            features = backbone.get_image_features(
                **prompts.pictures.copy_fields(), return_dict=True
            )
            if sharing.keeps_features:
                counts = prompts.pictures.count_features()
                round_.keep_features(round_.groups, counts, features)
            pictures = {"mm_encoder_outputs": {"image": features}}
        backbone(
            input_ids=prompts.ids[:, :-1],
            attention_mask=prompts.mask[:, :-1],
            position_ids=positions[..., :-1],
            past_key_values=cache,
            use_cache=True,
            **prompts.name_for_masks(),
            **pictures,
        )
        records = records and can_record(model, generation_config.max_new_tokens)
        room = generation_config.max_new_tokens + 1
        cache.layers = _repeat_layers(cache.layers, rows, room=room, is_static=records)
        if hasattr(backbone, "rope_deltas"):  # an earlier call's would shift this one's positions
            time = positions if positions.ndim == 2 else positions[0]
            # How far the last position is from the number of tokens.
            deltas = time[:, -1:] + 1 - prompts.mask.sum(1, keepdim=True)
            backbone.rope_deltas = deltas[rows]
        with (
            unplanned_attention(),
            recorded_decoding(model, collected=states) if records else nullcontext(),
        ):
            output = model.generate(
                input_ids=prompts.ids[rows],
                attention_mask=prompts.mask[rows],
                past_key_values=cache,
                generation_config=generation_config,
            )
    if states:
        trunk = Trunk(states[0], torch.cat(states[1:], dim=1))
        round_.keep_trunk(round_.groups, range(len(rows)), trunk)
    return output[:, prompts.ids.shape[1] :]


def collate_prompts(
    prompt_ids: Sequence[Sequence[int]],
    fields: Mapping[str, Any],
    *,
    pictures: Pictures | None,
    padding_id: int,
    width_unit: int = 1,
    device: torch.device,
) -> PromptRows:
    """Return prompts padded on the left, as ``generate`` would be given them by TRL."""
    width = -(-max(map(len, prompt_ids)) // width_unit) * width_unit

    def pad_left(rows: Sequence[Sequence[int]], value: int) -> torch.Tensor:
        padded = [[value] * (width - len(row)) + list(row) for row in rows]
        return torch.tensor(padded, device=device)

    # TRL's passes over prompts without pictures have no types either.
    known = [name for name in TOKEN_TYPES if pictures is not None and name in fields]
    return PromptRows(
        pad_left(prompt_ids, padding_id),
        pad_left([[1] * len(ids) for ids in prompt_ids], 0),
        pictures=pictures,
        token_types={name: pad_left(fields[name], 0) for name in known},
    )


def cut_after_end(token_ids: torch.Tensor, end_token_ids: Iterable[int]) -> list[list[int]]:
    is_end = torch.isin(token_ids, torch.tensor(list(end_token_ids), device=token_ids.device))
    num_after = ((is_end.int().cumsum(1) - is_end.int()) > 0).sum(1).tolist()
    rows = token_ids.tolist()
    return [row[: len(row) - gone] for row, gone in zip(rows, num_after, strict=True)]


def _repeat_layers(
    layers: Sequence[Any], prompt_of_row: torch.Tensor, *, room: int, is_static: bool
) -> list[Any]:
    if is_static and all(isinstance(layer, DynamicLayer) for layer in layers):
        both = ((layer.keys[prompt_of_row], layer.values[prompt_of_row]) for layer in layers)
        return [fill_static_layer(keys, values, room=room) for keys, values in both]
    repeated: list[Any] = []
    for layer in layers:
        if isinstance(layer, LinearAttentionLayer):
            layer.reorder_cache(cast("torch.LongTensor", prompt_of_row))
            repeated.append(layer)
        else:
            repeated.append(_RoomyLayer(layer, prompt_of_row, room=room))
    return repeated


class _RoomyLayer(DynamicLayer):
    """Keys and values in buffers with room; ``DynamicLayer`` copies all for every new token."""

    def __init__(self, layer: Any, prompt_of_row: torch.Tensor, *, room: int) -> None:
        super().__init__()
        self.keys: Any
        self.values: Any
        self.dtype, self.device = layer.keys.dtype, layer.keys.device
        self.buffers: list[torch.Tensor] = []
        for states in (layer.keys, layer.values):
            _, heads, length, size = states.shape
            buffer = states.new_empty(len(prompt_of_row), heads, length + room, size)
            buffer[:, :, :length] = states[prompt_of_row]
            self.buffers.append(buffer)
        self.is_initialized = True
        self._show(layer.keys.shape[-2])

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.keys.shape[-2]
        end = start + key_states.shape[-2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self._show(end)
        return self.keys, self.values

    def _show(self, length: int) -> None:
        self.keys, self.values = (buffer[:, :, :length] for buffer in self.buffers)
