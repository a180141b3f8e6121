"""Finding a reward function by its dotted path."""

import importlib

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
