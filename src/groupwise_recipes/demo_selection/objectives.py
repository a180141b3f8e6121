"""The losses of the selector's two trainings, over batches of recorded groups.

The formulas give one value per log-probability of what a policy did and leave the mean to the
caller. GRPO of language models is TRL's; these are the same formulas for the rest.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from groupwise.core import TrainingError, write_json
from groupwise.training.fast.round import find_dead_groups
from groupwise.training.on_policy import OnPolicyResult
from groupwise_recipes.demo_selection.recorded_groups import RecordedGroups, keep_best
from groupwise_recipes.demo_selection.settings import (
    MAX_ADVANTAGE,
    MIN_STD,
    SelectorGrpoSettings,
    SelectorRceSettings,
)

ON_POLICY_TOLERANCE = 1e-6
"""So far the ratio may be from 1, and the KL divergence from 0, before the first update."""

Values = dict[str, float]
AdvantageScale = Literal["group", "batch", "none"]
KlEstimator = Literal["k1", "k2", "k3"]


class Objective:
    """A loss, and what it must keep from one epoch to the next.

    Attributes:
        name: of the training; its random choices have seeds of their own.
        has_dropout: whether the selector trains with dropout.
    """

    name: str
    has_dropout: bool

    def begin_epoch(self, epoch: int) -> None:
        """Prepare an epoch, counted from 0."""

    def compute(
        self, log_probs: torch.Tensor, rows: torch.Tensor, *, done: float
    ) -> tuple[torch.Tensor, Values]:
        """Return the loss of some queries and what to log; names of counts begin with ``num_``.

        Args:
            log_probs: of their lists, shape [rows, G].
            rows: numbers of the queries, shape [rows].
            done: share of all steps that are done before this one.
        """
        raise NotImplementedError

    def end_epoch(self, means: Values) -> None:
        """Take notice of the means of what was logged in the epoch."""

    def describe(self) -> Values:
        """Return values that stand for the whole epoch, for each of its rows."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return what a training that goes on needs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it."""


class RceObjective(Objective):
    """Reward-weighted cross-entropy, mean over the queries with a list."""

    name = "rce"
    has_dropout = True

    def __init__(self, groups: RecordedGroups, settings: SelectorRceSettings) -> None:
        self._rewards, self._settings = groups.rewards, settings

    def compute(
        self, log_probs: torch.Tensor, rows: torch.Tensor, *, done: float
    ) -> tuple[torch.Tensor, Values]:
        """See Objective."""
        tau = go_linearly(self._settings.tau_start, self._settings.tau_end, done=done)
        rewards = self._rewards[rows].to(log_probs.device)
        losses = compute_rce(log_probs, rewards, temperature=tau)
        return losses.sum() / _count_scored(rewards), {"tau": tau, **_count_dead(rewards)}


