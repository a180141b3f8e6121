"""How a run was started, as words of a command that starts another one like it."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from groupwise.core.outputs import read_manifest

_WITH_VALUE = ("--config", "--set")


def repeat_start(folder: Path, *, without: Collection[str] = ()) -> list[str] | None:
    """Return recipe, config and settings that a run was started with, as words of a command.

    Args:
        folder: of the run.
        without: settings that the new command gives itself.

    Returns:
        None where the run does not say how it was started.

    Raises:
        DataError, RunError: if its manifest is damaged.
    """
    told: list[Any] = read_manifest(folder / "manifest.json").get("command") or []
    command = [str(word) for word in told]
    start = command.index("run") + 1 if "run" in command else len(command)
    if start >= len(command) or command[start].startswith("-"):
        return None
    words = [command[start]]
    options = iter(command[start + 1 :])
    for option in options:
        name, equals, value = option.partition("=")
        if name not in _WITH_VALUE:
            continue
        value = value if equals else next(options, "")
        if name == "--config" or value.partition("=")[0] not in without:
            words += [name, value]
    return words
