"""Estimates are held against the bytes that tensors of real trainings hold."""

from importlib.util import find_spec

import pytest
import torch
from held_bytes import HeldBytes
from PIL import Image
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3_5TextConfig, Qwen3MoeConfig

from groupwise.core import Message, Score, make_example, read_picture
from groupwise.models import (
    LoraSettings,
    TrainableSettings,
    find_quantization,
    load_policy,
)
from groupwise.rewards import RewardSet
from groupwise.training import (
    GrpoSettings,
    Place,
    SftRow,
    SftSettings,
    Workspace,
    train_grpo,
    train_sft,
)
from groupwise.training.memory.estimate import Base, MemoryEstimate, estimate_memory

needs_bits = pytest.mark.skipif(
    find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'groupwise[quantization]'",
)
CPU, GPU = Place("cpu"), Place("cuda")
LORA = TrainableSettings(lora=LoraSettings(rank=4, modules=("v_proj",), last_blocks=1))
FULL = TrainableSettings(method="full")
ANSWER = "yes it is " * 8
LIMIT = 0.15
WIDE = Qwen2Config(
    hidden_size=64,
    intermediate_size=192,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    vocab_size=512,
)


def sample(**changes):
    usual = {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8, "warmup_share": 0}
    usual |= {"entropy_bonus": 0, "max_steps": 2, "trainable": LORA}
    return GrpoSettings(**(usual | changes))


def ask(number, pictures=()):
    text = " ".join(["bolt"] * (60 - number))
    return make_example([Message("user", text)], cluster=str(number), pictures=list(pictures))


def hold_against(policy, examples, settings, folder):
    """Return estimated over counted bytes of each phase."""
    kind = find_quantization(policy.model)
    base = Base(policy.model.config, policy.model.dtype, policy.processor, kind)
    num_tokens = len(policy.tokenizer(policy.render_prompt(examples[0]))["input_ids"])
    prompt = base.encode(examples[0], num_tokens=num_tokens)
    num_targets = len(policy.tokenizer(ANSWER)["input_ids"]) + 1
    found = estimate_memory(base, prompt, settings, num_targets=num_targets, place=CPU)
    held = HeldBytes(policy.model)
    with held.watch():
        if isinstance(settings, SftSettings):
            rows = [SftRow(example, ANSWER) for example in examples]
            train_sft(policy, lambda _: rows, settings, workspace=Workspace(folder, 0))
        else:
            scores = iter(Score(place * 0.618 % 1) for place in range(1000))
            rewards = RewardSet({"drawn": (lambda *_: next(scores), 1.0)})
            train_grpo(policy, examples, rewards, settings, workspace=Workspace(folder, 0))
    assert max(found.phases.values()) > 2 * found.weights  # what is easy to know is not what counts
    return {name: found.sum_phase(name) / held.peaks[name] for name in found.phases}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            SftSettings(batch_size=4, warmup_share=0, trainable=FULL), marks=pytest.mark.slow
        ),
        SftSettings(batch_size=4, warmup_share=0, gradient_checkpointing=True),
        pytest.param(
            SftSettings(batch_size=4, warmup_share=0, trainable=FULL, label_smoothing=0.1),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["full", "checkpointing", "smoothing"],
)
def test_sft_holds_what_was_estimated(settings, vision_folder, tmp_path):
    examples = []
    for number in range(8):
        Image.new("RGB", (256, 256)).save(tmp_path / f"{number}.png")
        examples.append(ask(number, [read_picture(tmp_path / f"{number}.png")]))
    ratios = hold_against(load_policy(vision_folder), examples, settings, tmp_path / "work")
    assert ratios == pytest.approx(dict.fromkeys(ratios, 1), abs=LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(sample(), id="lora"),
        pytest.param(sample(trainable=FULL, beta=0.1), id="reference"),
    ],
)
def test_grpo_holds_what_was_estimated(settings, text_folder, tmp_path):
    ratios = hold_against(
        load_policy(text_folder), [ask(number) for number in range(4)], settings, tmp_path / "work"
    )
    assert set(ratios) == {"sample", "check", "compare", "update"}
    assert ratios == pytest.approx(dict.fromkeys(ratios, 1), abs=LIMIT)


@needs_bits
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        sample(trainable=TrainableSettings()),
        SftSettings(batch_size=4, warmup_share=0, gradient_checkpointing=True),
    ],
    ids=["grpo", "sft"],
)
def test_four_bits_hold_what_was_estimated(settings, text_folder, tmp_path):
    policy = load_policy(text_folder, quantization="nf4")
    examples = [ask(number) for number in range(4)]
    ratios = hold_against(policy, examples, settings, tmp_path / "work")
    assert ratios == pytest.approx(dict.fromkeys(ratios, 1), abs=LIMIT)