class GrpoObjective(Objective):
    """PPO + β · KL over lists, against the selector that GRPO starts from.

    KL is mean(ρ - 1 - log ρ) over the recorded lists. Few of them are samples of that selector, so
    it is a distance from where training began, and no estimate of a divergence.

    Args:
        groups: what was recorded.
        settings: of GRPO.
        old_log_probs: of the lists, by the selector at the start and without dropout, [Q, G].
        record: where the on-policy check is written.
    """

    name = "grpo"
    has_dropout = False

    def __init__(
        self,
        groups: RecordedGroups,
        settings: SelectorGrpoSettings,
        *,
        old_log_probs: torch.Tensor,
        record: Path,
    ) -> None:
        self._all_rewards, self._max_reward = groups.rewards, groups.max_reward
        self._settings = settings
        self._old, self._record = old_log_probs, record
        self._is_checked = False
        self.beta = settings.beta
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        """Choose the lists of this epoch and compute their advantages."""
        curriculum, self._rewards = self._settings.curriculum, self._all_rewards
        if epoch < len(curriculum):
            self._rewards = keep_best(self._all_rewards, curriculum[epoch])
        if find_dead_groups(self._rewards).all():
            raise TrainingError(
                f"GRPO has nothing to learn in epoch {epoch + 1}",
                got=f"equal rewards within each of {len(self._rewards)} groups",
                fix="record other candidates, or keep more of them in the curriculum",
            )
        self._advantages = compute_advantages(
            self._rewards,
            epsilon=0.0,
            min_std=MIN_STD,
            max_size=MAX_ADVANTAGE,
        )

    def compute(
        self, log_probs: torch.Tensor, rows: torch.Tensor, *, done: float
    ) -> tuple[torch.Tensor, Values]:
        """See Objective."""
        old, rewards, advantages = (
            value[rows].to(log_probs.device)
            for value in (self._old, self._rewards, self._advantages)
        )
        self._check_once(log_probs.detach(), old, ~self._all_rewards[rows].isnan())
        kept = ~rewards.isnan()
        clip = self._settings.clip
        losses = clip_surrogate(log_probs, old, advantages, clip_low=clip, clip_high=clip)
        ppo, kl = _average(losses, kept), _average(estimate_kl(old, log_probs), kept)
        ratio = (log_probs.detach() - old).exp()
        values = {
            "ppo_loss": float(ppo.detach()),
            "kl": float(kl.detach()),
            "clipped": float(_average(((ratio - 1).abs() > clip).float(), kept)),
            "reward": _expect_reward(log_probs.detach(), rewards) / self._max_reward,
        }
        return ppo + self.beta * kl, values | self._count_groups(rows)

    def _check_once(
        self, log_probs: torch.Tensor, old: torch.Tensor, present: torch.Tensor
    ) -> None:
        if not self._is_checked:
            result = check_first_step(log_probs[present], old[present])
            write_json(self._record, asdict(result))
            self._is_checked = True

    def _count_groups(self, rows: torch.Tensor) -> Values:
        counts = _count_dead(self._rewards[rows])
        if self._settings.curriculum:
            before = _count_dead(self._all_rewards[rows])["num_dead_groups"]
            counts["num_dead_by_curriculum"] = counts["num_dead_groups"] - before
        return counts

    def end_epoch(self, means: Values) -> None:
        """Adapt β to the epoch's mean KL, if a target is set."""
        if self._settings.target_kl is not None:
            self.beta = adapt_beta(self.beta, kl=means["kl"], target=self._settings.target_kl)

    def describe(self) -> Values:
        """Return β, and std and greatest size of the advantages of all lists."""
        advantages = self._advantages[~self._rewards.isnan()]
        return {
            "beta": self.beta,
            "advantage_std": float(advantages.std(correction=0)),
            "advantage_max": float(advantages.abs().max()),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return β and the old log-probabilities, which the weights do not give any more."""
        return {"beta": self.beta, "old_log_probs": self._old}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them; the first step is done and checked."""
        self.beta, self._old = state["beta"], state["old_log_probs"]
        self._is_checked = True


def check_first_step(log_probs: torch.Tensor, old_log_probs: torch.Tensor) -> OnPolicyResult:
    """Compare log-probabilities of lists before the first update, each of shape [lists]."""
    nothing = torch.zeros(1)  # a batch without a list that is there
    both = [torch.cat([nothing, values.cpu()]).double() for values in (old_log_probs, log_probs)]
    max_gap, max_kl = float((both[1] - both[0]).abs().max()), float(estimate_kl(*both).max())
    if not (max_gap <= ON_POLICY_TOLERANCE and max_kl <= ON_POLICY_TOLERANCE):
        raise TrainingError(
            "the on-policy check failed: GRPO does not start from its old log-probabilities",
            got=f"|log ratio| {max_gap:.2e} and KL {max_kl:.2e}",
            expected=f"at most {ON_POLICY_TOLERANCE:.0e}",
            fix="look for dropout, or for log-probabilities that were taken before RCE",
        )
    return OnPolicyResult(len(log_probs), max_gap, max_kl, ON_POLICY_TOLERANCE)


def _average(values: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    return values.masked_fill(~kept, 0.0).sum() / kept.sum().clamp(min=1)


def _count_scored(rewards: torch.Tensor) -> int:
    return max(1, int((~rewards.isnan()).any(1).sum()))


def _count_dead(rewards: torch.Tensor) -> Values:
    dead = find_dead_groups(rewards)
    return {"num_groups": len(dead), "num_dead_groups": int(dead.sum())}


def _expect_reward(log_probs: torch.Tensor, rewards: torch.Tensor) -> float:
    """Return the mean raw reward if the selector had to take one of each group's lists."""
    shares = log_probs.masked_fill(rewards.isnan(), -torch.inf).softmax(1).nan_to_num(nan=0.0)
    return float((shares * rewards.nan_to_num(nan=0.0)).sum()) / _count_scored(rewards)


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
