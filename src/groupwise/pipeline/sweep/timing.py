"""How long the rest of a sweep will take, from the steps that its finished cells ran."""

from collections.abc import Sequence
from statistics import mean

from groupwise.pipeline.step_files import DONE, read_marker
from groupwise.pipeline.sweep.planning import PlannedCell


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
