"""Where a path leads: what somebody else wrote into a file may name any file of this machine."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

_FUNCTION = re.compile(r".*[/\\](?=[^/\\]+\.py:\w+$)", re.DOTALL)


def is_below(path: Path, folder: Path) -> bool:
    """Return whether a path leads into a folder, with links followed; False where nobody can say.

    Args:
        path: a file, which need not exist.
        folder: that it is to be in.
    """
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a zero byte
        return False


def drop_folders(values: Any) -> Any:
    """Return settings in which functions of files are named alike wherever the files are.

    ``any/folder/rewards.py:length`` becomes ``rewards.py:length``, as a key or a value; the content
    of such a file is digested by itself.

    Args:
        values: JSON values, nested as they may be.
    """
    if isinstance(values, Mapping):
        given = cast("Mapping[str, Any]", values)
        return {_FUNCTION.sub("", key): drop_folders(one) for key, one in given.items()}
    if isinstance(values, list):
        return [drop_folders(one) for one in cast("list[Any]", values)]
    return _FUNCTION.sub("", values) if isinstance(values, str) else values
