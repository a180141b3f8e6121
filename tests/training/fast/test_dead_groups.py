"""Rows without a gradient are left out and counted; the gradient stays the parent's."""

import pytest
import torch

from groupwise.training.settings import SpeedSettings

REWARDS = {
    "one group dead": [1.0, 1.0, 1.0, 0.0, 0.5, 1.0],
    "one row at the mean": [0.0, 0.5, 1.0, 0.25, 0.5, 1.0],
    "nothing known of one": [0.0, None, 1.0, None, None, None],
    "one row known": [0.0, None, None, 0.5, 1.0, 0.75],
    "all dead": [1.0, 1.0, 1.0, 0.0, 0.0, 0.0],
    "nothing known": [None] * 6,
}
ALL_DEAD = ("all dead", "nothing known")


def give(rewards):
    return lambda completion_ids, **_: rewards[: len(completion_ids)]


@pytest.fixture
def compare(grpo, pairs, keep_order):
    def run(family, rewards, *, trained="sft", num_updates=2, **options):
        sizes = [[(16, 16)], [(24, 16)]] if family.endswith("vl") else None
        both = pairs.make_both(family, trained, reward=give(rewards), **options)
        for stepped in both:
            stepped.say(grpo.write_completions(6, end=stepped.trainer.eos_token_ids[0]))
        for seed in range(num_updates):
            rows = grpo.make_rows(3, sizes=sizes)
            parent, fast = (stepped.update(rows, seed=seed) for stepped in both)
            for name, gradient in parent.gradients.items():
                other = fast.gradients[name]
                assert (gradient - other).norm() <= 1e-4 * gradient.norm() + 1e-9
            assert fast.losses == pytest.approx(parent.losses, abs=1e-6)
        return both

    return run


@pytest.mark.parametrize(
    ("family", "case"),
    [
        *[("qwen2", case) for case in REWARDS],
        *[("qwen2_5_vl", case) for case in ("one group dead", "all dead")],
    ],
)
def test_gradients_are_the_parents(compare, family, case):
    _, fast = compare(family, REWARDS[case])
    for gradient in fast.list_weights().values():
        assert not gradient.isnan().any()


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param("grpo", marks=pytest.mark.slow),
        pytest.param("bnpo", marks=pytest.mark.slow),
        "dr_grpo",
        pytest.param("cispo", marks=pytest.mark.slow),
        "sapo",
        pytest.param("luspo", marks=pytest.mark.slow),
    ],
)
def test_every_loss(compare, loss):
    """The dead rows still count in means over rows and tokens."""
    compare("qwen2", REWARDS["one group dead"], loss_type=loss, num_iterations=2)


def test_sequence_level_ratios(compare):
    options = {"importance_sampling_level": "sequence", "num_iterations": 2}
    compare("qwen2", REWARDS["one group dead"], **options)


@pytest.mark.parametrize(
    ("case", "num_skipped", "num_dead"),
    [("one group dead", 4, 1), ("one row at the mean", 1, 0), ("nothing known of one", 4, 1)],
)
def test_skipped_rows_are_counted(compare, case, num_skipped, num_dead):
    """A group is dead, or a row is at its group's mean: both have no gradient."""
    _, fast = compare("qwen2", REWARDS[case], num_updates=1)
    assert fast.list_metrics()["skipped_rows"] == [pytest.approx(num_skipped / 6)]
    logs = {"loss": 0.0}
    fast.trainer.log(logs)
    assert (logs["num_groups"], logs["num_dead_groups"]) == (2, num_dead)
    assert logs["num_skipped_rows"] == num_skipped
    fast.trainer.log(later := {"loss": 0.0})
    assert not [name for name in later if name.startswith("num_")]


