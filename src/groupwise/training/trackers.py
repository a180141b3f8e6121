"""Experiment trackers, told the values of ``metrics.jsonl`` under their names there.

Transformers' own callbacks talk to the trackers. They get the rows that we write instead of the
trainer's logs, so that a curve has one name everywhere. Where a tracker keeps its files and
whether it uses a network is decided by that tracker's own environment variables.
"""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from transformers import TrainerCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

PROJECT = "groupwise"
# What each tracker calls the project that runs are listed under.
_PROJECT_VARIABLES = {"wandb": "WANDB_PROJECT", "mlflow": "MLFLOW_EXPERIMENT_NAME"}


class Trackers(TrainerCallback):
    """Passes a training on to the trackers in ``names``; rows come through ``log``.

    They also get the trainer's resolved arguments, as Transformers passes them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        for name in names:
            if name in _PROJECT_VARIABLES:
                os.environ.setdefault(_PROJECT_VARIABLES[name], PROJECT)
        self._trackers = [make() for make in get_reporting_integration_callbacks(list(names))]
        self._names = tuple(names)
        self._owns_wandb_run = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Open each tracker's run."""
        if "wandb" in self._names:
            self._owns_wandb_run = import_module("wandb").run is None
        for tracker in self._trackers:
            tracker.on_train_begin(args, state, control, **named)

    def log(self, values: Mapping[str, float], args: Any, state: Any, control: Any) -> None:
        """Tell every tracker the values of this step."""
        for tracker in self._trackers:
            tracker.on_log(args, state, control, logs=dict(values))

    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Close each tracker's run: the next training of this process has its own."""
        for tracker in self._trackers:
            tracker.on_train_end(args, state, control, **named)
        if self._owns_wandb_run:
            import_module("wandb").finish()
