"""Configs and command lines that cannot be meant: one sentence, exit code 2, nothing written.

A row is a command beside the tiny recipe, settings of the recipe ``task`` (with what they leave out
from ``SOUND``), or the text of a config with other files beside it.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from corpora import each_row

Row = dict[str, Any]
SOUND: Row = {
    "recipe": "task",
    "model": {"base": "tiny-qwen2", "max_pixels": 784},
    "data": {"files": "rows.csv", "columns": {"prompt": "question", "answer": "answer"}},
    "answer": {"kind": "labels", "labels": ["good", "bad"]},
    "grpo": {},
}


@each_row("configs")
def test_it_is_refused_in_words(
    row: Row,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    command_line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path
    if "command" in row:
        folder = request.getfixturevalue("tiny").work
    else:
        write_files(row, tmp_path / "own")
        monkeypatch.chdir(tmp_path)
    before = list_files(folder)
    done = command_line(*row.get("command", ("run", "own/task.yaml", "--dry-run")))
    said = " ".join(done.stderr.split())
    assert done.returncode == 2, (row["why"], said)
    assert row["says"].replace("{folder}", "own") in said, row["why"]
    assert "Traceback" not in done.stderr
    assert list_files(folder) == before


def test_the_sound_one_is_ready(
    tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files({"task": {}}, tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    done = command_line("run", "own/task.yaml", "--dry-run")
    assert (done.returncode, "ready: nothing was written" in done.stdout) == (0, True)


def write_files(row: Row, folder: Path) -> None:
    folder.mkdir()
    questions = [f"Is {n} good?,{'good' if n % 2 else 'bad'}\n" for n in range(40)]
    (folder / "rows.csv").write_text("question,answer\n" + "".join(questions))
    for name, text in row.get("files", {}).items():
        (folder / name).write_text(text)
    for name, target in row.get("links", {}).items():
        (folder / name).symlink_to(target)
    text = row["text"] if "text" in row else json.dumps({**SOUND, **row["task"]})
    (folder / "task.yaml").write_bytes(text.encode(row.get("encoding", "utf-8")))


def list_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}
