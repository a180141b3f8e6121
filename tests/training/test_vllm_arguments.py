"""Settings of vLLM rollouts, and what TRL is told."""

import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from packaging.requirements import Requirement
from pydantic import ValidationError
from trl import GRPOConfig, import_utils

from groupwise.core import TrainingError
from groupwise.training import GrpoSettings, VllmSettings
from groupwise.training.fast.vllm import build_vllm_arguments, prepare_vllm

NO_POLICY = SimpleNamespace(model=SimpleNamespace(config=None), processor=None)
PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def _installed(monkeypatch):
    monkeypatch.setattr(import_utils, "is_vllm_available", lambda: True)


def configure(folder, **settings):
    given = build_vllm_arguments(VllmSettings(**settings))
    return GRPOConfig(output_dir=str(folder), use_cpu=True, bf16=False, report_to="none", **given)


@pytest.mark.usefixtures("_installed")
def test_colocated(tmp_path):
    config = configure(tmp_path, gpu_memory_share=0.5, tensor_parallel_size=2, sleep=True)
    assert config.use_vllm
    assert config.vllm_mode == "colocate"
    assert config.vllm_gpu_memory_utilization == 0.5
    assert config.vllm_tensor_parallel_size == 2
    assert config.vllm_enable_sleep_mode
    assert config.vllm_importance_sampling_correction


@pytest.mark.usefixtures("_installed")
def test_served(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    served = {"mode": "server", "base_url": "http://gpu:9000", "weights_port": 50000}
    limits = {"correction": "token_truncate", "ratio_min": 0.5, "ratio_max": 2.0}
    config = configure(tmp_path, **served, **limits)
    assert (config.vllm_mode, config.vllm_server_base_url) == ("server", "http://gpu:9000")
    assert config.vllm_group_port == 50000
    assert config.vllm_importance_sampling_mode == "token_truncate"
    assert config.vllm_importance_sampling_clip_min == 0.5
    assert config.vllm_importance_sampling_clip_max == 2.0


@pytest.mark.usefixtures("_installed")
def test_without_a_correction(tmp_path):
    assert not configure(tmp_path, correction=None).vllm_importance_sampling_correction


def test_without_vllm():
    assert GrpoSettings().vllm is None
    assert build_vllm_arguments(None) == {"use_vllm": False}


def test_a_missing_vllm_is_told_with_what_installs_it(monkeypatch):
    monkeypatch.setattr(import_utils, "is_vllm_available", lambda: False)
    with pytest.raises(TrainingError, match="vLLM, which is not installed; pip install") as caught:
        build_vllm_arguments(VllmSettings())
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = {r.name: r for r in map(Requirement, project["dependencies"])}
    named = {r.name: r for r in map(Requirement, str(caught.value).split("'")[1::2])}
    assert set(named) == {"trl", "transformers"}
    assert all(named[name].specifier == wanted[name].specifier for name in named)
    assert named["trl"].extras == {"vllm"}


@pytest.mark.usefixtures("_installed")
def test_a_server_takes_no_weights_from_a_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match="over NCCL, from a CUDA device only"):
        build_vllm_arguments(VllmSettings(mode="server"))


def test_a_server_that_does_not_answer_is_one_sentence():
    settings = VllmSettings(mode="server")
    with (
        pytest.raises(TrainingError, match=r"got no route; start it as grpo\.vllm describes"),
        prepare_vllm(settings, NO_POLICY),
    ):
        raise OSError("no route")


@pytest.mark.parametrize("settings", [None, VllmSettings()])
def test_other_missing_files_are_no_server(settings):
    with pytest.raises(FileNotFoundError), prepare_vllm(settings, NO_POLICY):
        raise FileNotFoundError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "server", "sleep": True}, "mode server has no sleep"),
        ({"base_url": "http://gpu:9000"}, "mode colocate has no base_url"),
        ({"ratio_min": 3.0}, "ratio_min 3.0 must be below ratio_max 3.0"),
        ({"correction": "token_truncate", "ratio_max": None}, "token_truncate needs ratio_min or"),
        ({"gpu_memory_share": 1.5}, "less than or equal to 1"),
        ({"mode": "both"}, "colocate"),
        ({"gpu_memory_utilization": 0.5}, "Extra inputs"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        GrpoSettings(vllm=settings)


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_resolved_settings_can_be_read_again(mode):
    """They name every field, also those of the other mode."""
    settings = VllmSettings(mode=mode)
    assert VllmSettings(**settings.model_dump()) == settings
