"""The on-policy check: before anything is learned the ratio is 1 and the KL divergence is 0.

The log-probabilities that training uses (padded batch, training mode) are held against those of an
independent pass: one row at a time, no padding, evaluation mode, the prompt rendered again. A
difference means that dropout, padding, positions, pictures or the reference are wrong. That reaches
the rows with the least and the most padding, so a few, from short to long, are scored again.

How far rounding goes is measured on the rows that differ most, in ways that no such mistake
reaches: with padding behind a row, attention by another kernel, and several copies of it. In less
precision than float32 it moves single tokens farther than a mistake that moves many a little, such
as positions that are off by one: there the mean is bounded, too.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from groupwise.core import Example, TrainingError, open_picture
from groupwise.models.policy import Policy
from groupwise.models.processor import PICTURE_FIELDS, TOKEN_TYPES
from groupwise.training.sharding import gather_weights

PICTURE_NAMES = (*PICTURE_FIELDS, *TOKEN_TYPES, "num_images", "num_tiles")
"""What TRL's passes are given of pictures."""

_MAX_PLAIN_TOKENS = 2048
# How much is scored again, as each pass of a row costs a whole prompt: rows that are checked, of
# these how many rounding is measured on, columns of padding behind them, copies of the first. Less
# precision rounds so much more that few passes would say too little of how far.
_FLOAT32 = SimpleNamespace(rows=4, measured=2, behind=(9,), copies=(2, 3))
_COARSE = SimpleNamespace(rows=8, measured=8, behind=(1, 4, 9), copies=(2, 3, 5))


def find_precision(model: Any) -> torch.dtype:
    """Return in what a model computes its logits: autocast's type, or else its weights'."""
    kind = model.device.type
    is_cast = torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_cast else model.get_output_embeddings().weight.dtype


def find_ulp(value: float, dtype: torch.dtype) -> float:
    return math.ldexp(torch.finfo(dtype).eps, math.frexp(value)[1] - 1)


def find_resolution(logits: torch.Tensor, log_probs: torch.Tensor, dtype: torch.dtype) -> float:
    of_logits = find_ulp(float(logits.abs().max()), dtype)
    return max(of_logits, find_ulp(float(log_probs.abs().max()), torch.float32))


@contextmanager
def use_plain_attention(num_tokens: int, dtype: torch.dtype) -> Iterator[None]:
    """Compute attention by matrix products, in float32 and where these are small enough to hold.

    On some processors only another kernel shows how attention rounds. In less precision matrix
    products round where fused kernels do not, and would excuse what is no rounding of these.
    """
    is_used = num_tokens <= _MAX_PLAIN_TOKENS and dtype == torch.float32
    with sdpa_kernel(SDPBackend.MATH) if is_used else nullcontext():
        yield


@dataclass(frozen=True)
class OnPolicyResult:
    """What the on-policy check measured; tolerances hold for the reference's log ratios, too."""

    num_tokens: int  # of completions, compared
    max_log_ratio: float  # greatest |log ratio| of one token; 0 for a perfect match
    max_kl: float | None  # greatest k3 estimate of KL(policy, reference) of one token
    tolerance: float  # greatest |log ratio| that rounding explains
    mean_log_ratio: float | None = None  # of the tokens; None: not measured
    mean_tolerance: float | None = None  # None: the greatest of a token bounds it closely enough


def score_alone(
    policy: Policy,
    example: Example,
    token_ids: Sequence[int],
    *,
    temperature: float,
    num_behind: int = 0,
    num_copies: int = 1,
) -> torch.Tensor:
    """Return log-probabilities of completion tokens, shape [tokens], from an unpadded pass."""
    logits = _compute_logits(policy, example, token_ids, num_behind, num_copies)
    return _read_scores(logits, token_ids, temperature)


def _read_scores(
    logits: torch.Tensor, token_ids: Sequence[int], temperature: float
) -> torch.Tensor:
    scores = (logits.float() / temperature).log_softmax(-1)
    own = torch.tensor(list(token_ids), device=scores.device)
    return scores.gather(1, own.unsqueeze(1)).squeeze(1)


