"""What a base model is known by: the content of its folder, or the commit of its hub id."""

import json
import os
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from groupwise.models import digest_base, load_policy, open_processor


def write_base(folder: Path) -> Path:
    """Write what stands for a model's files."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(1000))
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local cache of the hub, with nothing in it; the hub itself is out of reach."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def keep_commit(cache: Path, commit: str, source: Path) -> None:
    """Put a commit of ``some/model`` into the cache and make it what the id stands for."""
    repository = cache / "models--some--model"
    shutil.copytree(source, repository / "snapshots" / commit)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(commit)


@pytest.mark.parametrize("has_kept_time", [False, True])
def test_weights_changed_in_place_are_another_base(tmp_path: Path, has_kept_time: bool):
    base = write_base(tmp_path / "base")
    weights = base / "model.safetensors"
    old = weights.stat()
    before = digest_base(base)
    weights.write_bytes(bytes(999) + b"1")
    if has_kept_time:
        os.utime(weights, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert digest_base(base) != before


def test_a_copy_is_the_same_base_and_what_a_download_notes_is_no_part_of_it(tmp_path: Path):
    base = write_base(tmp_path / "base")
    copy = Path(shutil.copytree(base, tmp_path / "copy"))
    (copy / ".cache" / "huggingface").mkdir(parents=True)
    (copy / ".cache" / "huggingface" / "model.safetensors.metadata").write_text("now")
    assert digest_base(copy) == digest_base(str(base))


def test_an_adapter_is_known_by_its_base_too(tmp_path: Path):
    base = write_base(tmp_path / "base")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    config = {"base_model_name_or_path": "../base"}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    before = digest_base(adapter)
    (base / "config.json").write_text('{"a": 1}')
    assert digest_base(adapter) != before


def test_a_hub_id_is_known_by_the_commit_in_the_cache(tmp_path: Path, cache: Path):
    base = write_base(tmp_path / "base")
    assert digest_base("some/model") is None
    keep_commit(cache, "a" * 40, base)
    assert digest_base("some/model") == "a" * 40
    keep_commit(cache, "b" * 40, base)
    assert digest_base("some/model") == "b" * 40


def test_what_is_not_in_the_cache_is_asked_of_the_hub(cache: Path, monkeypatch):
    class Hub:
        def model_info(self, name: str, *, timeout: float):
            assert name == "some/model"
            return type("Info", (), {"sha": "c" * 40})

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert digest_base("some/model") == "c" * 40


@pytest.mark.parametrize("load", [load_policy, open_processor])
def test_what_is_loaded_is_that_commit_and_no_newer_one(
    text_folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, load
):
    asked: list[object] = []
    read = AutoTokenizer.from_pretrained

    def note(name: str, **options: object) -> object:
        asked.append(options.get("revision"))
        return read(name, **options)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", note)
    keep_commit(cache, "a" * 40, text_folder)
    load("some/model")
    assert set(asked) == {"a" * 40}


def test_a_folder_that_is_gone_is_not_known(cache: Path, tmp_path: Path):
    assert digest_base(tmp_path / "gone") is None
