"""Completions from vLLM: weights reach it, and scoring and gradients are the parent's.

vLLM itself needs a GPU; ``fake_vllm`` stands in for its engine, TRL's own code sends the weights.
"""

import pytest
import torch

from groupwise.core import TrainingError
from groupwise.training.settings import SpeedSettings

SIZES = [[(16, 16)], [(24, 16)]]
slow = pytest.mark.slow
CORRECTIONS = {
    name: {"vllm_importance_sampling_mode": name}
    for name in ("sequence_mask", "sequence_truncate", "token_mask", "token_truncate")
} | {"none": {"vllm_importance_sampling_correction": False}}


@pytest.fixture
def fake(fixtures, policies, grpo, monkeypatch):
    """Let trainers sample with a fake vLLM."""

    def run(family, *, noise=0.0, num_rows=6):
        end = policies.find_base(family).generation_config.eos_token_id
        completions = grpo.write_completions(num_rows, end=end)
        kind = fixtures("fake_vllm").make_fake_vllm(
            policies.find_base(family), completions, noise=noise
        )
        monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", kind)

    return run


@pytest.fixture
def compare(grpo, pairs, fake, keep_order):
    """Step the parent class and the fast one on the same vLLM; check every step."""

    def run(family="qwen2", trained="sft", *, num_updates=2, noise=0.3, **options):
        fake(family, noise=noise)
        both = pairs.make_both(family, trained, use_vllm=True, **options)
        rows = grpo.make_rows(3, sizes=SIZES if family.endswith("vl") else None)
        for seed in range(num_updates):
            parent, fast = (stepped.update(rows, seed=seed) for stepped in both)
            assert grpo.measure_log_probs(parent, fast) < 1e-5
            assert grpo.measure_difference(parent.gradients, fast.gradients) < 1e-4
            assert fast.losses == pytest.approx(parent.losses, abs=1e-5)
        parent, fast = both
        assert grpo.measure_difference(parent.list_weights(), fast.list_weights()) < 1e-4
        assert fast.num_shared > 0
        for name, values in parent.list_metrics().items():
            if name.startswith("sampling/"):
                assert fast.list_metrics()[name] == pytest.approx(values, abs=1e-4)
        return both

    return run


@pytest.mark.parametrize(
    "correction",
    [
        one if one in ("token_truncate", "sequence_mask") else pytest.param(one, marks=slow)
        for one in CORRECTIONS
    ],
)
def test_every_correction(compare, correction):
    parent, fast = compare(num_iterations=2, beta=0.1, **CORRECTIONS[correction])
    for stepped in (parent, fast):
        found = stepped.batches[0].get("importance_sampling_ratio")
        assert (found is None) == (correction == "none")
        assert found is None or ((found - 1).abs() > 0.01).any()


_WAYS = [
    *(("qwen2", trained) for trained in ("last", "full", "fresh")),
    *(("qwen2_5_vl", trained) for trained in ("sft", "full")),
    ("qwen3_vl", "sft"),
]
_QUICK = (("colocate", "qwen2_5_vl", "sft"), ("server", "qwen2", "last"))


@pytest.mark.parametrize(
    ("mode", "family", "trained"),
    [
        *_QUICK,
        *(
            pytest.param(mode, *way, marks=slow)
            for mode in ("colocate", "server")
            for way in _WAYS
            if (mode, *way) not in _QUICK
        ),
    ],
)
def test_weights_arrive_before_each_round(compare, policies, family, trained, mode):
    """vLLM's log-probabilities are the policy's, in the third round, too."""
    both = compare(family, trained, num_updates=3, noise=0.0, vllm_mode=mode)
    names = [name for name, _ in policies.find_base(family).named_parameters()]
    for stepped in both:
        assert stepped.trainer.vllm_generation.syncs == [names] * 3
        found = stepped.list_metrics()["sampling/sampling_logp_difference/max"]
        assert max(found) < 1e-5
    start, end = (stepped.batches[place]["old_per_token_logps"] for place in (0, 2))
    assert (start - end).abs().max() > 1e-3


def test_a_round_of_several_updates(compare):
    """Rows of one round, shuffled in groups, keep their log-probabilities and ratios."""
    compare(per_device_train_batch_size=3, steps_per_generation=2, num_updates=3, beta=0.1)


def test_dead_groups_are_skipped(compare):
    rewards = [1.0, 1.0, 1.0, 0.0, 0.5, 1.0]
    _, fast = compare(reward=lambda completion_ids, **_: rewards)
    assert fast.list_metrics()["skipped_rows"][0] == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    "dtype", [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16]
)
def test_base_weights_are_only_read(grpo, pairs, policies, fake, dtype):
    """TRL's own way leaves other ones behind."""
    changed = {}
    for name, speed in (("fast", SpeedSettings()), ("parent", None)):
        fake("qwen2")
        model = policies.build("qwen2", "sft").to(dtype)
        stepped = pairs.make("qwen2", speed=speed, model=model, use_vllm=True)
        base = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
        for seed in range(2):
            stepped.update(grpo.make_rows(3), seed=seed)
        now = dict(model.named_parameters())
        changed[name] = [n for n, value in base.items() if not now[n].equal(value)]
    assert not changed["fast"]
    assert changed["parent"]


def count_tokens(module):
    seen = []

    def count(_, given):  # prompts and what continues them
        seen.append(sum(states.shape[:-1].numel() for states in given))

    module.register_forward_pre_hook(count)
    return seen


@pytest.mark.slow
def test_trunk_and_features_are_computed_once(grpo, pairs, fake):
    """In the pass that scores what vLLM sampled: the update starts at the first trained block."""
    fake("qwen2_5_vl")
    stepped = pairs.make("qwen2_5_vl", speed=SpeedSettings(), use_vllm=True, num_iterations=2)
    rows = grpo.make_rows(3, sizes=SIZES)
    stepped.update(rows)
    stepped.update(rows, seed=1)
    base = stepped.trainer.model.get_base_model().model
    first = count_tokens(base.language_model.layers[0])
    last = count_tokens(base.language_model.layers[-1])
    patches = count_tokens(base.visual.blocks[0])
    stepped.update(rows, seed=2)
    assert sum(patches) == 16 + 24
    assert sum(last) == 2 * sum(first)
    assert sum(first) == grpo.count_real_tokens(stepped.batches[-1], group_size=3)
    stepped.update(rows, seed=3)
    assert sum(last) == 3 * sum(first)


def test_an_adapter_that_cannot_be_merged_is_refused(pairs, policies, fake):
    from peft import get_peft_model

    fake("qwen2")
    model = get_peft_model(policies.build("qwen2", "full"), policies.make_lora(use_dora=True))
    with pytest.raises(TrainingError, match="vLLM cannot sample from this policy"):
        pairs.make("qwen2", speed=SpeedSettings(), model=model, use_vllm=True)
