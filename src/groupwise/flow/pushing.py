"""Uploading an exported policy to a hub: its weights and its card, never a row of data."""

import os
from collections.abc import Mapping
from pathlib import Path

from groupwise.core import RunError, RunFolder
from groupwise.flow.exporting import CARD
from groupwise.flow.finished import FinishedRun


def check_pushable(run: FinishedRun, policy: str | None = None) -> None:
    """Refuse what is not finished.

    Raises:
        RunError: if a stage of the run is not done, or the policy is a checkpoint.
    """
    missing = [
        step for step in RunFolder(run.folder).read_manifest()["plan"] if step not in run.steps
    ]
    if missing:
        raise RunError(
            f"{run.folder} is not finished",
            got=f"no {missing[0]} yet",
            fix=f"run --resume --out {run.folder}",
        )
    if policy is not None and "/" in policy:
        raise RunError("a checkpoint is not pushed", got=policy, fix="export it with export-model")


def list_uploads(folder: Path) -> Mapping[str, Path]:
    """Return the files of an export by their place on a hub: merged weights at the root."""
    merged, adapter = folder / "merged", folder / "adapter"
    found = {path.relative_to(merged).as_posix(): path for path in sorted(merged.rglob("*"))}
    found |= {path.relative_to(folder).as_posix(): path for path in sorted(adapter.rglob("*"))}
    return {CARD: folder / CARD, **{name: path for name, path in found.items() if path.is_file()}}


def upload(files: Mapping[str, Path], name: str, *, is_private: bool = False) -> str:
    """Upload files as one commit into a repository, which is made if it is not there.

    The hub is that of ``HF_ENDPOINT``, the token that of ``HF_TOKEN`` or of ``hf auth login``.

    Args:
        files: by their place there.
        name: ``owner/name``.
        is_private: of a new repository.

    Returns:
        The address of the repository.

    Raises:
        RunError: if the hub cannot be reached or does not take it.
    """
    import httpx2
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    adds = [CommitOperationAdd(path_in_repo=place, path_or_fileobj=p) for place, p in files.items()]
    try:
        found = api.create_repo(name, private=is_private, exist_ok=True)
        api.create_commit(found.repo_id, adds, commit_message="A policy of Groupwise")
    except (OSError, ValueError, httpx2.HTTPError) as error:
        first = str(error).strip().partition("\n")[0]
        raise RunError(
            f"the hub {api.endpoint} did not take {name} ({first})",
            fix="check HF_ENDPOINT, HF_TOKEN and the name",
        ) from error
    return str(found)
