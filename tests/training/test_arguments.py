"""What the trainer is told."""

from pathlib import Path

import pytest
import torch

from groupwise.training import SftSettings, Workspace
from groupwise.training.settings import build_arguments


@pytest.mark.parametrize(
    ("given", "expected"), [({"warmup_share": 0.1}, 0.1), ({"warmup_steps": 100}, 100), ({}, 0.05)]
)
def test_the_rate_rises_for_a_share_or_a_number_of_steps(given, expected, tmp_path: Path) -> None:
    arguments = build_arguments(SftSettings(**given), Workspace(tmp_path, 0), dtype=torch.float32)
    assert arguments["warmup_steps"] == expected


@pytest.mark.parametrize(
    ("dtype", "mixed"), [(torch.float32, []), (torch.bfloat16, ["bf16"]), (torch.float16, ["fp16"])]
)
def test_the_precision_is_that_of_the_policy(dtype, mixed, tmp_path: Path) -> None:
    arguments = build_arguments(SftSettings(), Workspace(tmp_path, 0), dtype=dtype)
    assert [name for name in ("bf16", "fp16") if arguments[name]] == mixed