@needs_bits
@pytest.mark.parametrize("folder", ["text_folder", "vision_folder"])
def test_weights_in_four_bits_are_those_of_the_model(folder, request):
    policy = load_policy(request.getfixturevalue(folder), quantization="nf4")
    bits = [p for p in policy.model.parameters() if hasattr(p, "quant_state")]
    states = [one.quant_state for one in bits]
    scales = sum(one.absmax.nbytes + one.state2.absmax.nbytes for one in states)
    held = scales + sum(p.nbytes for p in [*policy.model.parameters(), *policy.model.buffers()])
    base = Base(policy.model.config, policy.model.dtype, policy.processor, "nf4")
    prompt = base.encode(None, num_tokens=16)
    settings = SftSettings(batch_size=1, trainable=LORA)
    found = estimate_memory(base, prompt, settings, num_targets=2, place=CPU)
    adapter = found.optimizer // 2
    assert found.weights == held + adapter
    num_weights = sum(one.shape.numel() for one in states)
    assert 0.515 < (scales + sum(one.nbytes for one in bits)) / num_weights < 0.53


def estimate(settings, place=CPU, *, tokens=64, dtype=torch.float32, config=WIDE):
    base = Base(config, dtype)
    prompt = base.encode(None, num_tokens=tokens)
    return estimate_memory(base, prompt, settings, num_targets=8, place=place)


@pytest.mark.slow
def test_weights_are_those_of_the_model():
    model = Qwen2ForCausalLM(WIDE)
    held = sum(p.nbytes for p in model.parameters()) + sum(b.nbytes for b in model.buffers())
    assert estimate(sample(trainable=FULL)).weights == held
    assert estimate(sample(trainable=FULL), dtype=torch.bfloat16).weights < 0.52 * held


@pytest.mark.slow
def test_a_reference_is_another_model_only_in_full_training():
    alone, full = estimate(sample(trainable=FULL)), estimate(sample(trainable=FULL, beta=0.1))
    assert full.weights == 2 * alone.weights
    assert estimate(sample(beta=0.1)).weights == estimate(sample()).weights


@pytest.mark.slow
def test_the_optimizer_has_two_numbers_for_each_weight_that_trains():
    assert estimate(sample()).optimizer == 2 * 4 * 4 * (64 + 32)
    num_weights = sum(p.numel() for p in Qwen2ForCausalLM(WIDE).parameters())
    assert estimate(sample(trainable=FULL)).optimizer == 2 * 4 * num_weights


@pytest.mark.slow
def test_an_update_holds_less_with_checkpointing_and_on_a_gpu():
    usual = sample(trainable=FULL, max_new_tokens=64)
    cpu, gpu = estimate(usual, tokens=256), estimate(usual, GPU, tokens=256)
    again = estimate(usual.model_copy(update={"gradient_checkpointing": True}), GPU, tokens=256)
    assert cpu.phases["update"] > gpu.phases["update"] > again.phases["update"]


@pytest.mark.slow
def test_several_processes_have_their_part_of_the_rows_and_a_copy_of_the_gradients():
    settings = sample(trainable=FULL)
    alone, shared = estimate(settings), estimate(settings, Place("cpu", 2))
    half = estimate(settings.model_copy(update={"prompts_per_step": 1}))
    assert shared.weights == alone.weights
    assert shared.phases["update"] == half.phases["update"] + shared.optimizer // 2


@pytest.mark.slow
def test_of_spread_weights_each_holds_a_part_and_gathers_all_to_sample():
    settings = sample(trainable=FULL)
    copied, spread = (
        estimate(settings, Place("cpu", 2, is_spread=is_spread)) for is_spread in (False, True)
    )
    assert spread.weights == copied.weights // 2
    assert spread.optimizer == copied.optimizer // 2
    gradients = copied.optimizer // 2
    assert spread.phases["sample"] == copied.phases["sample"] - gradients + copied.weights


def test_the_line_has_the_most_and_its_parts():
    mib = 2**20
    found = MemoryEstimate(100 * mib, 10 * mib, {"check": 75 * mib, "update": 70 * mib})
    assert found.total == 180 * mib
    assert found.describe() == (
        "180 MiB at most (weights 100, optimizer 10, first check 75, an update 70)"
    )


@pytest.mark.parametrize(
    ("config", "place", "words"),
    [
        (Qwen3MoeConfig(), CPU, "experts"),
        (Qwen3_5TextConfig(layer_types=["linear_attention"] * 32), GPU, "kernels"),
    ],
)
def test_what_was_never_held_against_a_training_is_not_estimated(config, place, words):
    with pytest.raises(ValueError, match=words):
        estimate(sample(), place, config=config)
