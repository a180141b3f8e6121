"""The step-0 gate: before anything is learned the ratio is 1 and the KL divergence is 0.

It compares the log-probabilities that training uses (padded batch, training mode) with those
of an independent pass: one row at a time, no padding, evaluation mode, the prompt rendered
anew from the example. A difference means dropout, padding, positions, pictures or the
reference are wrong, and every later number would be too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from groupwise.core import Example, TrainingError, open_picture
from groupwise.models import Policy


@dataclass(frozen=True)
class GateResult:
    """What the gate measured.

    Attributes:
        num_tokens: completion tokens compared.
        max_log_ratio: greatest |log ratio| of one token; 0 for a perfect match.
        max_kl: greatest k3 estimate of KL(policy, reference) of one token, or None without one.
    """

    num_tokens: int
    max_log_ratio: float
    max_kl: float | None


def score_alone(
    policy: Policy, example: Example, token_ids: Sequence[int], *, temperature: float
) -> torch.Tensor:
    """Return log-probabilities of completion tokens, shape [tokens], from an unpadded pass."""
    text = policy.render_prompt(example)
    pictures = [open_picture(picture) for picture in example.pictures]
    named = {"images": pictures} if pictures else {}
    inputs = dict(policy.processor(text=[text], return_tensors="pt", **named))
    tail = torch.tensor([list(token_ids)])
    inputs["input_ids"] = torch.cat([inputs["input_ids"], tail], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if "mm_token_type_ids" in inputs:
        types = inputs["mm_token_type_ids"]
        inputs["mm_token_type_ids"] = torch.cat([types, torch.zeros_like(tail)], dim=1)
    device = policy.model.device
    logits = policy.model(**{k: v.to(device) for k, v in inputs.items()}).logits[0].float()
    scores = (logits[-len(tail[0]) - 1 : -1] / temperature).log_softmax(-1)
    return scores.gather(1, tail[0].to(device).unsqueeze(1)).squeeze(1)


def judge_gate(
    *,
    trained: torch.Tensor,
    alone: torch.Tensor,
    reference: torch.Tensor | None,
    tolerance: float,
) -> GateResult:
    """Compare log-probabilities of the same tokens, each of shape [tokens].

    Raises:
        TrainingError: if the ratio is not 1 or the divergence is not 0 within ``tolerance``.
    """
    max_log_ratio = float((trained - alone).abs().max())
    max_kl = None
    if reference is not None:
        gap = reference - trained
        max_kl = float((gap.exp() - gap - 1).max())
    if max_log_ratio > tolerance or (max_kl or 0.0) > tolerance:
        kl = "none" if max_kl is None else f"{max_kl:.2e}"
        raise TrainingError(
            "the step-0 gate is shut: policy, sampler and reference do not agree",
            got=f"|log ratio| {max_log_ratio:.2e} and KL {kl}",
            expected=f"at most {tolerance:.0e}",
            fix="look for dropout, padding, positions or a wrong reference model",
        )
    return GateResult(len(trained), max_log_ratio, max_kl)


def run_gate(
    trainer: Any,
    policy: Policy,
    examples: Sequence[Example],
    batch: dict[str, Any],
    *,
    tolerance: float,
) -> GateResult:
    """Check the first generated batch of a GRPO trainer.

    Args:
        trainer: a TRL GRPOTrainer before its first update.
        policy: the policy being trained.
        examples: the example of each row.
        batch: what the trainer made: completion ids and masks, shape [rows, tokens].
        tolerance: of log-probabilities and of the divergence.

    Raises:
        TrainingError: if the gate is shut.
    """
    mask = batch["completion_mask"].bool()
    trained = _score_as_training(trainer, batch)[mask]
    was_training = policy.model.training
    policy.model.eval()
    rows = zip(examples, batch["completion_ids"], mask, strict=True)
    with torch.no_grad():
        scores = [
            score_alone(policy, example, ids[kept].tolist(), temperature=trainer.temperature)
            for example, ids, kept in rows
        ]
    policy.model.train(was_training)
    reference = batch.get("ref_per_token_logps")
    return judge_gate(
        trained=trained,
        alone=torch.cat(scores),
        reference=None if reference is None else reference[mask],
        tolerance=tolerance,
    )


def _score_as_training(trainer: Any, batch: dict[str, Any]) -> torch.Tensor:
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    names = ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")
    named = {name: batch[name] for name in names if batch.get(name) is not None}
    with torch.no_grad():
        scores, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, batch["completion_ids"].shape[1], **named
        )
    return scores
