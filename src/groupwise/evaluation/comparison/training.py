"""Training side by side: logged numbers of every system, and the last ones of each epoch.

Several runs of a system are averaged step by step, with the lowest and the highest kept.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from groupwise.core import read_jsonl
from groupwise.evaluation.alarms import History
from groupwise.evaluation.comparison.material import Curve, EpochRow

KEYS = (
    *("loss", "eval_loss", "reward", "heldout/accuracy", "kl", "ppo_loss", "entropy"),
    *("dead_groups", "invalid", "advantage_std", "advantage_max", "completion_length"),
    *("grad_norm", "beta"),
)
_NOT_DRAWN = ("grad_norm", "beta")
MAX_POINTS = 400
LogsByStep = Mapping[str, Mapping[str, Sequence[History]]]


def read_logs(folder: Path, steps: Sequence[str] | None) -> dict[str, History]:
    """Return the numbers of ``STEP/metrics.jsonl`` by training step; all steps if None.

    Raises:
        DataError: if a line is damaged.
    """
    if steps is None:
        steps = sorted(path.parent.name for path in folder.glob("*/metrics.jsonl"))
    paths = {step: folder / step / "metrics.jsonl" for step in steps}
    return {step: History(read_jsonl(path)) for step, path in paths.items() if path.is_file()}


def draw_curves(logs: LogsByStep) -> tuple[Curve, ...]:
    """Return the curves of logs by step and system."""
    drawn = [key for key in KEYS if key not in _NOT_DRAWN]
    curves = (
        _average(step, key, system, runs)
        for step, by_system in logs.items()
        for key in drawn
        for system, runs in by_system.items()
    )
    return tuple(curve for curve in curves if curve is not None)


def _average(step: str, key: str, system: str, runs: Sequence[History]) -> Curve | None:
    """Return mean, lowest and highest of several runs at the steps that all of them logged."""
    series = [one for log in runs if (one := _read_series(log, key))]
    shared = sorted(at for at in (series or [{}])[0] if all(at in one for one in series))
    if not shared:
        return None
    shared = shared[:: math.ceil(len(shared) / MAX_POINTS)]
    values = np.asarray([[one[at] for at in shared] for one in series])
    return Curve(
        step_name=step,
        key=key,
        system=system,
        num_runs=len(series),
        steps=tuple(shared),
        mean=tuple(map(float, values.mean(axis=0))),
        low=tuple(map(float, values.min(axis=0))),
        high=tuple(map(float, values.max(axis=0))),
    )


def _read_series(log: History, key: str) -> dict[int, float]:
    series = log.read(key)
    return dict(zip(series.steps, series.values, strict=True))


def list_epochs(logs: LogsByStep) -> tuple[EpochRow, ...]:
    """Return the last logged values within every epoch, as means over the runs that have it."""
    return tuple(
        row
        for step, by_system in logs.items()
        for system, runs in by_system.items()
        for row in _average_epochs(step, system, runs)
    )


def _average_epochs(step: str, system: str, runs: Sequence[History]) -> Iterator[EpochRow]:
    tables = [_find_last(log) for log in runs]
    for epoch in sorted({epoch for table in tables for epoch in table}):
        here = [table[epoch] for table in tables if epoch in table]
        values = {
            key: float(np.mean([one[key] for one in here if key in one]))
            for key in KEYS
            if any(key in one for one in here)
        }
        yield EpochRow(step, system, epoch, len(here), values)


def _find_last(log: History) -> dict[int, dict[str, float]]:
    """Return by epoch (1 = the first) the last logged value of every number within it."""
    found: dict[int, dict[str, float]] = {}
    epochs = {step: max(1, math.ceil(one)) for step, one in _read_series(log, "epoch").items()}
    for epoch in epochs.values():
        found.setdefault(epoch, {})
    for key in KEYS:
        for step, value in _read_series(log, key).items():
            if step in epochs:
                found[epochs[step]][key] = value
    return found
