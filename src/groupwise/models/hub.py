"""Models of the hub: the commit that is in the local cache, and what brings one there."""

from pathlib import Path
from typing import Any

from groupwise.core import ModelError, Say

_TIMEOUT_S = 10.0
_SMALL_FILES = ("*.json", "*.txt", "*.jinja", "*.model", "*.md", "LICENSE*", "NOTICE*")
# Without what some owners keep beside them: the same weights in other forms.
_WEIGHTS = "model*.safetensors"
_OLDER_WEIGHTS = "pytorch_model*.bin"


def find_commit(hub_id: str) -> str | None:
    """Return the commit that a hub id stands for in the local cache, or None."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    try:
        name = repo_folder_name(repo_id=hub_id, repo_type="model")
        reference = Path(constants.HF_HUB_CACHE) / name / "refs" / "main"
        return reference.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):  # not in the cache; not a name that the hub could have
        return None


def find_snapshot(hub_id: str) -> Path | None:
    """Return the folder in the local cache with the files of that commit, or None."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    commit = find_commit(hub_id)
    if commit is None:
        return None
    name = repo_folder_name(repo_id=hub_id, repo_type="model")
    folder = Path(constants.HF_HUB_CACHE) / name / "snapshots" / commit
    return folder if folder.is_dir() else None


def ask_for_commit(hub_id: str) -> str | None:
    """Return the newest commit of a hub id, or None where the hub cannot tell."""
    import httpx2
    import huggingface_hub

    try:
        return huggingface_hub.HfApi().model_info(hub_id, timeout=_TIMEOUT_S).sha
    except (OSError, ValueError, httpx2.HTTPError):
        return None


def has_weights(folder: Path) -> bool:
    """Return whether all files with weights are there that a folder speaks of."""
    from groupwise.core import read_json

    for ending in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{ending}.index.json"
        if index.is_file():
            names = set(read_json(index, dict)["weight_map"].values())
            return all((folder / name).is_file() for name in names)
        if (folder / ending).is_file():
            return True
    return False


def download(hub_id: str, *, is_whole: bool, say: Say) -> Path:
    """Bring a model of the hub into the local cache, with the bars of the hub's own client.

    What is there stays at its commit, and only what is missing of it is fetched.

    Returns:
        The folder in the local cache.
    """
    folder = find_snapshot(hub_id)
    is_known = folder is not None and (folder / "config.json").is_file()
    if folder is not None and is_known and (has_weights(folder) or not is_whole):
        return folder
    folder = _fetch(hub_id, *_SMALL_FILES)
    if not is_whole:
        return folder
    say(f"downloading {hub_id} from the hub, once for all runs")
    folder = _fetch(hub_id, *_SMALL_FILES, _WEIGHTS)
    if not has_weights(folder):
        folder = _fetch(hub_id, *_SMALL_FILES, _OLDER_WEIGHTS)
    if not has_weights(folder):
        raise ModelError(
            f"{hub_id} on the hub has no weights that can be loaded",
            expected=f"{_WEIGHTS} or {_OLDER_WEIGHTS}",
            fix="give the id of a whole model; of GGUF files, download one and give its path",
        )
    return folder


def _fetch(hub_id: str, *patterns: str) -> Path:
    import httpx2
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        found = snapshot_download(
            hub_id, revision=find_commit(hub_id), allow_patterns=list(patterns)
        )
    except GatedRepoError as error:
        raise ModelError(
            f"the owner of {hub_id} lets only those download it who have agreed to its terms",
            fix="agree to them on the model's page of the hub, then hf auth login (or HF_TOKEN)",
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"the hub has no model {hub_id}, or only for those who may see it",
            fix="check the id; for a private model, hf auth login (or HF_TOKEN)",
        ) from error
    except HFValidationError as error:
        raise ModelError(
            f"{hub_id} is neither a folder nor a name that the hub could have",
            fix="give a folder, a .gguf file, a hub id (owner/name), or a name of groupwise models",
        ) from error
    except (OSError, ValueError, httpx2.HTTPError) as error:
        raise ModelError(
            f"the model {hub_id} is not on this machine, and the hub cannot be reached",
            got=_take_reason(error),
            fix=f"run `hf download {hub_id}` where it can be, or give a folder or a .gguf file",
        ) from error
    return Path(found)


def _take_reason(error: BaseException) -> str:
    """Return the first line of the innermost error, which says what happened."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines: list[Any] = str(error).strip().splitlines()
    return f"{type(error).__name__}{f' ({lines[0]})' if lines else ''}"
