"""Adapters in PEFT's form as folders: which base they are of."""

import os
from pathlib import Path

from groupwise.core import ModelError, read_json, write_json

_FILE = "adapter_config.json"
_BASE = "base_model_name_or_path"


def is_adapter(folder: Path) -> bool:
    """Return whether a folder holds an adapter and not a whole model."""
    return (folder / _FILE).is_file()


def read_base(adapter: Path) -> str:
    """Return the base that an adapter in PEFT's form names: a hub id, or an absolute folder.

    Raises:
        ModelError: if it names none, or a folder beside it that is not there.
    """
    name = read_json(adapter / _FILE, dict).get(_BASE)
    if not name:
        raise ModelError(f"the adapter {adapter} does not name its base model")
    beside = (adapter / name).resolve()
    if beside.is_dir():
        return str(beside)
    if name.startswith(os.pardir):
        raise ModelError(
            f"the base model of the adapter {adapter} is gone",
            got=f"no folder {beside}",
            fix="move a run as a whole, or export the adapter",
        )
    return name


def name_base(adapter: Path, base: str) -> None:
    """Change the base that an adapter in PEFT's form names."""
    config = read_json(adapter / _FILE, dict)
    write_json(adapter / _FILE, {**config, _BASE: base})
