"""Objectives on tensors are equal to what TRL's own trainer computes."""

import pytest
import torch

from groupwise.training import clip_surrogate, compute_advantages, estimate_kl

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
