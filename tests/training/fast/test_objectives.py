"""Objectives have their published values, the gradients of their formulas, and TRL's results."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.training.fast.round import find_dead_groups
from groupwise_recipes.demo_selection.objectives import (
    adapt_beta,
    clip_surrogate,
    compute_advantages,
    compute_rce,
    estimate_kl,
    go_linearly,
    weigh_by_reward,
)

SELECTOR = {"epsilon": 0.0, "min_std": 0.1, "max_size": 5.0}
VARIANTS = [{}, {"scale": "batch"}, {"scale": "none"}, SELECTOR]
NAN = math.nan

# Eighths: sums and differences of them are exact.
EIGHTHS = st.integers(-24, 24).map(lambda number: number / 8)


@st.composite
def draw_groups(draw, *, unscored=True):
    """Return rewards, shape [groups, answers]."""
    size = draw(st.integers(2, 6))
    value = EIGHTHS | st.just(NAN) if unscored else EIGHTHS
    rows = draw(st.lists(st.lists(value, min_size=size, max_size=size), min_size=1, max_size=4))
    return torch.tensor(rows, dtype=torch.float64)


def test_the_selector_s_advantages_have_a_floor_and_a_limit():
    rewards = torch.tensor([[0.0, 0.0, 0.1], [0.0, 0.0, 3.0], [0.0] * 2 + [NAN]])
    found = compute_advantages(rewards, **SELECTOR)
    # The first group's std is .058: it counts as .1.
    assert found[0].tolist() == pytest.approx([-1 / 3, -1 / 3, 2 / 3])
    assert found[1].tolist() == pytest.approx([-(3**-0.5), -(3**-0.5), 2 * 3**-0.5])
    assert found[2].tolist() == [0, 0, 0]
    alone = torch.zeros(1, 40)
    alone[0, 0] = 2.0
    assert compute_advantages(alone, **SELECTOR).max() == 5
    assert compute_advantages(-alone, **SELECTOR).min() == -5


@pytest.mark.parametrize("variant", VARIANTS)
@given(rewards=draw_groups(), shift=EIGHTHS)
def test_advantages_do_not_see_a_shift_of_all_rewards(variant, rewards, shift):
    found = compute_advantages(rewards, **variant)
    torch.testing.assert_close(found, compute_advantages(rewards + shift, **variant))


@pytest.mark.parametrize("variant", VARIANTS)
@given(rewards=draw_groups())
def test_dead_groups_and_unscored_answers_have_none(variant, rewards):
    found, dead = compute_advantages(rewards, **variant), find_dead_groups(rewards)
    assert found.isfinite().all()
    assert not found[dead].any()
    assert not found[rewards.isnan()].any()
    assert found[~dead].any(1).all()
    for row, is_dead in zip(rewards, dead, strict=True):
        assert bool(is_dead) == (len(set(row[~row.isnan()].tolist())) < 2)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rounding_gives_dead_groups_no_advantage(variant):
    rewards = torch.full((3, 7), 0.1)
    assert (rewards - rewards.mean(1, keepdim=True)).any()
    assert not compute_advantages(rewards, **variant).any()


@given(rewards=draw_groups())
def test_an_unscored_answer_is_as_if_it_were_not_there(rewards):
    wider = torch.cat([rewards, torch.full_like(rewards[:, :1], NAN)], dim=1)
    for variant in VARIANTS:
        found = compute_advantages(wider, **variant)[:, :-1]
        torch.testing.assert_close(found, compute_advantages(rewards, **variant))


def test_the_ratio_is_cut_on_the_side_that_would_pay():
    ratios = torch.tensor([0.7, 0.9, 1.0, 1.1, 1.4])
    log_probs = (ratios.log() - 3).requires_grad_()
    old = torch.full((5,), -3.0)
    gained = clip_surrogate(log_probs, old, torch.ones(5), clip_high=0.28)
    assert (-gained).tolist() == pytest.approx([0.7, 0.9, 1.0, 1.1, 1.28])
    [gradient] = torch.autograd.grad(gained.sum(), log_probs)
    assert gradient.tolist() == pytest.approx([-0.7, -0.9, -1.0, -1.1, 0])
    lost = clip_surrogate(log_probs, old, -2 * torch.ones(5))
    assert lost.tolist() == pytest.approx([1.6, 1.8, 2.0, 2.2, 2.8])
    [gradient] = torch.autograd.grad(lost.sum(), log_probs)
    assert gradient.tolist() == pytest.approx([0, 1.8, 2.0, 2.2, 2.8])


@given(rewards=draw_groups())
def test_on_policy_the_surrogate_is_the_policy_gradient(rewards):
    advantages = compute_advantages(rewards, **SELECTOR)
    log_probs = torch.full(rewards.shape, -2.0, dtype=torch.float64, requires_grad=True)
    loss = clip_surrogate(log_probs, log_probs.detach(), advantages).sum()
    [gradient] = torch.autograd.grad(loss, log_probs)
    assert gradient.equal(-advantages)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_is_estimated(estimator):
    """k1 and k3 are right in the mean over p; k2 nearly, where p and q are close."""
    p, q = torch.tensor([[0.5, 0.3, 0.2], [0.45, 0.33, 0.22]], dtype=torch.float64)
    truth = float((p * (p / q).log()).sum())
    found = estimate_kl(p.log(), q.log(), estimator=estimator)
    error = 1e-12 if estimator != "k2" else truth / 50
    assert float((p * found).sum()) == pytest.approx(truth, abs=error)
    assert bool((found < 0).any()) == (estimator == "k1")
    assert not estimate_kl(p.log(), p.log(), estimator=estimator).any()


def test_gradients_of_kl_estimators_are_those_of_their_formulas():
    log_probs = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-1.5, -1.2], dtype=torch.float64)
    gap = (reference - log_probs).detach()
    expected = {"k1": torch.ones_like(gap), "k2": -gap, "k3": 1 - gap.exp()}
    for estimator, gradient in expected.items():
        found = estimate_kl(log_probs, reference, estimator=estimator).sum()
        torch.testing.assert_close(torch.autograd.grad(found, log_probs)[0], gradient)


def test_kl_of_recorded_answers_is_that_of_the_ratio():
    old, new = torch.tensor([-1.0, -2.0]).double(), torch.tensor([-1.5, -1.2]).double()
    ratio = (new - old).exp()
    torch.testing.assert_close(estimate_kl(old, new), ratio - 1 - ratio.log())


@pytest.mark.parametrize(
    ("kl", "ppo", "loss"),
    [(0.09400, 0.00034, 0.01162), (0.08131, 0.00083, 0.01059), (0.07414, 0.00092, 0.00982)],
)
def test_the_published_losses_are_surrogate_and_penalty(kl, ppo, loss):
    """One log-ratio and one advantage that give a published row's KL and PPO loss."""
    ratio = torch.tensor(1.0, dtype=torch.float64)
    for _ in range(60):
        ratio = ratio - (ratio - 1 - ratio.log() - kl) / (1 - 1 / ratio).clamp(min=0.1)
    old = torch.tensor(-5.0, dtype=torch.float64)
    penalty = estimate_kl(old, old + ratio.log())
    surrogate = clip_surrogate(old + ratio.log(), old, -ppo / ratio)
    assert f"{float(penalty):.5f} {float(surrogate):.5f}" == f"{kl:.5f} {ppo:.5f}"
    assert f"{float(surrogate + 0.12 * penalty):.5f}" == f"{loss:.5f}"


