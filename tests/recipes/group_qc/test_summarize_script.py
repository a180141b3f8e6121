"""The shell launcher of Stage A alone, as an operator calls it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from tile_photos import NUM_GROUPS

from groupwise.core import read_jsonl

THIS_COMMAND = f"exec {shlex.quote(sys.executable)} -m groupwise.cli"
SCRIPT = Path(__file__).parents[3] / "examples" / "group_qc" / "summarize.sh"
TINY = ("teach.epochs=4", "teach.reading_per_epoch=8", "data.teach_share=0.1")


def launch(
    folder: Path,
    *words: object,
    called: str = f"exec {shlex.quote(sys.executable)} -m groupwise.cli",
) -> subprocess.CompletedProcess[str]:
    """Run it as users do, with this Python's command on the path, or another."""
    command = folder / "bin" / "groupwise"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\n{called} "$@"\n')
    command.chmod(0o755)
    return subprocess.run(
        ["bash", SCRIPT, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"},
    )


def list_words(folder: Path, *words: object) -> list[str]:
    """Return the words that it gives to the command."""
    return launch(folder, *words, called="printf '%s\\n'").stdout.splitlines()


@pytest.mark.parametrize("words", [(), ("photos",)])
def test_without_photos_and_a_run_it_tells_how_it_is_called(tmp_path: Path, words: tuple) -> None:
    done = launch(tmp_path, *words)
    assert done.returncode == 2
    assert "summarize.sh PHOTOS RUN [CONFIG]" in done.stderr


@pytest.mark.slow
def test_it_would_end_after_stage_a(root: Path, tmp_path: Path) -> None:
    done = launch(tmp_path, root, tmp_path / "run", "tile-tiny", "--dry-run")
    assert done.returncode == 0, done.stderr
    stages = [line.split()[1] for line in done.stdout.splitlines() if line.endswith("run     │")]
    assert stages == ["prepare", "audit", "teach_stage_a", "summarize"]
    assert not (tmp_path / "run").exists()


def test_settings_of_stage_b_do_not_stop_stage_a(
    root: Path, tmp_path: Path, command_line: CommandLine
) -> None:
    late = ("--set", "grpo.warmup_share=0", "--set", "grpo.warmup_steps=100")
    done = command_line(*list_words(tmp_path, root, tmp_path / "run", "--dry-run"), *late)
    assert done.returncode == 0, done.stderr
    assert "grpo.warmup_steps: 100 of about" in done.stdout


def test_a_folder_that_is_not_there_is_told(tmp_path: Path, command_line: CommandLine) -> None:
    done = command_line(*list_words(tmp_path, tmp_path / "gone", tmp_path / "run", "--dry-run"))
    assert done.returncode == 2
    assert "gone" in done.stderr


@pytest.mark.slow
def test_it_describes_every_group_and_asks_nothing_twice(root: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = [word for one in TINY for word in ("--set", one)]
    done = launch(tmp_path, root, run, "tile-tiny", *settings)
    assert done.returncode == 0, done.stderr
    names = ("磁瓦表面检查_stage_a.jsonl", "磁瓦表面检查_stage_a_failed.jsonl")
    rows = [row for name in names for row in read_jsonl(run / "summarize" / name)]
    groups = read_jsonl(run / "prepare" / "groups.jsonl")
    assert len(groups) == 2 * NUM_GROUPS
    expected = [group["group_id"] for group in groups if group["split"] != "teach"]
    assert sorted(row["group_id"] for row in rows) == sorted(expected)
    assert not (run / "stage_b_data").exists()
    before = [(run / "summarize" / name).read_bytes() for name in names]
    assert launch(tmp_path, root, run, "tile-tiny", *settings).returncode == 0
    assert (run / "summarize" / names[0]).read_bytes().startswith(before[0])
