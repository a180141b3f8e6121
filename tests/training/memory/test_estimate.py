"""What is counted is what is there; benchmarks/first_run.py measures how well it fits."""

import dataclasses

import pytest

from groupwise.models import (
    LoraSettings,
    ModelSettings,
    Outline,
    TrainableSettings,
    find_outline,
    load_policy,
    prepare_trainable,
)
from groupwise.training import Batch, GrpoSettings, Place, SftSettings
from groupwise.training.preview import estimate_memory

CPU, GPU = Place("cpu"), Place("cuda")
FULL = TrainableSettings(method="full")
TEXT = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 512,
    "tie_word_embeddings": True,
}


def estimate(settings, outline=None, place=CPU, batch=None, num_readers=0, **model):
    outline = outline or Outline(TEXT)
    batch = batch or Batch(prompt=100, answer=10)
    model = ModelSettings(base="some/base", max_pixels=784, **model)
    return estimate_memory(
        outline, model, settings, batch=batch, place=place, num_readers=num_readers
    )


def teach(**changes):
    return SftSettings(**{"batch_size": 4, **changes})


def sample(**changes):
    given = {"prompts_per_step": 2, "group_size": 4, "max_new_tokens": 8}
    return GrpoSettings(**(given | changes))


@pytest.mark.parametrize(
    "trainable",
    [
        FULL,
        FULL.model_copy(update={"freeze_vision": False, "freeze_aligner": False}),
        TrainableSettings(lora=LoraSettings(rank=4)),
        TrainableSettings(lora=LoraSettings(rank=4, last_blocks=1, modules=("v_proj", "up_proj"))),
    ],
)
@pytest.mark.parametrize("kind", ["text_folder", "vision_folder"])
def test_weights_gradients_and_states_are_those_of_the_model(kind, trainable, request):
    folder = request.getfixturevalue(kind)
    model = prepare_trainable(load_policy(folder).model, trainable)
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    found = estimate(teach(trainable=trainable), find_outline(folder))
    assert found.weights == sum(p.nbytes for p in model.parameters())
    # What joins a tower to the language model is not told apart.
    assert trained <= found.gradients <= 1.15 * trained
    assert found.optimizer == 2 * found.gradients


def test_a_configuration_is_enough(text_folder):
    known = find_outline(text_folder)
    drawn = estimate(teach(), Outline(known.config))
    # Norms and biases are left out.
    assert drawn.total == pytest.approx(estimate(teach(), known).total, rel=0.01)
    with pytest.raises(ValueError, match="its weights are not on this machine"):
        estimate(teach(), Outline({"model_type": "other"}))


def test_what_was_not_measured_is_not_known():
    with pytest.raises(ValueError, match="experts"):
        estimate(teach(), Outline({**TEXT, "num_experts": 8}))


def test_shared_prompts_are_held_once():
    shared = estimate(sample()).activations
    plain = sample(speed={"shared_prefix": "off"})
    assert estimate(plain).activations > 2 * shared
    assert estimate(plain, batch=Batch(200, 0)).activations > 1.5 * estimate(plain).activations


def test_what_trains_less_keeps_less():
    whole = estimate(sample(trainable=TrainableSettings()))
    last = estimate(sample(trainable=TrainableSettings(lora=LoraSettings(last_blocks=1))))
    saved = estimate(sample(gradient_checkpointing=True))
    assert max(last.activations, saved.activations) < whole.activations


def test_logits_count():
    many = {**TEXT, "vocab_size": 50_000}
    grown = estimate(teach(), Outline(many)).activations - estimate(teach()).activations
    assert grown >= 4 * 110 * (32_768 - 512) * 4


def test_a_reference_is_another_model_only_in_full_training():
    for trainable, factor in ((FULL, 2), (TrainableSettings(), 1)):
        plain, kl = (estimate(sample(trainable=trainable, beta=beta)) for beta in (0.0, 0.1))
        assert kl.weights == factor * plain.weights


def test_a_base_that_reads_answers_for_a_reward_is_held_beside_the_policy():
    frozen = estimate(teach()).weights - estimate(teach()).gradients
    assert estimate(sample(), num_readers=1).weights == estimate(sample()).weights + frozen
    assert estimate(teach(), num_readers=1) == estimate(teach())


def test_several_processes_hold_copies_or_parts():
    settings = teach(trainable=FULL)
    one, two = estimate(settings), estimate(settings, place=Place("cuda", 2))
    parts = estimate(settings, place=Place("cuda", 2, is_spread=True))
    assert two.gradients == 2 * one.gradients
    assert two.activations < one.activations
    assert parts.optimizer == one.optimizer // 2


def test_half_precision_and_four_bits_are_smaller():
    full = estimate(teach()).weights
    adapter = estimate(teach()).gradients
    assert estimate(teach(), dtype="bfloat16").weights - adapter == (full - adapter) // 2
    bits = estimate(teach(), quantization="nf4").weights
    assert adapter < bits < full / 2


def test_a_gpu_holds_no_libraries_and_samples_with_vllm_elsewhere():
    assert estimate(teach(), place=GPU).libraries == 0
    found = estimate(sample(vllm={"mode": "server"}))
    assert found.sampling == 0 < estimate(sample()).sampling


def test_the_line_adds_up():
    found = dataclasses.replace(estimate(sample()), activations=0, sampling=7 << 20)
    assert found.describe().startswith(f"about {found.total >> 20:,} MiB at most (libraries ")
    assert "activations" not in found.describe()
    assert ", sampling 7)" in found.describe()
