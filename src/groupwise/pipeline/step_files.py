"""What a step leaves on disk: its outputs, two markers of how far it came, and by which libraries.

Steps made with other versions of libraries are reused all the same: most releases change nothing,
and a training of days is not redone for them. But whoever starts the run and whoever reads its
results is told.
"""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from groupwise.core import STEP_DONE as DONE
from groupwise.core import DataError, digest_file, list_packages, read_json, write_json
from groupwise.pipeline.steps import Step

STARTED = "started.json"
_CACHES = (".sqlite", ".sqlite-wal", ".sqlite-shm")


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
    """Return digests by path.

    Markers, checkpoints, torn temporary files and kept replies do not count: SQLite writes these
    once more when their file is closed, which may be after the step's end.
    """
    folder = run / step.name
    paths = [path for path in folder.rglob("*") if path.is_file() and _is_output(path, folder)]
    paths += [run / name for name in step.files if (run / name).is_file()]
    return {path.relative_to(run).as_posix(): digest_file(path) for path in sorted(paths)}


def _is_output(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    is_marker = len(parts) == 1 and parts[0] in (DONE, STARTED)
    is_torn = path.name.startswith(".") and path.suffix == ".part"
    is_cache = path.suffix in _CACHES
    is_checkpoint = any(part.startswith("checkpoint-") for part in parts)
    return not (is_marker or is_torn or is_cache or is_checkpoint)


def mark_done(folder: Path) -> None:
    """Say that a folder is whole whose work no plan depends on."""
    marker = {"finished_at": describe_now(), "packages": dict(list_packages())}
    write_json(folder / DONE, marker)


def describe_now() -> str:
    """Return the time as it stands in markers."""
    return datetime.now(UTC).isoformat(timespec="seconds")


OtherPackages = Mapping[str, Mapping[str, Any]]


def find_other_packages(run: Path) -> dict[str, dict[str, Any]]:
    """Return by package: its versions ``then`` and ``now``, and the ``steps`` made then.

    Groupwise itself is not among them: another version of it redoes every step.
    """
    found: dict[str, dict[str, Any]] = {}
    now = list_packages()
    for path in sorted([*run.glob(f"[!.]*/{DONE}"), *run.glob(f"[!.]*/{STARTED}")]):
        then = (read_marker(path) or {}).get("packages", {})
        for name in sorted({*then, *now} - {"groupwise"} if then else ()):
            if then.get(name) != now.get(name):
                row = found.setdefault(name, {"then": [], "now": now.get(name), "steps": []})
                row["then"] += [] if then.get(name) in row["then"] else [then.get(name)]
                row["steps"] += [] if path.parent.name in row["steps"] else [path.parent.name]
    return found


def describe_other_packages(others: OtherPackages) -> str:
    """Return one line about them."""
    changes = [
        f"{name} was {', '.join(version or 'not there' for version in row['then'])} and is "
        f"{row['now'] or 'not there'}"
        for name, row in others.items()
    ]
    steps = sorted({step for row in others.values() for step in row["steps"]})
    return (
        f"libraries changed since {', '.join(steps)}: {'; '.join(changes)}; what is reused "
        "of these steps was made with the former (a new --out makes all with the present ones)"
    )
