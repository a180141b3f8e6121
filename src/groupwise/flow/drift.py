"""The pictures of a run's own splits as a reference for those that its policies are asked about."""

from pathlib import Path

from groupwise.core import DataError, Example
from groupwise.evaluation import DriftReference, fit_reference
from groupwise.flow.finished import FinishedRun
from groupwise.flow.task import read_splits

_NUM_PICTURES = 300


def find_drift_reference(run: FinishedRun) -> DriftReference | None:
    """Return the reference of a run; None where its pictures are few, or are not there any more."""
    try:
        splits = read_splits(run.folder / run.task.data_stage, "train", "validation")
        return fit_reference(
            _list_pictures(splits["train"]),
            _list_pictures(splits["validation"]),
            seed=run.config.seed,
        )
    except DataError:
        return None


def _list_pictures(examples: list[Example]) -> list[Path]:
    """Return one picture of each session, of some sessions."""
    by_session = {one.cluster: one.pictures[0].path for one in examples if one.pictures}
    return list(by_session.values())[:_NUM_PICTURES]
