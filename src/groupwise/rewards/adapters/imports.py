"""Finding a reward function by its dotted path."""

import importlib
from collections.abc import Callable
from typing import Any

from groupwise.core import RewardError


def load_object(path: str) -> object:
    """Return what ``package.module.name`` or ``package.module:name`` names.

    Raises:
        RewardError: if there is no such module or name.
    """
    module, _, name = path.replace(":", ".").rpartition(".")
    if not module or not name:
        raise RewardError("not a dotted path", got=repr(path), expected="package.module.name")
    try:
        found: object = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RewardError(
            f"cannot import {path!r} ({error})", fix="check the path and install its package"
        ) from error
    return found


def load_function(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """Return a function, or what its dotted path names.

    Raises:
        RewardError: if the path leads nowhere or to nothing that can be called.
    """
    found = load_object(function) if isinstance(function, str) else function
    if not callable(found):
        raise RewardError("not a reward function", got=repr(found))
    return found
