"""What a backward pass needs is moved, weights are not, and what is trained is the same."""

import pytest
import torch

from groupwise.core import Score
from groupwise.models import TrainableSettings, load_policy
from groupwise.rewards import RewardSet
from groupwise.training import (
    GrpoSettings,
    SftRow,
    SftSettings,
    Workspace,
    offloading,
    train_grpo,
    train_sft,
)
from groupwise.training.settings import SpeedSettings

FULL, LORA = TrainableSettings(method="full"), TrainableSettings()
USUAL = {"max_steps": 2, "warmup_share": 0.0, "learning_rate": 1e-3}


@pytest.fixture
def moved(monkeypatch):
    """The tensors that were copied, by their sizes."""
    sizes = []
    own = torch.empty_like

    def copy(value, **named):
        if "pin_memory" in named:
            sizes.append(tuple(value.shape))
        return own(value, **named)

    monkeypatch.setattr(offloading.torch, "empty_like", copy)
    return sizes


def read(policy):
    return {name: value.detach().clone() for name, value in policy.model.named_parameters()}


def run_grpo(base, examples, folder, **settings):
    values = USUAL | {
        "prompts_per_step": 2,
        "group_size": 2,
        "max_new_tokens": 4,
        "temperature": 2.0,
        "beta": 0.05,
        "speed": SpeedSettings(shared_prefix="on"),
    }
    rewards = RewardSet({"drawn": (lambda _, one: Score(sum(one.token_ids) % 7 / 6), 1.0)})
    chosen = GrpoSettings(**(values | settings))
    return read(
        train_grpo(load_policy(base), examples, rewards, chosen, workspace=Workspace(folder, 0))
    )


def run_sft(base, examples, folder, **settings):
    rows = [SftRow(one, "on-task") for one in examples[:8]]
    chosen = SftSettings(batch_size=4, warmup_share=0, **settings)
    return read(
        train_sft(load_policy(base), lambda _: rows, chosen, workspace=Workspace(folder, 0))
    )


_FAST = ((run_grpo, "lora", False), (run_sft, "full", True))


@pytest.mark.parametrize(
    ("train", "trainable", "checkpointing"),
    [
        pytest.param(
            train,
            trainable,
            checkpointing,
            id=f"{train.__name__} {trainable.method} {checkpointing}",
            marks=() if (train, trainable.method, checkpointing) in _FAST else pytest.mark.slow,
        )
        for train in (run_grpo, run_sft)
        for trainable in (FULL, LORA)
        for checkpointing in (False, True)
    ],
)
def test_it_trains_the_same_bits(
    train, trainable, checkpointing, taught_folder, picture_examples, tmp_path, moved
):
    options = {"trainable": trainable, "gradient_checkpointing": checkpointing}
    given = (taught_folder, picture_examples)
    usual = train(*given, tmp_path / "usual", **options)
    assert moved == []
    other = train(*given, tmp_path / "other", activation_offloading=True, **options)
    assert [name for name, value in usual.items() if not value.equal(other[name])] == []
    assert len(moved) > 10


def test_weights_and_small_tensors_stay(moved):
    layer, norm = torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)
    rows = torch.randn(32, 64, requires_grad=True)
    with offloading.offload_activations(torch.nn.ModuleList([layer, norm])):
        found = norm(layer(rows)).square().sum()
    assert (64, 64) not in moved
    assert (32, 64) in moved
    assert all(torch.Size(shape).numel() * 4 >= 1024 for shape in moved)
    found.backward()
    own = torch.autograd.grad(norm(layer(rows)).square().sum(), rows)[0]
    assert rows.grad is not None
    assert rows.grad.equal(own)