def _compute_logits(
    policy: Policy,
    example: Example,
    token_ids: Sequence[int],
    num_behind: int = 0,
    num_copies: int = 1,
    *,
    plain_attention: torch.dtype | None = None,
) -> torch.Tensor:
    """Return what predicts the completion's tokens, shape [tokens, vocabulary]."""
    text = policy.render_prompt(example)
    pictures = [open_picture(picture) for picture in example.pictures]
    named = {"images": [pictures] * num_copies} if pictures else {}
    inputs = dict(policy.processor(text=[text] * num_copies, return_tensors="pt", **named))
    num_tokens = len(token_ids)
    tail = torch.tensor([[*token_ids, *[0] * num_behind]] * num_copies)
    inputs["input_ids"] = torch.cat([inputs["input_ids"], tail], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    width = inputs["input_ids"].shape[1]
    inputs["attention_mask"][:, width - num_behind :] = 0
    for name in filter(inputs.__contains__, TOKEN_TYPES):
        inputs[name] = torch.cat([inputs[name], torch.zeros_like(tail)], dim=1)
    with use_plain_attention(width, plain_attention) if plain_attention else nullcontext():
        given = {k: v.to(policy.model.device) for k, v in inputs.items()}
        logits = policy.model(**given, logits_to_keep=num_tokens + num_behind + 1).logits[0]
    return logits[-num_tokens - num_behind - 1 : -num_behind - 1]


class Noise(NamedTuple):
    """How far rounding moves a log-probability."""

    largest: float
    mean: float | None  # of the tokens' ranges; None in float32, where the largest is small enough


def measure_noise(
    policy: Policy,
    rows: Sequence[tuple[Example, Sequence[int]]],
    *,
    temperature: float,
    dtype: torch.dtype,
) -> Noise:
    """Return how far rounding moves a log-probability; in float32 only the first row is copied.

    It is at least a unit of the logits' last place, and what adding up V float32 numbers in another
    order does, about sqrt(V) units; the mean is at least a third of the unit of the tokens' logits.

    Source: Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis" (2019).
    """
    is_coarse = dtype != torch.float32
    effort = _COARSE if is_coarse else _FLOAT32
    found, units, ranges = list[float](), list[float](), list[torch.Tensor]()
    for place, (example, token_ids) in enumerate(rows):
        score = partial(score_alone, policy, example, token_ids, temperature=temperature)
        logits = _compute_logits(policy, example, token_ids)
        other = _compute_logits(policy, example, token_ids, plain_attention=dtype)
        passes = [_read_scores(one, token_ids, temperature) for one in (logits, other)]
        wider = torch.stack([*passes, *(score(num_behind=number) for number in effort.behind)])
        copied = wider[:1]
        if place == 0 or is_coarse:
            copied = torch.stack([score(num_copies=number) for number in effort.copies])
        found.append(find_resolution(logits / temperature, wider, dtype))
        found.append(math.sqrt(logits.shape[-1]) * torch.finfo(torch.float32).eps)
        spans = [one.amax(0) - one.amin(0) for one in (wider, copied, torch.cat([wider, copied]))]
        found += [float(span.max()) for span in spans[:2]]
        ranges.append(spans[2])
        own = logits.gather(1, torch.tensor([token_ids], device=logits.device).T) / temperature
        units += [find_ulp(float(value), dtype) for value in own.flatten()]
    if not is_coarse:
        return Noise(max(found), None)
    return Noise(max(found), max(float(torch.cat(ranges).mean()), sum(units) / len(units) / 3))


def choose_rows(sizes: Sequence[int], max_rows: int) -> list[int]:
    by_size = sorted(range(len(sizes)), key=lambda place: sizes[place])
    num = min(len(sizes), max_rows)
    chosen = [by_size[round(k * (len(sizes) - 1) / max(num - 1, 1))] for k in range(num)]
    return sorted(chosen)


def find_worst(
    trained: Sequence[torch.Tensor], alone: Sequence[torch.Tensor], max_rows: int
) -> list[int]:
    """Return the places of the rows that differ most: rounding is measured on them."""
    gaps = [float((one - other).abs().max()) for one, other in zip(trained, alone, strict=True)]
    return sorted(range(len(gaps)), key=lambda place: -gaps[place])[:max_rows]


def judge_on_policy(
    *,
    trained: torch.Tensor,
    alone: torch.Tensor,
    reference: torch.Tensor | None,
    noise: float,
    mean_noise: float | None = None,
) -> OnPolicyResult:
    """Compare log-probabilities of the same tokens, each of shape [tokens]; refuse a difference.

    Twice the ``noise`` of a token is accepted, and of the mean ``mean_noise`` with three standard
    errors of one that varies as much as it is large (None: the mean is not bounded).
    """
    tolerance = 2 * noise
    mean_tolerance = mean_noise and mean_noise * (1 + 3 / math.sqrt(len(trained)))
    gaps, max_kl = [(trained - alone).abs()], None
    if reference is not None:
        gap = (reference - trained).double()
        gaps.append(gap.abs())
        max_kl = float((gap.exp() - gap - 1).max())
    max_log_ratio, mean_log_ratio = float(gaps[0].max()), float(gaps[0].mean())
    kl = "none" if max_kl is None else f"{max_kl:.2e}"
    fix = "look for dropout, padding, positions or a wrong reference model"
    if not all(float(one.max()) <= tolerance for one in gaps):
        raise TrainingError(
            "the on-policy check failed: policy, sampler and reference do not agree",
            got=f"|log ratio| {max_log_ratio:.2e} and KL {kl}",
            expected=f"at most {tolerance:.0e} and {math.exp(tolerance) - tolerance - 1:.0e}, "
            "twice what rounding does in these rows",
            fix=fix,
        )
    if mean_tolerance is not None and not all(float(one.mean()) <= mean_tolerance for one in gaps):
        raise TrainingError(
            "the on-policy check failed: policy, sampler and reference do not agree on average",
            got=f"a mean |log ratio| of {max(float(one.mean()) for one in gaps):.2e} and KL {kl}",
            expected=f"at most {mean_tolerance:.1e}, as far as rounding spreads these rows",
            fix=fix,
        )
    return OnPolicyResult(
        len(trained), max_log_ratio, max_kl, tolerance, mean_log_ratio, mean_tolerance
    )


def join_results(found: Sequence[OnPolicyResult]) -> OnPolicyResult:
    kls = [one.max_kl for one in found if one.max_kl is not None]
    num_tokens = sum(one.num_tokens for one in found)
    sums = [(one.mean_log_ratio or 0.0) * one.num_tokens for one in found]
    means = [one.mean_tolerance for one in found if one.mean_tolerance is not None]
    return OnPolicyResult(
        num_tokens=num_tokens,
        max_log_ratio=max(one.max_log_ratio for one in found),
        max_kl=max(kls, default=None),
        tolerance=max(one.tolerance for one in found),
        mean_log_ratio=None if found[0].mean_log_ratio is None else sum(sums) / num_tokens,
        mean_tolerance=max(means, default=None),
    )


def check_on_policy(
    trainer: Any, policy: Policy, examples: Sequence[Example], batch: dict[str, Any]
) -> OnPolicyResult:
    """Check the first batch that a GRPO trainer sampled, before its first update."""
    mask = batch["completion_mask"].bool()
    said = mask.any(1).nonzero().flatten().tolist()
    sizes = batch["prompt_mask"].sum(1).tolist()
    with trainer.accelerator.autocast():
        dtype = find_precision(policy.model)
    effort = _FLOAT32 if dtype == torch.float32 else _COARSE
    chosen = [said[place] for place in choose_rows([sizes[row] for row in said], effort.rows)]

    def pick(scores: torch.Tensor) -> list[torch.Tensor]:
        return [scores[row][mask[row]] for row in chosen]

    ids, both = (
        torch.cat([batch[f"prompt_{kind}"], batch[f"completion_{kind}"]], dim=1)
        for kind in ("ids", "mask")
    )
    named = {name: batch[name] for name in PICTURE_NAMES if batch.get(name) is not None}
    with torch.no_grad():  # as training computes them, in its shape
        scores, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, both, batch["completion_ids"].shape[1], **named
        )
    trained = pick(scores)
    rows = [(examples[row], batch["completion_ids"][row][mask[row]].tolist()) for row in chosen]
    temperature, was_training = trainer.temperature, policy.model.training
    policy.model.eval()
    # Every process has rows of its own, and not as many.
    gathered = gather_weights(policy.model)
    with torch.no_grad(), trainer.accelerator.autocast(), gathered:
        alone = [score_alone(policy, *row, temperature=temperature) for row in rows]
        worst = [rows[place] for place in find_worst(trained, alone, effort.measured)]
        noise = measure_noise(policy, worst, temperature=temperature, dtype=dtype)
    policy.model.train(was_training)
    reference = batch.get("ref_per_token_logps")
    return judge_on_policy(
        trained=torch.cat(trained),
        alone=torch.cat(alone),
        reference=None if reference is None else torch.cat(pick(reference)),
        noise=noise.largest,
        mean_noise=noise.mean,
    )