@pytest.mark.parametrize("case", ALL_DEAD)
@pytest.mark.parametrize("micro_batches", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_batch_without_a_live_row_has_a_gradient_of_zero(compare, case, micro_batches):
    options = {
        "per_device_train_batch_size": 6 // micro_batches,
        "gradient_accumulation_steps": micro_batches,
    }
    _, fast = compare("qwen2", REWARDS[case], num_updates=1, trained="all", **options)
    assert fast.list_metrics()["skipped_rows"] == [1.0] * micro_batches


def test_every_parameter_takes_part_without_a_live_row(grpo, pairs):
    """Its gradient is 0, not None: every process must take part in the backward pass."""
    stepped = pairs.make("qwen2", "all", speed=SpeedSettings(), reward=give([1.0] * 6))
    stepped.say(grpo.write_completions(6, end=2))
    trainer = stepped.trainer
    trainer.training_step(trainer.model, grpo.make_rows(3), None)
    found = [p.grad for p in trainer.model.parameters() if p.requires_grad]
    assert found
    for gradient in found:
        assert gradient is not None
        assert not gradient.any()


@pytest.mark.parametrize("case", ["one group dead", "nothing known"])
def test_entropy_is_defined(compare, case):
    """It is that of the rows that were scored."""
    parent, fast = compare("qwen2", REWARDS[case], num_updates=1)
    (expected,), (found,) = (s.list_metrics()["entropy"] for s in (parent, fast))
    assert found == pytest.approx(expected, rel=0.2)
    assert fast.list_metrics()["clip_ratio/region_mean"] == [0.0]


def count_tokens(stepped):
    """Tokens that enter the last block in training passes."""
    seen = []

    def count(_, given):
        if torch.is_grad_enabled():
            seen.append(sum(states.shape[:2].numel() for states in given))

    stepped.trainer.model.get_base_model().model.layers[-1].register_forward_pre_hook(count)
    return seen


@pytest.mark.parametrize(
    ("options", "skips"),
    [
        ({}, True),
        ({"beta": 0.1}, False),
        ({"entropy_coef": 0.1}, False),
        ({"top_entropy_quantile": 0.5}, False),
    ],
)
def test_skipped_only_where_nothing_else_has_a_gradient(compare, options, skips):
    _, fast = compare("qwen2", REWARDS["one group dead"], **options)
    assert ("skipped_rows" in fast.list_metrics()) == skips


def test_dead_rows_are_not_computed(grpo, pairs):
    def find(speed):
        rewards = give(REWARDS["one group dead"])
        stepped = pairs.make("qwen2", "last", speed=speed, reward=rewards)
        stepped.say(grpo.write_completions(6, end=2))
        seen = count_tokens(stepped)
        stepped.update(grpo.make_rows(3))
        return sum(seen)

    assert find(SpeedSettings()) < 0.7 * find(SpeedSettings(skip_dead_groups=False))


def test_equal_rewards_are_dead_whatever_the_rounding(grpo, pairs):
    """In fp32 the mean of 0.9, 0.9 and 0.9 is not quite 0.9."""
    stepped = pairs.make("qwen2", speed=SpeedSettings(), reward=give([0.9, 0.9, 0.9, 0, 1, 0.3]))
    stepped.say(grpo.write_completions(6, end=2))
    stepped.update(grpo.make_rows(3))
    assert stepped.batches[0]["advantages"][:3].tolist() == [0.0, 0.0, 0.0]
    assert stepped.batches[0]["advantages"][3:].all()


def test_dead_rows_of_unlikely_tokens_stay_finite(grpo, pairs):
    """Their ratio is 1: that of a log-probability of 0 to the old one would be infinite."""
    rewards = give(REWARDS["one group dead"])
    stepped = pairs.make(
        "qwen2", speed=SpeedSettings(), reward=rewards, temperature=0.01, num_iterations=2
    )
    stepped.say(grpo.write_completions(6, end=2))
    update = stepped.update(grpo.make_rows(3))
    assert update.log_probs[0].min() < -100
    assert all(gradient.isfinite().all() for gradient in update.gradients.values())
