"""Steps of a run that were made with other versions of the libraries that compute results.

They are reused all the same: most releases change nothing, and a training of days is not redone for
them. But whoever starts the run and whoever reads its results is told.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.core import list_packages
from groupwise.pipeline.step_files import DONE, STARTED, read_marker

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
