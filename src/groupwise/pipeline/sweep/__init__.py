"""Grids of runs: planned as a whole, run cell by cell, continued after any interruption.

Computes nothing from the cells; a report does.
"""

from groupwise.pipeline.sweep.grid import Axis
from groupwise.pipeline.sweep.places import Places, open_places
from groupwise.pipeline.sweep.planning import PlannedCell, SweepPlan, plan_recorded, plan_sweep
from groupwise.pipeline.sweep.record import CellState, Sweep, SweepCell, read_sweep
from groupwise.pipeline.sweep.running import SweepProgress, run_cell, run_sweep

__all__ = [
    "Axis",
    "CellState",
    "Places",
    "PlannedCell",
    "Sweep",
    "SweepCell",
    "SweepPlan",
    "SweepProgress",
    "open_places",
    "plan_recorded",
    "plan_sweep",
    "read_sweep",
    "run_cell",
    "run_sweep",
]
