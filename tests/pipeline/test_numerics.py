"""The tiny fixed training gives the same weights again, whatever was drawn before."""

from pathlib import Path

import torch

from groupwise.core import describe_numerics
from groupwise.pipeline.numerics import train_fixed


def test_the_fixed_training_gives_the_same_weights_again(tmp_path: Path) -> None:
    first = list(train_fixed(tmp_path / "a"))
    torch.rand(3)
    threads = torch.get_num_threads()
    assert list(train_fixed(tmp_path / "b")) == first
    assert [part for part, _ in first] == ["start", "SFT", "GRPO"]
    assert len({digest for _, digest in first}) == 3
    assert torch.get_num_threads() == threads


def test_what_decides_how_a_machine_rounds_is_known() -> None:
    found = describe_numerics()
    assert found["num_threads"] == torch.get_num_threads()
    assert f"torch {torch.__version__}" in found["builds"]
    assert found["cpu_flags"] == sorted(set(found["cpu_flags"]))