def test_beta_follows_the_divergence():
    assert [adapt_beta(0.12, kl=kl, target=0.03) for kl in (0.01, 0.03, 0.05)] == [0.06, 0.12, 0.24]


@given(rewards=draw_groups(unscored=False), shift=EIGHTHS, temperature=st.floats(0.5, 2))
def test_rce_is_the_weighted_cross_entropy(rewards, shift, temperature):
    log_probs = (-rewards.square() - 1).requires_grad_()
    loss = compute_rce(log_probs, rewards, temperature=temperature)
    weights = torch.softmax(rewards / temperature, 1)
    torch.testing.assert_close(loss, -(weights * log_probs).sum(1))
    [gradient] = torch.autograd.grad(loss.sum(), log_probs)
    torch.testing.assert_close(gradient, -weights)
    shifted = compute_rce(log_probs, rewards + shift, temperature=temperature)
    torch.testing.assert_close(shifted, loss)


def test_rce_leaves_out_what_is_unscored():
    rewards = torch.tensor([[1.0, NAN, 0.0], [NAN, NAN, NAN]])
    log_probs = torch.tensor([[-1.0, -torch.inf, -3.0], [-1.0, -2.0, -torch.inf]])
    log_probs.requires_grad_()
    loss = compute_rce(log_probs, rewards, temperature=0.5)
    weight = 1 / (1 + math.exp(-2))
    assert loss.tolist() == pytest.approx([weight + 3 * (1 - weight), 0])
    [gradient] = torch.autograd.grad(loss.sum(), log_probs)
    assert gradient.tolist() == [pytest.approx([-weight, 0, weight - 1]), [0, 0, 0]]


