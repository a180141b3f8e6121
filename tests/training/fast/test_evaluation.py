"""Evaluation inside a training is the parent's, and the training goes on as without it."""

import re

import pytest
import torch
from datasets import Dataset

from groupwise.training.settings import SpeedSettings

ON = SpeedSettings(shared_prefix="on")
HALVES = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 1}
_TIMED = re.compile("runtime|per_second|time$")
OTHER_PROMPTS = ("this is 8", "或 a task that is this task", "is", "8 8 8 8", "a", "this task")


@pytest.fixture
def evaluate(grpo):
    """Return what an evaluation on other prompts than the training's logs."""

    def run(stepped, *, seed=0):
        prompts = [[{"role": "user", "content": text}] for text in OTHER_PROMPTS]
        torch.manual_seed(seed)
        stepped.trainer.evaluate(Dataset.from_dict({"prompt": prompts}))
        stepped.trainer.model.train()
        logs = stepped.trainer.state.log_history[-1]
        return {name: value for name, value in logs.items() if not _TIMED.search(name)}

    return run


@pytest.mark.parametrize("num_generations", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("family", ["qwen2", "qwen2_5_vl"])
def test_other_prompts_than_the_trainings(grpo, pairs, evaluate, family, num_generations):
    """Nothing is learned, so the policy stays the reference; rounds are cut in two by it."""
    both = pairs.make_both(
        family,
        beta=0.1,
        learning_rate=0.0,
        steps_per_generation=2,
        num_iterations=2,
        per_device_eval_batch_size=6,
        num_generations_eval=num_generations,
        **HALVES,
    )
    rows = grpo.make_rows(3, sizes=[[(16, 16)], [(24, 16)]] if family.endswith("vl") else None)
    for stepped in both:
        stepped.update(rows)
    parent, fast = (evaluate(stepped) for stepped in both)
    assert parent["eval_kl"] == pytest.approx(0, abs=1e-6)
    assert fast == pytest.approx(parent, abs=1e-5, nan_ok=True)


def test_training_goes_on_as_without_it(grpo, pairs, evaluate, keep_order):
    """Inside a round and between rounds; the completions of later rounds are sampled anew."""
    both = pairs.make_both(
        "qwen2", "sft", beta=0.1, steps_per_generation=2, per_device_eval_batch_size=6, **HALVES
    )
    rows = grpo.make_rows(3)
    for seed in range(4):
        parent, fast = (stepped.update(rows, seed=seed) for stepped in both)
        assert grpo.measure_log_probs(parent, fast) < 1e-5
        parent, fast = (evaluate(stepped, seed=seed) for stepped in both)
        assert fast == pytest.approx(parent, abs=1e-5)
    parent, fast = both
    assert grpo.measure_difference(parent.list_weights(), fast.list_weights()) < 1e-4
    assert fast.num_shared > 4


def test_a_round_stays_as_it_is(grpo, pairs, evaluate):
    stepped = pairs.make(
        speed=ON, steps_per_generation=2, beta=0.1, per_device_eval_batch_size=6, **HALVES
    )
    rows = grpo.make_rows(3)
    stepped.update(rows)
    kept, shared = stepped.trainer._round, stepped.num_shared
    evaluate(stepped)
    assert stepped.trainer._round is kept
    assert stepped.num_shared == shared
    stepped.update(rows)
    assert stepped.num_shared == shared + 1
