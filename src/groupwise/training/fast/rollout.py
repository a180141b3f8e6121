"""The completions of a round, sampled by the policy of a trainer."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import GenerationConfig
from trl.models.utils import unwrap_model_for_generation

from groupwise.training.fast.sampling import collate_prompts, cut_after_end, sample_rows
from groupwise.training.fast.scoring import Sharing
from groupwise.training.precision import find_precision

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
    """Return which option needs prompts that are read once per completion, or None.

    Args:
        given: to ``generate``.
        own: of the model; says what that leaves open.
    """
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
    """Sample with every prompt read once; return token ids up to and including an end token.

    Args:
        trainer: in a round, with its policy.
        prompt_ids: of every row.
        images: of every row; None without pictures.
        fields: what the processor returned beside the ids, for every prompt once.
    """
    first = trainer._round.groups.first_rows.tolist()
    prompts = collate_prompts(
        [prompt_ids[row] for row in first],
        fields,
        num_images=[len(images[row] or ()) for row in first] if images else (),
        padding_id=trainer._tokenizer.pad_token_id,
        width_unit=trainer.pad_to_multiple_of or 1,
        device=trainer.accelerator.device,
    )
    with (
        unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            generation_kwargs=trainer.generation_kwargs,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        ) as model,
        trainer._dist.summon_full_params(trainer.model_wrapped, recurse=False),
    ):
        tokens = sample_rows(
            model,
            trainer._backbones[0],
            prompts,
            trainer._round,
            sharing=_find_kept(trainer),
            generation_config=trainer.generation_config,
        )
    return cut_after_end(tokens, trainer.eos_token_ids)


def _find_kept(trainer: Any) -> Sharing:
    """Return what scoring takes over from sampling: nothing that it computes less finely.

    Passes run under autocast, reading prompts does not.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    with trainer.accelerator.autocast():
        is_same = find_precision(model) == model.get_output_embeddings().weight.dtype
    return trainer._sharing if is_same else Sharing()
