"""A policy between what it was and what training made of it."""

from pathlib import Path

import pytest
import torch

from groupwise.core import ModelError
from groupwise.models import (
    LoraSettings,
    Policy,
    PromptSettings,
    TrainableSettings,
    average_policy,
    export_policy,
    load_policy,
    prepare_trainable,
)


def _train(base: Path, folder: Path, settings: TrainableSettings) -> Path:
    """Write a policy whose trainable weights are not those of its base."""
    policy = load_policy(base)
    model = prepare_trainable(policy.model, settings, processor=policy.processor)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.requires_grad:
                noise = torch.randn(weights.shape, generator=torch.manual_seed(1))
                weights.add_(0.1 * noise.to(weights.device))
    Policy(model.eval(), policy.processor, policy.has_vision).save(folder)
    return folder


def _read_weights(policy: Policy) -> dict[str, torch.Tensor]:
    return {name: one.cpu() for name, one in policy.model.state_dict().items()}


LORA = TrainableSettings(lora=LoraSettings(rank=4))
FULL = TrainableSettings(method="full")


@pytest.mark.parametrize(
    "share",
    [pytest.param(0.0, marks=pytest.mark.slow), 0.3, pytest.param(1.0, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("settings", [LORA, FULL], ids=["lora", "full"])
def test_all_weights_are_that_share_of_the_way(
    text_folder: Path, tmp_path: Path, settings: TrainableSettings, share: float
) -> None:
    trained = _train(text_folder, tmp_path / "trained", settings)
    averaged = average_policy(trained, text_folder, share)
    averaged.save(tmp_path / "averaged")
    is_adapter = (tmp_path / "averaged" / "adapter_config.json").is_file()
    assert is_adapter == (settings is LORA)
    ends = [text_folder, *(_merge(p, tmp_path) for p in (trained, tmp_path / "averaged"))]
    before, after, found = (_read_weights(load_policy(folder)) for folder in ends)
    assert any((after[name] - before[name]).abs().max() > 1e-3 for name in before)
    for name, own in before.items():
        expected = own + share * (after[name] - own)
        assert torch.allclose(found[name], expected, atol=1e-6), name


def _merge(folder: Path, work: Path) -> Path:
    return export_policy(folder, work / f"{folder.name}-out").merged


def test_an_adapter_on_other_weights_becomes_a_whole_model(
    text_folder: Path, tmp_path: Path
) -> None:
    """As of GRPO with LoRA behind a warm-up of all weights."""
    warm = _train(text_folder, tmp_path / "warm", FULL)
    trained = _train(warm, tmp_path / "trained", LORA)
    found = average_policy(trained, text_folder, 0.5)
    assert not hasattr(found.model, "peft_config")
    after = _read_weights(load_policy(_merge(trained, tmp_path)))
    before, own = _read_weights(load_policy(text_folder)), _read_weights(found)
    for name, weights in before.items():
        assert torch.allclose(own[name], (weights + after[name]) / 2, atol=1e-6), name


def test_what_has_no_average_is_refused(
    text_folder: Path, vision_folder: Path, tmp_path: Path
) -> None:
    virtual = TrainableSettings(method="prompt", prompt=PromptSettings(num_tokens=2))
    with pytest.raises(ModelError, match="virtual tokens"):
        average_policy(_train(text_folder, tmp_path / "virtual", virtual), text_folder, 0.5)
    with pytest.raises(ModelError, match="architecture"):
        average_policy(text_folder, vision_folder, 0.5)
