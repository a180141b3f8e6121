"""Small policies and pairs of trainers on them."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

_FIXTURES = Path(__file__).parents[2] / "fixtures"


def _load(name: str) -> ModuleType:
    spec: Any = importlib.util.spec_from_file_location(name, _FIXTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Threads only get into each other's way where tensors are this small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def _whole_numbers() -> Iterator[None]:
    """A GPU's convolutions leave out digits of float32 unless they are told not to."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.fixture(scope="session")
def fixtures() -> Callable[[str], ModuleType]:
    """Load a module of the fixtures by its name."""
    return _load


@pytest.fixture(scope="session")
def grpo() -> ModuleType:
    """How trainers are stepped by hand."""
    return _load("grpo_pairs")


@pytest.fixture(scope="session")
def policies(
    text_folder: Path, vision_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Small policies of every family."""
    found = _load("small_policies")
    return found.SmallPolicies(text_folder, vision_folder, tmp_path_factory.mktemp("small"))


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