def test_the_temperature_of_rce_says_how_much_the_best_counts():
    rewards = torch.tensor([[2.0, 1.0, 0.0]])
    assert weigh_by_reward(rewards, temperature=1e4)[0].tolist() == pytest.approx([1 / 3] * 3, 1e-3)
    assert weigh_by_reward(rewards, temperature=0.05)[0].tolist() == pytest.approx(
        [1, 0, 0], abs=1e-6
    )
    assert [go_linearly(2.0, 0.5, done=done) for done in (0, 0.5, 1)] == [2.0, 1.25, 0.5]


REWARDS = [0.0, 1.0, 0.25, 0.5, 0.5, 0.5]
UNSCORED = [0.0, None, 0.25, None, None, 0.5]


@pytest.mark.parametrize(
    ("scale", "rewards"),
    [("group", REWARDS), ("group", UNSCORED), ("batch", UNSCORED), ("none", UNSCORED)],
    ids=["scored", "unscored", "batch", "none"],
)
def test_loss_and_advantages_are_those_of_trl(scale, rewards, pairs, grpo, keep_order):
    """Three updates on one round: the ratio leaves 1, and some of it is clipped."""
    options = {"beta": 0.3, "use_bias_correction_kl": False, "epsilon": 0.002, "loss_type": "grpo"}
    stepped = pairs.make(
        trained="fresh",
        reward=lambda **_: list(rewards),
        scale_rewards=scale,
        num_iterations=3,
        steps_per_generation=1,
        learning_rate=1e-2,
        **options,
    )
    rows = grpo.make_rows(3)
    completions = grpo.write_completions(len(rows), end=1)
    stepped.say(completions)
    updates = [stepped.update(rows) for _ in range(3)]
    grouped = torch.tensor([torch.nan if r is None else r for r in rewards]).view(-1, 3)
    advantages = compute_advantages(grouped, scale=scale).flatten()
    torch.testing.assert_close(stepped.batches[-1]["advantages"], advantages, atol=1e-5, rtol=1e-5)

    [old, reference, first] = updates[0].log_probs
    lengths = [len(ids) for ids in completions]
    by_token = advantages.repeat_interleave(torch.tensor(lengths))
    for update, log_probs in zip(
        updates, [first, *(u.log_probs[-1] for u in updates[1:])], strict=True
    ):
        surrogate = clip_surrogate(log_probs, old, by_token, clip_low=0.002, clip_high=0.002)
        losses = surrogate + 0.3 * estimate_kl(log_probs, reference)
        loss = torch.stack([row.mean() for row in losses.split(lengths)]).mean()
        assert update.losses == [pytest.approx(float(loss), abs=1e-5)]
    assert float((log_probs - old).abs().max()) > 0.01
