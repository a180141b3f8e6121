"""One cell as a process of its own: the real ``groupwise run``, its log, its end and its time.

It dies with the sweep, however that ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from groupwise.core import write_json
from groupwise.pipeline.step_files import DONE, describe_now, read_marker
from groupwise.pipeline.sweep.places import CellJob, CellProcess, Places
from groupwise.pipeline.sweep.planning import PlannedCell, SweepPlan
from groupwise.pipeline.sweep.record import CELLS

LOGS = "logs"
CONFIGS = "configs"


@dataclass(frozen=True, slots=True)
class RunningCell:
    """A cell that is running.

    Attributes:
        cell: what it runs.
        process: the run itself.
        log: what that says.
    """

    cell: PlannedCell
    process: CellProcess
    log: Path


def start_cell(plan: SweepPlan, cell: PlannedCell, places: Places) -> RunningCell:
    """Start ``groupwise run`` for a cell; its config is written beside the cells first."""
    config = plan.folder / CONFIGS / f"{cell.name}.json"
    write_json(config, cell.config.model_dump(mode="json"))
    arguments = _write_arguments(plan, cell, config)
    title = f"{describe_now()} {' '.join(arguments)}"
    log = plan.folder / LOGS / f"{cell.name}.log"
    job = CellJob(arguments, config.absolute(), log.absolute(), title)
    return RunningCell(cell, places.start(job), log)


def _write_arguments(plan: SweepPlan, cell: PlannedCell, config: Path) -> list[str]:
    accepted = [part for finding in plan.accepted for part in ("--accept", finding)]
    shared = str(plan.folder / CELLS)
    places = ["--config", str(config), "--out", str(cell.folder), "--share-with", shared]
    return ["-m", "groupwise.cli", "run", plan.recipe.name, *places, *accepted]


class SweepClock:
    """Learns what each step takes and what a cell takes besides.

    Work that several cells share counts once: the first of them does it.
    """

    def __init__(self) -> None:
        self._steps_s: dict[str, list[float]] = {}
        self._besides_s: list[float] = []
        self._done: set[str] = set()

    def add(self, cell: PlannedCell, duration_s: float | None = None) -> None:
        """Learn from a finished cell.

        Args:
            cell: whose markers are read.
            duration_s: of its process; None if it was not run now.
        """
        self._done |= set(cell.work.values())
        own_s = 0.0
        for step in cell.steps:
            marker = read_marker(cell.folder / step.name / DONE) or {}
            if "duration_s" in marker and "taken_from" not in marker:
                self._steps_s.setdefault(step.name, []).append(marker["duration_s"])
                own_s += marker["duration_s"]
        if duration_s is not None:
            self._besides_s.append(max(0.0, duration_s - own_s))

    def count_open(self, cell: PlannedCell, running: Sequence[PlannedCell]) -> int:
        """Return how many pieces of work of a cell the running ones are about to do."""
        busy = {key for other in running for key in other.work.values()}
        return len((set(cell.work.values()) & busy) - self._done)

    def estimate_s(self, left: Sequence[PlannedCell], jobs: int) -> float | None:
        """Return the seconds until all of ``left`` are done, None while nothing is known."""
        if not left or not self._besides_s:
            return None
        open_work = {
            (name, key) for cell in left for name, key in cell.work.items() if key not in self._done
        }
        known = [mean(self._steps_s[name]) for name, _ in open_work if name in self._steps_s]
        return (sum(known) + len(left) * mean(self._besides_s)) / min(jobs, len(left))
