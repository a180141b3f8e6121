"""A base that is named by its hub id: in the local cache, or out of reach."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import app, describe_failure
from groupwise.core import read_json
from groupwise.evaluation.predictions import read_predictions
from groupwise.models import find_weights, write_tiny_policy

SMALL = ("data.drawn.num_pairs=24", "data.drawn.num_test_pairs=3")
SHAPE = "model.shape={num_parameters: 9, num_blocks: 1}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local cache of the hub, with nothing in it; the hub itself is out of reach."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def run(out: Path, *words: str) -> tuple[str, str]:
    """Return what the study of prompts says with a base of the hub, and why it is refused."""
    settings = [part for one in (*SMALL, "model.base=some/model") for part in ("--set", one)]
    told = ["run", "visual_reasoning", "--config", "prompts", *settings, "--out", str(out), *words]
    done = CliRunner().invoke(app, told)
    said = " ".join(done.output.split())
    if done.exception is None:
        return said, ""
    message = describe_failure(done.exception)
    assert message is not None, done.exception
    return said, message


@pytest.mark.usefixtures("cache")
def test_a_base_out_of_reach_is_one_sentence_and_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "run"
    unknown = "model.base: the model some/model is not on this machine, and the hub cannot be reach"
    gone = "model.base: it is neither a folder nor in the local cache, and the hub cannot be asked"
    assert unknown in run(out, "--dry-run")[1]
    assert unknown in run(out)[1]
    said, refused = run(out, "--set", SHAPE, "--dry-run")
    assert refused == ""
    assert gone in said
    assert said.endswith("ready: nothing was written")
    refused = run(out, "--set", SHAPE)[1]
    assert gone in refused
    assert "download it first (hf download), or give a folder" in refused
    assert not out.exists()


@pytest.mark.slow
def test_a_base_in_the_cache_is_loaded_by_its_hub_id(cache: Path, tmp_path: Path) -> None:
    base = write_tiny_policy("tiny-qwen2.5-vl", tmp_path / "base", max_pixels=16384)
    repository = cache / "models--some--model"
    shutil.copytree(base, repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    out = tmp_path / "run"
    said, refused = run(out, "--dry-run")
    assert "ready: nothing was written" in said
    assert "at its start" not in said
    assert refused == run(out, "--until", "baselines")[1] == ""
    told = read_json(out / "manifest.json", dict)
    assert told["inputs"]["model.base"] == "abc"
    found = read_predictions(out / "baselines" / "predictions.jsonl")
    assert sum(one.policy == "prompt" for one in found) == 6
    assert find_weights("some/model") == repository / "snapshots" / "abc"
