"""Small policies and pairs of trainers on them."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpo_pairs
import pytest
import torch
from small_policies import SmallPolicies


@pytest.fixture(autouse=True, scope="module")
def _small_and_exact() -> Iterator[None]:
    """Threads only get into each other's way where tensors are this small.

    And a GPU's convolutions leave out digits of float32 unless they are told not to.
    """
    num_threads, digits = torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.set_num_threads(num_threads)
    torch.backends.cudnn.allow_tf32 = digits


@pytest.fixture(scope="session")
def grpo() -> ModuleType:
    """How trainers are stepped by hand."""
    return grpo_pairs


@pytest.fixture(scope="session")
def policies(
    text_folder: Path, vision_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Small policies of every family."""
    return SmallPolicies(text_folder, vision_folder, tmp_path_factory.mktemp("small"))


@pytest.fixture
def pairs(grpo: ModuleType, policies: Any, tmp_path: Path) -> Any:
    """Trainers of them."""
    return grpo.Pairs(policies, tmp_path)


@pytest.fixture
def keep_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither trainer shuffles, so that their micro-batches have the same rows."""
    from trl.trainer import grpo_trainer as parent

    from groupwise.training.fast import round as rounds

    monkeypatch.setattr(parent, "shuffle_sequence_dict", lambda batch: batch)
    monkeypatch.setattr(rounds, "shuffle_groups", lambda numbers: torch.arange(len(numbers)))


@pytest.fixture
def eager_attention(policies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Policies have attention written out."""
    own = policies.build

    def build(*given: Any) -> Any:
        model = own(*given)
        model.set_attn_implementation("eager")
        return model

    monkeypatch.setattr(policies, "build", build)
