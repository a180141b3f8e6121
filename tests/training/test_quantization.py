"""A LoRA trains on weights in 4 bits (QLoRA)."""

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch

from groupwise.core import Score, TrainingError, read_json, read_jsonl
from groupwise.models import (
    LoraSettings,
    TrainableSettings,
    find_quantization,
    load_policy,
    prepare_trainable,
)
from groupwise.rewards import RewardSet
from groupwise.training import (
    GrpoSettings,
    SftRow,
    SftSettings,
    VllmSettings,
    Workspace,
    train_grpo,
    train_sft,
)
from groupwise.training.fast.vllm import prepare_vllm
from groupwise.training.sharding import refuse_quantized

pytestmark = pytest.mark.skipif(
    find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'groupwise[quantization]'",
)
LORA = TrainableSettings(lora=LoraSettings(rank=4))


@pytest.fixture
def policy(text_folder):
    return load_policy(text_folder, quantization="nf4")


@pytest.fixture
def sft(text_examples, text_folder):
    """Teach 4 bits for three steps; a look at what was taught may end it before."""

    def run(folder, *, look=None):
        settings = SftSettings(
            batch_size=8,
            epochs=3,
            learning_rate=1e-5,
            warmup_share=0,
            save_every_steps=1,
            heldout_every_steps=1,
            trainable=LORA,
        )
        rows = [SftRow(example, str(example.label)) for example in text_examples]
        policy = load_policy(text_folder, quantization="nf4")
        workspace = Workspace(folder, 0)
        return train_sft(policy, lambda _: rows, settings, workspace=workspace, check_heldout=look)

    return run


def list_trained(model):
    return {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}


def test_what_trains_is_as_exact_as_on_whole_weights(sft, tmp_path):
    """In bfloat16, as TRL would have it, steps of 1e-5 are lost on weights of 0.1."""
    trained = list_trained(sft(tmp_path).model)
    assert {value.dtype for value in trained.values()} == {torch.float32}
    assert all((value.bfloat16() != value).any() for value in trained.values())


def test_a_training_goes_on_from_its_checkpoint_on_the_same_bits(sft, tmp_path):
    expected = list_trained(sft(tmp_path / "whole").model)
    looks = []

    def end():
        looks.append(len(looks))
        if len(looks) == 2:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        sft(tmp_path / "torn", look=end)
    checkpoint = tmp_path / "torn" / "checkpoint-1"
    assert find_quantization(load_policy(checkpoint).model) == "nf4"
    found = list_trained(sft(tmp_path / "torn").model)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [row["step"] for row in read_jsonl(tmp_path / "torn" / "metrics.jsonl")][-1] == 3


@pytest.mark.parametrize("checkpointing", [pytest.param(False, marks=pytest.mark.slow), True])
def test_grpo_shares_prompts_on_four_bits(checkpointing, policy, text_examples, tmp_path):
    settings = GrpoSettings(
        prompts_per_step=2,
        group_size=3,
        max_new_tokens=6,
        max_steps=2,
        beta=0.1,
        warmup_share=0,
        log_every_steps=1,
        trainable=LORA,
        gradient_checkpointing=checkpointing,
        speed={"shared_prefix": "on"},
    )
    rewards = RewardSet({"length": (lambda _, said: Score(len(said.text) % 7 / 7), 1.0)})
    train_grpo(policy, text_examples, rewards, settings, workspace=Workspace(tmp_path, 0))
    checked = read_json(tmp_path / "on_policy.json", dict)
    assert checked["max_kl"] == 0
    assert checked["max_log_ratio"] <= checked["tolerance"] < 1e-4
    assert [row["step"] for row in read_jsonl(tmp_path / "metrics.jsonl")] == [1, 2]


def test_weights_in_four_bits_are_not_spread(policy, text_folder):
    with pytest.raises(TrainingError, match="FSDP"):
        refuse_quantized(SimpleNamespace(model=policy.model, is_fsdp_enabled=True))
    whole = load_policy(text_folder).model
    refuse_quantized(SimpleNamespace(model=whole, is_fsdp_enabled=True))
    refuse_quantized(SimpleNamespace(model=policy.model, is_fsdp_enabled=False))


def test_vllm_is_sent_no_merged_bits(policy):
    policy.model = prepare_trainable(policy.model, LORA)
    with pytest.raises(TrainingError, match="weights in 4 bits"):
        prepare_vllm(VllmSettings(), policy).__enter__()
    with prepare_vllm(None, policy):
        pass
