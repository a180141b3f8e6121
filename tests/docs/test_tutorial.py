"""The tutorial's commands, run one after the other from an empty folder as far as takes seconds."""

import shlex
from pathlib import Path

from command_line import CommandLine
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
        ["groupwise", "sweep"],
    ]
    assert all(len(read_written(page).splitlines()) <= 100 for page in PAGES)


def test_its_commands_are_taken(command_line: CommandLine, tmp_path: Path):
    for _, *words in list_commands(PAGES[0]):
        checked = [] if words[0] == "new" or "--dry-run" in words else ["--dry-run"]
        tiny = ["--tiny"] if words[0] == "new" else []  # nothing is downloaded here
        command_line.succeed(*words, *checked, *tiny)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my_task"]
