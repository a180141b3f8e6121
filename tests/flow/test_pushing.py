"""Uploading to a hub: a small HTTP server on loopback that stands in for one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from loopback_hub import LoopbackHub, serve_hub

from groupwise.core import RunError, write_text
from groupwise.flow import check_pushable, list_uploads, open_run, upload

NAME = "someone/bolts"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    with serve_hub() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.address)
        monkeypatch.setenv("HF_TOKEN", found.token)
        yield found


def test_what_is_exported_of_a_finished_run_goes_up(
    finished: Path, hub: LoopbackHub, command_line: CommandLine
) -> None:
    done = command_line("push", finished, NAME, "--private", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("nothing was uploaded\n")
    assert hub.repositories == {}
    done = command_line("push", finished, NAME, "--private")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"uploaded: {hub.address}/{NAME}\n")
    assert hub.repositories == {NAME: True}
    files = hub.files[NAME]
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    assert {"adapter/adapter_config.json", "adapter/adapter_model.safetensors"} <= set(files)
    assert not [name for name in files if name.endswith((".jsonl", ".pt", ".pth", ".bin", ".csv"))]
    assert b"One training is not a method" in files["README.md"]
    lines = done.stdout.splitlines()[:-1]
    assert {line.rpartition(" ")[2]: line.split()[0] for line in lines} == {
        name: f"{len(content):,}" for name, content in files.items()
    }
    assert hub.unknown == []


def test_a_run_that_is_not_finished_is_not_pushed(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    with pytest.raises(RunError, match="a checkpoint is not pushed"):
        check_pushable(open_run(run), "grpo/checkpoint-1")
    (run / "report" / "step.json").unlink()
    with pytest.raises(RunError, match="is not finished; got no report yet"):
        check_pushable(open_run(run))


def test_a_hub_that_takes_nothing_is_told_in_a_sentence(
    hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("README.md", "merged/config.json"):
        write_text(tmp_path / name, "x")
    files = list_uploads(tmp_path)
    assert list(files) == ["README.md", "config.json"]
    upload(files, NAME)
    assert hub.repositories == {NAME: False}
    monkeypatch.setenv("HF_TOKEN", "another")
    with pytest.raises(RunError, match=r"did not take someone/bolts .*401.*; check HF_ENDPOINT"):
        upload(files, NAME)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RunError, match=r"the hub http://127\.0\.0\.1:9 did not take"):
        upload(files, NAME)
