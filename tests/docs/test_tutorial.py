"""The tutorial's commands, run one after the other from an empty folder as far as takes seconds."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import list_blocks

from assemble import DOCS, read_written

PAGES = (DOCS / "own-task.md", DOCS / "zh" / "own-task.md")


def list_commands(page: Path) -> list[list[str]]:
    lines = [line for b in list_blocks(page) if b.kind == "sh" for line in b.text.splitlines()]
    return [shlex.split(line) for line in lines]


def test_the_tutorial_is_short_and_the_same_in_both_languages():
    english, chinese = map(list_commands, PAGES)
    assert english == chinese
    assert [words[:2] for words in english] == [
        ["groupwise", "new"],
        ["groupwise", "run"],
        ["groupwise", "run"],
        ["groupwise", "audit"],
        ["groupwise", "sweep"],
    ]
    assert all(len(read_written(page).splitlines()) <= 100 for page in PAGES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorial")


def test_its_commands_are_taken(folder: Path):
    for _, *words in list_commands(PAGES[0]):
        checked = [] if words[0] in ("new", "audit") or "--dry-run" in words else ["--dry-run"]
        tiny = ["--tiny"] if words[0] == "new" else []  # nothing is downloaded here
        command = [sys.executable, "-m", "groupwise.cli", *words, *checked, *tiny]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout + done.stderr)
        if words[0] == "audit":
            assert "words in their order" in done.stdout
    assert sorted(path.name for path in folder.iterdir()) == ["my_task", "runs"]
