"""Weights in 4 bits: what they are, what they say, and what is kept of them."""

from importlib.util import find_spec

import pytest
import torch

from groupwise.core import ConfigError, ModelError
from groupwise.models import (
    LoraSettings,
    Policy,
    TrainableSettings,
    average_policy,
    explain_no_quantization,
    export_policy,
    load_policy,
    prepare_trainable,
    quantization,
    tabulate_trainable,
)

LORA = TrainableSettings(lora=LoraSettings(rank=4))
needs_bits = pytest.mark.skipif(
    find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'groupwise[quantization]'",
)


def read_logits(policy, example):
    text = policy.tokenizer(policy.render_prompt(example), return_tensors="pt")
    with torch.inference_mode():
        return policy.model(**text.to(policy.model.device)).logits[0].log_softmax(-1)


@pytest.fixture
def trained(text_folder, tmp_path):
    """The folder of an adapter on 4 bits that changes what they say."""
    policy = load_policy(text_folder, quantization="nf4")
    torch.manual_seed(0)
    policy.model = prepare_trainable(policy.model, LORA)
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                change = torch.randn(parameter.shape, generator=noise)
                parameter.add_(0.1 * change.to(parameter.device))
    Policy(policy.model.eval(), policy.processor, has_vision=False).save(tmp_path / "trained")
    return tmp_path / "trained"


def test_without_bitsandbytes_the_command_that_installs_it_is_said(text_folder, monkeypatch):
    monkeypatch.setattr(quantization, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"pip install 'groupwise\[quantization\]'"):
        load_policy(text_folder, quantization="nf4")


def test_experts_would_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(quantization, "find_spec", lambda _: object())
    assert "experts" in explain_no_quantization(has_experts=True)
    assert explain_no_quantization(has_experts=False) is None


@needs_bits
@pytest.mark.parametrize("folder", ["text_folder", "vision_folder"])
def test_linear_layers_have_four_bits_and_their_weights_are_counted(folder, request):
    whole = load_policy(request.getfixturevalue(folder)).model
    small = load_policy(request.getfixturevalue(folder), quantization="nf4").model
    sizes = dict(whole.named_parameters())
    quantized = {n: p for n, p in small.named_parameters() if p.dtype == torch.uint8}
    linear = {
        f"{name}.weight"
        for name, part in whole.named_modules()
        if isinstance(part, torch.nn.Linear) and part is not whole.get_output_embeddings()
    }
    assert set(quantized) == linear
    assert all(2 * p.nbytes == sizes[name].numel() for name, p in quantized.items())
    assert tabulate_trainable(prepare_trainable(small, LORA)) == tabulate_trainable(
        prepare_trainable(whole, LORA)
    )


@needs_bits
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_answer_in_evaluation_as_in_training(dtype, text_folder):
    model = load_policy(text_folder, quantization="nf4", dtype=dtype).model
    layer = model.model.layers[0].mlp.up_proj
    given = torch.randn(5, layer.in_features, dtype=model.dtype, device=model.device)
    with torch.no_grad():
        trained = layer.train()(given)
        assert torch.equal(layer.eval()(given), trained)


@needs_bits
def test_an_adapter_is_put_on_the_bits_that_it_trained_on(trained, text_folder, text_examples):
    found = read_logits(load_policy(trained), text_examples[0])
    asked = read_logits(load_policy(trained, quantization="nf4"), text_examples[0])
    assert torch.equal(found, asked)
    (trained / "quantization.json").unlink()
    assert (read_logits(load_policy(trained), text_examples[0]) - found).abs().max() > 1e-2


@needs_bits
def test_merged_weights_say_what_the_bits_and_the_adapter_say(trained, tmp_path, text_examples):
    exported = export_policy(trained, tmp_path / "out")
    merged = load_policy(exported.merged)
    expected = read_logits(load_policy(exported.adapter), text_examples[0])
    # A token here and there amplifies rounding; other bits are more than 1e-2 off, as seen above.
    difference = (read_logits(merged, text_examples[0]) - expected).abs()
    assert difference.mean() < 2e-5
    assert difference.max() < 1e-3
    assert 0 < exported.max_difference < 1e-3
    assert {p.dtype for p in merged.model.parameters()} == {torch.float32}
    assert exported.quantization == "nf4"
    assert exported.list_commands() == [f"vllm serve {exported.merged}"]


@needs_bits
@pytest.mark.parametrize("method", ["full", "prompt"])
def test_only_a_lora_trains_on_bits(method, text_folder):
    policy = load_policy(text_folder, quantization="nf4")
    with pytest.raises(ConfigError, match="only a LoRA on them"):
        prepare_trainable(
            policy.model, TrainableSettings(method=method), processor=policy.processor
        )


@needs_bits
def test_what_lies_between_bits_and_other_weights_is_no_average(
    trained, text_folder, vision_folder
):
    scaled = average_policy(trained, text_folder, 0.5)
    assert quantization.find_quantization(scaled.model) == "nf4"
    with pytest.raises(ModelError, match="in 4 bits"):
        average_policy(trained, vision_folder, 0.5)


def test_weights_quantised_in_another_way_are_refused(text_folder):
    model = load_policy(text_folder).model
    model.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    with pytest.raises(ModelError, match="gptq"):
        prepare_trainable(model, LORA)
