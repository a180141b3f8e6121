"""What a step leaves on disk: its outputs, and the two markers that say how far it came.

Decides nothing; ``runner.py`` and ``sharing.py`` do.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from groupwise.core import DataError, digest_file, list_packages, read_json, write_json
from groupwise.pipeline.steps import Step

DONE = "step.json"
STARTED = "started.json"


def read_marker(path: Path) -> dict[str, Any] | None:
    """Return a marker's values, or None if it is missing or torn."""
    try:
        return read_json(path, dict)
    except DataError:
        return None


def wipe(folder: Path) -> None:
    """Empty a folder; the markers go first, so that half a folder is never taken for a whole."""
    for marker in (DONE, STARTED):
        (folder / marker).unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def digest_outputs(step: Step, run: Path) -> dict[str, str]:
    """Return digests by path; markers, checkpoints and torn temporary files do not count."""
    folder = run / step.name
    paths = [path for path in folder.rglob("*") if path.is_file() and _is_output(path, folder)]
    paths += [run / name for name in step.files if (run / name).is_file()]
    return {path.relative_to(run).as_posix(): digest_file(path) for path in sorted(paths)}


def _is_output(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    is_marker = len(parts) == 1 and parts[0] in (DONE, STARTED)
    is_torn = path.name.startswith(".") and path.suffix == ".part"
    return not (is_marker or is_torn or any(part.startswith("checkpoint-") for part in parts))


def mark_done(folder: Path) -> None:
    """Say that a folder is whole whose work no plan depends on."""
    marker = {"finished_at": describe_now(), "packages": dict(list_packages())}
    write_json(folder / DONE, marker)


def describe_now() -> str:
    """Return the time as it stands in markers."""
    return datetime.now(UTC).isoformat(timespec="seconds")
