"""Finished runs as the arms of a table: told apart where they differ in more than the seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from groupwise.core import EvaluationError, RunFolder, check_records, flatten_settings
from groupwise.evaluation import (
    Difference,
    Policies,
    Prediction,
    RunFacts,
    find_unlike,
    read_facts,
    read_policies,
    read_predictions,
)
from groupwise_recipes.visual_reasoning.config import CHECKPOINTS
from groupwise_recipes.visual_reasoning.judging import FAULTS
from groupwise_recipes.visual_reasoning.measuring import ENTAILMENT
from groupwise_recipes.visual_reasoning.study.tables import Row, StudyTable, fits_any

_SEED, _SETTING = "seeds/seed", "config"


@dataclass(frozen=True)
class StudyRun:
    """A finished run.

    Attributes:
        folder: where it is.
        settings: of its config, by dotted key.
        policies: that it has.
        predictions: by policy; of what was judged, each fault is a score of 0 or 1.
    """

    folder: Path
    settings: dict[str, Any]
    policies: Policies
    predictions: dict[str, list[Prediction]]

    @property
    def checkpoint(self) -> str | None:
        """What its base is, if that was published and nothing was trained."""
        return self.settings.get("checkpoint")

    def read_facts(self, policy: str) -> RunFacts:
        """Return what stands behind one of its policies."""
        return read_facts(self.folder, policy=policy, predictions=self.predictions[policy])


@dataclass(frozen=True)
class Measured:
    """A policy of a run, with its seed and what stands behind it."""

    run: StudyRun
    policy: str
    facts: RunFacts

    @property
    def seed(self) -> int:
        """The seed of its run."""
        return self.facts.facts[_SEED]

    @property
    def predictions(self) -> list[Prediction]:
        """Its answers."""
        return self.run.predictions[self.policy]

    @cached_property
    def answers(self) -> set[tuple[str, str]]:
        """What it said, by item."""
        return {(one.example_id, one.text) for one in self.predictions}


@dataclass(frozen=True)
class Arm:
    """The runs of a row that differ in the seed only.

    Attributes:
        row: of the table; without runs it has not run.
        runs: one per seed.
        repeated: further runs of the same seeds.
        apart: in what this arm differs from others of its row: settings as ``key value`` first.
    """

    row: Row
    runs: tuple[Measured, ...] = ()
    repeated: tuple[Measured, ...] = ()
    apart: tuple[str, ...] = field(default=())

    @property
    def differs_repeated(self) -> bool:
        """Whether a further run of a seed answered otherwise than the one that is shown."""
        shown = {one.seed: one for one in self.runs}
        return any(one.answers != shown[one.seed].answers for one in self.repeated)


def read_run(folder: Path) -> StudyRun:
    """Return a finished run.

    Raises:
        EvaluationError: if it was not evaluated.
        DataError: if a file is damaged.
    """
    path = folder / "evaluate" / "predictions.jsonl"
    if not path.is_file():
        raise EvaluationError(f"{folder} was not evaluated", fix="run it to its end")
    check_records(folder)
    rows: dict[str, list[Prediction]] = {}
    for one in read_predictions(path):
        rows.setdefault(one.policy, []).append(_score_faults(one))
    settings = dict(flatten_settings(RunFolder(folder).read_manifest()["config"]))
    return StudyRun(folder, settings, read_policies(folder), rows)


def _score_faults(prediction: Prediction) -> Prediction:
    """Return a prediction with a score for each fault of its reasoning, where that was judged."""
    said = prediction.fields.get(ENTAILMENT)
    if said is None or said["aligns"] is None:
        return prediction
    faults = {name: float(said["type"] == name) for name in FAULTS}
    return replace(prediction, scores={**prediction.scores, **faults})


def list_arms(table: StudyTable, runs: Sequence[StudyRun]) -> list[Arm]:
    """Return the arms of a table in the order of its rows; a row has several that are unlike."""
    of_study = [run for run in runs if table.fits(run.settings)]
    return [arm for row in table.rows for arm in _list_row(row, of_study, table.split)]


def _list_row(row: Row, runs: Sequence[StudyRun], split: str) -> Iterator[Arm]:
    groups: list[list[Measured]] = []
    for run in runs:
        policy = _choose_policy(row, run)
        if policy not in run.predictions or not fits_any(row.where, run.settings):
            continue
        one = Measured(run, policy, run.read_facts(policy))
        for group in groups:
            if not find_unlike([group[0].facts, one.facts], split):
                group.append(one)
                break
        else:
            groups.append([one])
    if not groups and not row.is_extra:
        yield Arm(row)
    for number, group in enumerate(groups):
        others = [other[0] for place, other in enumerate(groups) if place != number]
        yield _make_arm(row, group, others, split)


def _choose_policy(row: Row, run: StudyRun) -> str:
    """Return whose answers fill a row: a published checkpoint is the policy that it stands for."""
    known = {} if run.checkpoint is None else {"prompt": "", CHECKPOINTS[run.checkpoint]: "prompt"}
    return known.get(row.policy, row.policy)


def _make_arm(row: Row, group: Sequence[Measured], others: Sequence[Measured], split: str) -> Arm:
    shown = {one.seed: one for one in reversed(group)}
    found = [one for other in others for one in find_unlike([group[0].facts, other.facts], split)]
    settings_first = sorted(found, key=lambda one: one.aspect != _SETTING)
    told = dict.fromkeys(_tell(one, group[0].facts.name) for one in settings_first)
    runs = tuple(sorted(shown.values(), key=lambda one: one.seed))
    repeated = tuple(one for one in group if one not in runs)
    return Arm(row, runs, repeated, tuple(told))


def _tell(found: Difference, name: str) -> str:
    """Return ``key value`` of one side of a difference; of what is no setting, what it is."""
    if found.aspect == _SETTING:
        return f"{found.key} {found.values.get(name)}"
    return found.name
