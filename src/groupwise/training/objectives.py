"""Objectives on tensors, for policies of any kind: advantages, clipped surrogate, KL, RCE.

A policy gives log-probabilities of what it did: of tokens, of a whole list that it chose, of an
action. The functions return one value per log-probability and leave the mean to the caller, as what
belongs into it differs between losses. GRPO of language models is TRL's (``train_grpo``); these are
the same formulas for the rest.
"""

from typing import Literal

import torch

AdvantageScale = Literal["group", "batch", "none"]
KlEstimator = Literal["k1", "k2", "k3"]


def compute_advantages(
    rewards: torch.Tensor,
    *,
    scale: AdvantageScale = "group",
    epsilon: float = 1e-4,
    min_std: float = 0.0,
    max_size: float | None = None,
) -> torch.Tensor:
    """Return how much better each answer is than its group, shape [groups, answers].

    A = (r - mean of the group) / (max(std, min_std) + epsilon), cut to [-max_size, max_size]; std
    divides by n - 1. Unscored answers leave mean and std and get 0, and so does a group that is
    dead. TRL's are the defaults; selectors of demonstrations take epsilon 0, min_std 0.1 and
    max_size 5.

    Source: Shao et al. 2024 (2402.03300), section 4.1.2; without std: Liu et al. 2025, Dr. GRPO
    (2503.20783).

    Args:
        rewards: any finite numbers, NaN where unscored, shape [groups, answers].
        scale: std of the group, of all rewards of the batch, or none: A = r - mean.
        epsilon: added to the std, at least 0.
        min_std: at least so great is the std taken to be.
        max_size: greatest absolute value, above 0; None: no limit.
    """
    centred = rewards - rewards.nanmean(1, keepdim=True)
    if scale != "none":
        spread = rewards if scale == "group" else rewards.reshape(1, -1)
        gaps = (spread - spread.nanmean(1, keepdim=True)).nan_to_num(nan=0.0)
        num_others = (~spread.isnan()).sum(1, keepdim=True) - 1
        std = (gaps.square().sum(1, keepdim=True) / num_others.clamp(min=1)).sqrt()
        std = std.clamp(min=min_std) + epsilon
        # A batch in which nothing differs is dead all over, and is filled with 0 below.
        centred = centred / std.where(std > 0, 1.0)
    is_idle = rewards.isnan() | find_dead_groups(rewards).unsqueeze(1)
    advantages = centred.masked_fill(is_idle, 0.0)
    return advantages if max_size is None else advantages.clamp(-max_size, max_size)


def find_dead_groups(rewards: torch.Tensor) -> torch.Tensor:
    """Return which groups teach nothing, as all that is scored in them is equal, shape [groups].

    Groups with one scored answer or none are among them. Rewards, NaN where unscored, have the
    shape [groups, answers].
    """
    unscored = rewards.isnan()
    greatest = rewards.masked_fill(unscored, -torch.inf).amax(1)
    return greatest <= rewards.masked_fill(unscored, torch.inf).amin(1)


def clip_surrogate(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> torch.Tensor:
    """Return -min(ρ A, clip(ρ, 1 - clip_low, 1 + clip_high) A), to be minimised.

    ρ = exp(log_probs - old_log_probs). Where clipping decides, there is no gradient.

    Source: Schulman et al. 2017 (1707.06347), equation 7; two limits: Yu et al. 2025, DAPO
    (2503.14476).

    Log-probabilities of the policy and of the one that answered have one shape, to which that of
    advantages is broadcast; ``clip_low`` is in [0, 1], ``clip_high`` at least 0.
    """
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.min(ratio * advantages, clipped * advantages)


def estimate_kl(
    log_probs: torch.Tensor, other_log_probs: torch.Tensor, *, estimator: KlEstimator = "k3"
) -> torch.Tensor:
    """Return estimates of KL(p, q) at answers of p, of their shape.

    With D = log q - log p: k1 = -D (unbiased, may be negative), k2 = D² / 2 (biased, at least 0),
    k3 = exp(D) - D - 1 (unbiased, at least 0). At answers that p did not sample none estimates the
    divergence; k2 and k3 still are 0 only where p and q agree.

    ``estimate_kl(log_probs, reference)`` is GRPO's penalty. For answers that the old policy
    recorded, ``estimate_kl(old, log_probs)`` is ρ - 1 - log ρ.

    Source: Schulman, "Approximating KL divergence" (2020); k3 in GRPO: 2402.03300, equation 4.

    Log-probabilities of p and of q, ``other_log_probs``, have one shape.
    """
    gap = other_log_probs - log_probs
    if estimator == "k1":
        return -gap
    return gap.square() / 2 if estimator == "k2" else gap.exp() - gap - 1


def adapt_beta(beta: float, *, kl: float, target: float) -> float:
    """Return the next weight of the KL penalty: half as much below target / 1.5, twice above 1.5×.

    Source: Schulman et al. 2017 (1707.06347), section 4.

    The mean divergence since it was last adapted and its target, above 0, are in nats.
    """
    if kl > 1.5 * target:
        return 2 * beta
    return beta / 2 if kl < target / 1.5 else beta


def weigh_by_reward(rewards: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Return softmax(r / τ) of each group, 0 where unscored, shape [groups, answers].

    Rows sum to 1; a group in which nothing is scored has only zeros.

    Source: the exponentiated payoff of Norouzi et al. 2016 (1609.00150).

    Rewards are raw, NaN where unscored, shape [groups, answers]; τ above 0 is great for equal
    weights, small for the best answer alone.
    """
    scaled = (rewards / temperature).masked_fill(rewards.isnan(), -torch.inf)
    return scaled.softmax(1).nan_to_num(nan=0.0)


def compute_rce(
    log_probs: torch.Tensor, rewards: torch.Tensor, *, temperature: float
) -> torch.Tensor:
    """Return the reward-weighted cross-entropy of each group, -Σ w log p, shape [groups].

    Reward-conditioned estimation (RCE) with w = ``weigh_by_reward``. A group in which nothing is
    scored gives 0. Log-probabilities are of each answer, summed over its steps; they and the raw
    rewards, NaN where unscored, have the shape [groups, answers].
    """
    weights = weigh_by_reward(rewards, temperature=temperature)
    return -(weights * log_probs.masked_fill(rewards.isnan(), 0.0)).sum(1)


def go_linearly(start: float, end: float, *, done: float) -> float:
    """Return what lies between two values where a share in [0, 1] of all steps is done."""
    return start + (end - start) * done
