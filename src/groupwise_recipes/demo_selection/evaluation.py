"""Evaluation: cells are filled by asking a frozen answerer with the lists that systems choose.

Where it was stopped it goes on by whole cells. What a cell has stays if the same list would be
chosen today; with a cache (see ``Answerer``) a list that several epochs or runs choose is asked
once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from groupwise.core import ConfigError, DataError, Example, RunError, describe_unknown, digest_json
from groupwise.inference.stream import ReportStream
from groupwise_recipes.demo_selection.asking import Answerer, List, Result
from groupwise_recipes.demo_selection.candidates import Recording
from groupwise_recipes.demo_selection.cells import (
    FACTS,
    Cell,
    CellRow,
    EvaluationFacts,
    Subsets,
    read_cell,
    read_facts,
    read_subsets,
    write_cell,
    write_facts,
    write_subsets,
)
from groupwise_recipes.demo_selection.choosing import (
    BASELINES,
    Baseline,
    PooledQueries,
    choose_by_baseline,
    choose_by_selector,
    reverse_lists,
)
from groupwise_recipes.demo_selection.conditions import (
    SAME_IN_EVALUATION,
    digest_items,
    find_differences,
)
from groupwise_recipes.demo_selection.pointwise import POINTWISE, choose_by_pointwise
from groupwise_recipes.demo_selection.recording import RecordingSettings, draw_lists
from groupwise_recipes.demo_selection.selector import PointerSelector

ORACLE = "oracle"
"""Upper bound, no system: the best of the lists that a recording would try, found by asking them
and looking at the answers of the test items."""
REVERSED = "_reversed"
"""Suffix of a system whose lists are turned round."""


@dataclass(frozen=True)
class Evaluator:
    """Fills the cells of an evaluation.

    Attributes:
        folder: of the evaluation.
        answerer: is asked.
        asked: test items in the order of their split, with pools drawn as in training.
        trainings: folders with ``epoch-N.safetensors`` by system, ``rce`` and ``grpo``.
        recorder: the selector whose lists the oracle tries; None: there is no oracle.
        pointwise: weights of the rival that scores each candidate alone, shape [d]; None: there is
            no such system.
        recording: how the oracle draws them, at the number of shots of the cell.
        seed: of random lists and of the oracle's.
    """

    folder: Path
    answerer: Answerer
    asked: PooledQueries
    trainings: Mapping[str, Path]
    recorder: PointerSelector | None = None
    pointwise: torch.Tensor | None = None
    recording: RecordingSettings = field(default_factory=RecordingSettings)
    seed: int = 0

    def evaluate(
        self,
        cell: Cell,
        ids: Iterable[str] | None = None,
        *,
        report_progress: ReportStream | None = None,
    ) -> tuple[CellRow, ...]:
        """Fill a cell and return its rows, in the order of the test items.

        Rows that are there stay, but failed ones and those of other lists.
        """
        lists = self.list_tried(cell)
        rows = {
            row.id: row
            for row in read_cell(self.folder, cell)
            if row.accuracy is not None and row.demos in lists.get(row.id, ())
        }
        wanted = set(lists) if ids is None else set(ids)
        if not wanted <= lists.keys():
            raise DataError("an item is no test item", got=sorted(wanted - lists.keys())[0])
        queries = [one for one in self.asked.queries if one.id in wanted - rows.keys()]
        results = self.answerer.ask(
            ((one, lists[one.id]) for one in queries), report_progress=report_progress
        )
        for query, found in zip(queries, results, strict=True):
            rows[query.id] = _take_best(query, found)
        ordered = tuple(rows[one.id] for one in self.asked.queries if one.id in rows)
        write_cell(self.folder, cell, ordered)
        return ordered

    def list_tried(self, cell: Cell) -> dict[str, list[List]]:
        """Return the lists that are asked for each test item: one, but of the oracle."""
        ids = self.asked.features.ids
        if cell.system == ORACLE:
            return self._list_oracle(cell.shots)
        chosen = self.choose(cell)
        return {one: [demos] for one, demos in zip(ids, chosen, strict=True)}

    def choose(self, cell: Cell) -> list[List]:
        """Return the list that a system chooses for each test item."""
        system = cell.system.removesuffix(REVERSED)
        baseline: Baseline | None = next((one for one in BASELINES if one == system), None)
        if system == POINTWISE and self.pointwise is not None:
            chosen = choose_by_pointwise(self.pointwise, self.asked, num_shots=cell.shots)
        elif baseline is None:
            selector = self._load(system, cell.epoch)
            chosen = choose_by_selector(selector, self.asked, num_shots=cell.shots)
        else:
            chosen = choose_by_baseline(baseline, self.asked, num_shots=cell.shots, seed=self.seed)
        return reverse_lists(chosen) if cell.system.endswith(REVERSED) else chosen

    def _load(self, system: str, epoch: int | None) -> PointerSelector:
        if system not in self.trainings:
            rivals = [] if self.pointwise is None else [POINTWISE]
            known = [*BASELINES, *rivals, ORACLE, *self.trainings]
            raise ConfigError(describe_unknown("system", system, known))
        if epoch is None:
            raise ConfigError(f"the system {system} needs the epoch of its training")
        return PointerSelector.load(self.trainings[system] / f"epoch-{epoch}.safetensors")

    def _list_oracle(self, num_shots: int) -> dict[str, list[List]]:
        if self.recorder is None:
            raise ConfigError("the oracle needs the selector whose lists it tries")
        settings = self.recording.model_copy(update={"num_shots": num_shots})
        drawn = draw_lists(self.recorder, self.asked, settings, seed=self.seed)
        return {
            one: [tuple(map(str, candidate.ids)) for candidate in candidates]
            for one, candidates in drawn.candidates.items()
        }


def plan_cells(
    shots: Sequence[int],
    *,
    epochs: Mapping[str, Iterable[int]],
    systems: Iterable[str] = (*BASELINES, ORACLE),
) -> Iterator[Cell]:
    """Yield the cells of an evaluation."""
    for system in systems:
        for number in (0,) if system == "none" else shots:
            yield Cell(system, number)
    for system, numbers in epochs.items():
        for epoch in numbers:
            for number in shots:
                yield Cell(system, number, epoch)


def describe_evaluation(
    recording: Recording, *, answerer: Answerer, asked: PooledQueries
) -> dict[str, str | None]:
    """Return the conditions of an evaluation by the names of ``COMPARED``."""
    above = recording.conditions.correct_above
    ours = answerer.describe(sampler=asked.pools.digest, correct_above=above).describe()
    found = find_differences(recording.describe(), ours, names=SAME_IN_EVALUATION)
    if found:
        raise RunError(
            "selectors cannot be evaluated under other conditions than their recording's",
            got=" ".join(found.values()),
            fix="evaluate them as they were trained, or record candidates anew",
        )
    ids = set(asked.features.ids)
    seen = ids & ({query.query_id for query in recording.queries} | set(asked.train.ids))
    if seen:
        raise DataError(f"{len(seen)} test items were trained on", got=sorted(seen)[0])
    pools = sorted((one, asked.name_pool(one)) for one in ids)
    shared = {"data": recording.digest, "items": digest_items(ids), "pools": digest_json(pools)}
    return {**shared, **ours}


def begin_evaluation(folder: Path, facts: EvaluationFacts, subsets: Subsets) -> None:
    """Write what all cells share, or check that a folder was begun with it."""
    if (folder / "subsets.json").exists():
        former = read_facts(folder), read_subsets(folder)
        for name, ours, theirs in zip(
            (FACTS, "subsets.json"), (facts, subsets), former, strict=True
        ):
            if ours != theirs:
                raise RunError(
                    f"{folder / name} says that it was begun otherwise",
                    fix="evaluate into a new folder",
                )
        return
    write_facts(folder, facts)
    write_subsets(folder, subsets)


def _take_best(query: Example, found: Mapping[List, Result]) -> CellRow:
    """Return the row of the first list that earned most; a failed one earned less than nothing."""
    demos, result = max(
        found.items(), key=lambda pair: -1.0 if pair[1].accuracy is None else pair[1].accuracy
    )
    return CellRow(query.id, query.cluster, demos, result.answer, result.accuracy)
