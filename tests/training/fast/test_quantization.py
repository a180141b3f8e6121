"""Shared passes over a base in 4 bits are its plain ones."""

from importlib.util import find_spec

import pytest
import torch

from groupwise.models import (
    LoraSettings,
    TrainableSettings,
    keep_adapter_dtype,
    load_policy,
    prepare_trainable,
)
from groupwise.training.settings import SpeedSettings

pytestmark = pytest.mark.skipif(
    find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'groupwise[quantization]'",
)
PICTURES = [[(16, 16)], [(24, 16)]]


@pytest.fixture
def make(pairs, policies):
    """Make a trainer of a family's policy in 4 bits, whose adapter is not 0."""

    def make(family, last_blocks, speed=None, **options):
        folder = policies.find_base(family).name_or_path
        policies.find_processor(family).save_pretrained(folder)
        model = load_policy(folder, quantization="nf4").model
        settings = TrainableSettings(lora=LoraSettings(rank=4, alpha=16, last_blocks=last_blocks))
        torch.manual_seed(1)
        model = prepare_trainable(model, settings)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.data += 0.1 * torch.randn_like(parameter)
        with keep_adapter_dtype(model):
            return pairs.make(family, model=model, speed=speed, **options)

    return make


@pytest.mark.parametrize(
    ("family", "last_blocks", "options"),
    [
        ("qwen2", None, {"beta": 0.1}),
        ("qwen2", 2, {"gradient_checkpointing": True}),
        ("qwen2_5_vl", 2, {}),
        ("qwen3_5", None, {}),
    ],
)
def test_log_probs_and_gradients(family, last_blocks, options, make, grpo, keep_order):
    """Of the same bits, with and without shared prompts, in two steps."""
    speeds = (None, SpeedSettings(shared_prefix="on"))
    both = [make(family, last_blocks, speed, **options) for speed in speeds]
    rows = grpo.make_rows(3, sizes=PICTURES if family.endswith("vl") else None)
    for stepped in both:
        stepped.say(grpo.write_completions(len(rows), end=both[0].trainer.eos_token_ids[0]))
    for seed in range(2):
        plain, shared = (stepped.update(rows, seed=seed) for stepped in both)
        assert grpo.measure_log_probs(plain, shared) < 1e-5
        assert grpo.measure_difference(plain.gradients, shared.gradients) < 1e-4
    assert both[1].num_shared >= 2
    assert both[0].num_shared == 0
