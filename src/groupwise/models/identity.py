"""What a base model is known by: the content of its folder, or the commit of its hub id.

What is loaded is what is known: a hub id stands for the commit in the local cache, as long as it
is there, and nothing newer is fetched behind a run's back (``hf download`` does so). An adapter in
PEFT's form names its base.
"""

import json
import os
from pathlib import Path
from typing import Any

from groupwise.core import ModelError, digest_file, digest_json, read_json, write_json
from groupwise.models.sources import (
    NAMED_MODELS,
    ask_for_commit,
    find_commit,
    find_place,
    hash_once,
    list_places,
    name_ways,
)

_FILE = "adapter_config.json"
_BASE = "base_model_name_or_path"
_WEIGHTS = "adapter_model.safetensors"
# Files beside weights that say how to compute with them, and what only says where they come from.
_SETTINGS = (
    *("config.json", "generation_config.json", _FILE),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
)
_ORIGIN = (
    *("_name_or_path", "_commit_hash", "transformers_version"),
    *(_BASE, "revision", "peft_version"),
)


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


def refuse_pickled(adapter: Path) -> None:
    """Raise ``ModelError`` if an adapter is not in safetensors: PEFT would take a pickle then."""
    if not (adapter / _WEIGHTS).is_file():
        raise ModelError(
            f"the adapter {adapter} has no weights that can be read",
            got=f"no {_WEIGHTS}",
            fix="save it again with safetensors, where you trust it",
        )


def name_base(adapter: Path, base: str) -> None:
    """Change the base that an adapter in PEFT's form names."""
    write_json(adapter / _FILE, {**read_json(adapter / _FILE, dict), _BASE: base})


def digest_base(base: str | Path) -> str | None:
    """Return the digest of a model folder, or the commit that a hub id stands for.

    An adapter is known by its base, too. Hidden files, such as notes of a download, do not count.

    Returns:
        None for a hub id that is not in the local cache while the hub cannot tell.
    """
    place = find_place(base)
    folder = Path(place)
    if folder.is_dir():
        found = [[path.name, _digest(path)] for path in sorted(folder.glob("[!.]*"))]
        below = [digest_base(read_base(folder))] if is_adapter(folder) else []
        return digest_json([found, *below])
    return find_commit(str(place)) or ask_for_commit(str(place))


def digest_weights(folder: Path) -> str | None:
    """Return the digest of a folder's weights and of what says how to compute with them.

    The same weights under another activation are another model; the tokenizer, the folder, the
    library that wrote it and the place of an adapter's base do not count. None without weights.
    """
    weights = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    if not weights:
        return None

    def drop_origin(values: dict[str, Any]) -> dict[str, Any]:
        return {name: one for name, one in values.items() if name not in _ORIGIN}

    rows = [[path.name, _digest(path)] for path in weights]
    for path in (folder / name for name in _SETTINGS):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            rows.append([path.name, digest_json(json.loads(text, object_hook=drop_origin))])
    return digest_json(rows)


def find_revision(name_or_path: str | Path) -> str:
    """Return what to load of a model: the commit in the local cache, else the newest."""
    is_folder = Path(name_or_path).is_dir()
    return (None if is_folder else find_commit(str(name_or_path))) or "main"


def pin_base(base: str | Path, digest: str | None) -> str | Path:
    """Return what to load for a base that a run has started from: the source with this content.

    Args:
        base: as a config names it.
        digest: of its files then (``digest_base``); None: it has not started yet.

    Raises:
        ModelError: if no source of a name has this content any more.
    """
    if digest is None or str(base) not in NAMED_MODELS:
        return find_place(base)
    for place in list_places(str(base)):
        if digest_base(place) == digest:
            return place
    raise ModelError(
        f"the files of {base} that this run started from are not on this machine any more",
        got=f"no source of it with the digest {digest}",
        fix=f"bring them back ({name_ways(str(base))}), or start a new run with another --out",
    )


def _digest(path: Path) -> str:
    """Return what ``digest_file`` does."""
    return digest_file(path) if path.is_dir() else hash_once(path)[:32]
