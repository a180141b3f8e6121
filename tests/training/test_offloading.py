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
    """The tensors that were copied, by how many numbers they have."""
    sizes = []
    own = offloading._copy_out

    def copy(value):
        sizes.append(value.numel())
        return own(value)

    monkeypatch.setattr(offloading, "_copy_out", copy)
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


_FAST = ((run_grpo, "lora", False),)


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
    assert 64 * 64 not in moved
    assert 32 * 64 in moved
    assert all(size * 4 >= 1024 for size in moved)
    found.backward()
    own = torch.autograd.grad(norm(layer(rows)).square().sum(), rows)[0]
    assert rows.grad is not None
    assert rows.grad.equal(own)


class Keep(torch.autograd.Function):
    """Keeps a tensor for the backward pass, and shows what it gets back."""

    seen: torch.Tensor

    @staticmethod
    def forward(ctx, rows, kept):
        ctx.save_for_backward(kept)
        return rows.sum()

    @staticmethod
    def backward(ctx, *_):
        [Keep.seen] = ctx.saved_tensors
        return torch.zeros(4), None


WIDE = torch.arange(64.0 * 96).reshape(64, 96)


@pytest.mark.parametrize(
    ("kept", "size", "stays"),
    [
        pytest.param(WIDE, 64 * 96, True, id="dense"),
        pytest.param(WIDE.t(), 64 * 96, True, id="turned"),
        pytest.param(WIDE[:, 1:94], 63 * 96 + 93, True, id="padded rows"),
        pytest.param(WIDE[:, None].expand(64, 5, 96), 64 * 96, True, id="expanded"),
        pytest.param(WIDE[:, :8], 64 * 8, False, id="a small part"),
        pytest.param(WIDE.flatten()[::4], 16 * 96, False, id="every fourth"),
    ],
)
def test_memory_is_laid_out_as_before(kept, size, stays, moved):
    """Where another layout would need less, it may be another one."""
    rows = torch.zeros(4, requires_grad=True)
    with offloading.offload_activations(torch.nn.ModuleList()):
        found = Keep.apply(rows, kept)
    found.backward()
    assert Keep.seen.equal(kept)
    assert Keep.seen.data_ptr() != kept.data_ptr()
    assert moved == [size]
    assert (Keep.seen.stride() == kept.stride()) is stays
