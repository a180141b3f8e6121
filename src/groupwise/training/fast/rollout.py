"""The completions of a round, sampled by the policy of a trainer."""

from collections.abc import Mapping, Sequence
from typing import Any

from trl.models.utils import unwrap_model_for_generation

from groupwise.training.fast.sampling import collate_prompts, cut_after_end, sample_rows


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
            sharing=trainer._sharing,
            generation_config=trainer.generation_config,
        )
    return cut_after_end(tokens, trainer.eos_token_ids)
