"""What a base model is known by: the content of its folder, or the commit of its hub id.

What is loaded is what is known: a hub id stands for the commit in the local cache, as long as it
is there, and nothing newer is fetched behind a run's back (``hf download`` does so). An adapter in
PEFT's form names its base.
"""

import os
import time
from functools import cache
from pathlib import Path

from groupwise.core import ModelError, digest_file, digest_json, read_json, write_json

_FILE = "adapter_config.json"
_BASE = "base_model_name_or_path"
_WEIGHTS = "adapter_model.safetensors"


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
    """Refuse an adapter whose weights are not in safetensors: PEFT would take a pickle instead.

    Raises:
        ModelError: if they are not.
    """
    if not (adapter / _WEIGHTS).is_file():
        raise ModelError(
            f"the adapter {adapter} has no weights that can be read",
            got=f"no {_WEIGHTS}",
            fix="save it again with safetensors, where you trust it",
        )


def name_base(adapter: Path, base: str) -> None:
    """Change the base that an adapter in PEFT's form names."""
    config = read_json(adapter / _FILE, dict)
    write_json(adapter / _FILE, {**config, _BASE: base})


_HUB_TIMEOUT_S = 10.0
# A file changed within one tick of the clock that stamps files looks unchanged.
_SETTLED_S = 2.0


def digest_base(base: str | Path) -> str | None:
    """Return the digest of a model folder, or the commit that a hub id stands for.

    An adapter is known by its base, too. Hidden files, such as notes of a download, do not count.

    Returns:
        None for a hub id that is not in the local cache while the hub cannot tell.
    """
    folder = Path(base)
    if folder.is_dir():
        found = [[path.name, _digest(path)] for path in sorted(folder.glob("[!.]*"))]
        below = [digest_base(read_base(folder))] if is_adapter(folder) else []
        return digest_json([found, *below])
    return _find_cached_commit(str(base)) or _ask_for_commit(str(base))


def find_revision(name_or_path: str | Path) -> str:
    """Return what to load of a model: the commit in the local cache, else the newest."""
    is_folder = Path(name_or_path).is_dir()
    return (None if is_folder else _find_cached_commit(str(name_or_path))) or "main"


def _find_cached_commit(hub_id: str) -> str | None:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    try:
        name = repo_folder_name(repo_id=hub_id, repo_type="model")
        reference = Path(constants.HF_HUB_CACHE) / name / "refs" / "main"
        return reference.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):  # not in the cache; not a name that the hub could have
        return None


def _ask_for_commit(hub_id: str) -> str | None:
    import httpx2
    import huggingface_hub

    try:
        return huggingface_hub.HfApi().model_info(hub_id, timeout=_HUB_TIMEOUT_S).sha
    except (OSError, ValueError, httpx2.HTTPError):
        return None


def _digest(path: Path) -> str:
    """Digest a file once in a process: the cells of a sweep share gigabytes of weights.

    Size and time of change decide whether it is still the same; unlike the time of modification,
    that time cannot be set by who writes the file.
    """
    stat = path.stat()
    if path.is_dir() or time.time() - stat.st_ctime < _SETTLED_S:
        return digest_file(path)
    return _digest_once(path.resolve(), (stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime_ns))


@cache
def _digest_once(path: Path, stamp: tuple[int, ...]) -> str:
    del stamp
    return digest_file(path)
