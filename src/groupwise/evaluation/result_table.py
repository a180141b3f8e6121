"""One table of results: whatever is measured of runs, seeds and sweeps.

A row is (system, run, seed, cell, split, item, measure, value). Rows that share all but the item
are one ``Result`` with their values as an array. Beside them stands what the fairness gate says of
the runs, and what they recorded of settings, data and training.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Any, Literal, Self

import numpy as np

from groupwise.evaluation.fairness import DifferenceKind
from groupwise.evaluation.methods import compare_methods
from groupwise.evaluation.predictions import ACCURACY, Items, Measure, Policies, Prediction
from groupwise.evaluation.report.page import Section
from groupwise.evaluation.report.phrases import Statement
from groupwise.evaluation.statistics import clustered_ratio

Coordinates = tuple[str, ...]
State = Literal["done", "failed", "running", "waiting", "inapplicable"]


@dataclass(frozen=True, slots=True)
class GridAxis:
    """One axis of the cells: a key, such as of the config, and its values."""

    key: str
    values: tuple[str, ...]

    @property
    def has_epochs(self) -> bool:
        """Whether its values are epochs, by its key."""
        return any(word in self.key.lower() for word in ("epoch", "checkpoint"))


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The rows of one system, run, seed and cell, or what several seeds come to.

    ``value`` is the mean of ``items`` in [0, 1], None unless it is done. ``baseline`` is the best
    value, on the same items, of a policy that does not see the whole task, or of always saying the
    commonest label; ``digest`` is of the items' ids and labels.
    """

    system: str
    cell: Coordinates = ()
    seed: int = 0
    state: State = "done"
    value: float | None = None
    low: float | None = None  # the 95 % interval of a summary
    high: float | None = None
    n: int | None = None  # of several seeds that with fewest, as the clusters
    num_clusters: int | None = None
    digest: str = ""
    items: Items | None = None
    answers: Mapping[str, Prediction] = field(default_factory=dict[str, Prediction])  # by item
    baseline: float | None = None
    policy: str = ""
    folder: str = ""
    error: str = ""
    invalid_rate: float | None = None
    seeds: tuple[tuple[int, float], ...] = ()  # with their values
    limit: str = ""  # why several have no interval, as of ``MethodDifference``

    @classmethod
    def of_items(cls, system: str, items: Items, **more: Any) -> Self:
        """Return the result that items come to; ``more`` are further fields."""
        known = {"n": len(items.ids), "num_clusters": len(set(items.clusters)), "items": items}
        return cls(system, value=items.value, digest=items.split_digest, **known, **more)


@dataclass(frozen=True, slots=True)
class SideRow:
    """A setting or data: a text per system, None where it was not recorded.

    ``kind`` is how the fairness gate classes the difference, None where there is none, and ``why``
    its sentence by language.
    """

    aspect: str
    key: str
    values: tuple[str | None, ...]
    kind: DifferenceKind | None = None
    why: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class EpochRow:
    """The last values logged in one epoch of a training step (0: the first), means over runs."""

    system: str
    step: str
    epoch: int
    values: Mapping[str, float]
    num_runs: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ResultTable:
    """The results of one measure on one split, and what stands beside them in a report."""

    results: tuple[Result, ...]  # in the order of systems and cells
    axes: tuple[GridAxis, ...] = ()  # of the cells
    title: str = ""
    measure: Measure = ACCURACY
    split: str = "test"
    system_axis: str = ""  # key whose values are the systems; empty for runs
    policies: Policies = field(default_factory=Policies)  # where systems are those of the same runs
    is_fair: bool | None = True  # whether nothing differs but what is compared; None: not asked
    sides: tuple[SideRow, ...] = ()  # settings and data, those that differ first
    notices: tuple[Statement, ...] = ()  # what is to be known of the sources
    epochs: tuple[EpochRow, ...] = ()
    sections: Mapping[str, tuple[Section, ...]] = field(  # what recipes add to their reports
        default_factory=dict[str, tuple[Section, ...]]
    )

    @cached_property
    def _by_place(self) -> dict[tuple[str, Coordinates], list[Result]]:
        found: dict[tuple[str, Coordinates], list[Result]] = {}
        for one in sorted(self.results, key=lambda one: one.seed):
            found.setdefault((one.system, one.cell), []).append(one)
        return found

    @cached_property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, in their order."""
        return tuple(dict.fromkeys(one.system for one in self.results))

    @cached_property
    def cells(self) -> tuple[Coordinates, ...]:
        """Places of the grid, in their order; one empty place without axes."""
        return tuple(dict.fromkeys(one.cell for one in self.results))

    @cached_property
    def is_of_methods(self) -> bool:
        """Whether a system has several seeds in a cell."""
        return any(len(found) > 1 for found in self._by_place.values())

    @property
    def num_missing(self) -> int:
        """How many results have not run, or failed."""
        return sum(one.value is None and one.state != "inapplicable" for one in self.results)

    def select(self, system: str, cell: Coordinates = ()) -> list[Result]:
        """Return the results of a system in a cell that have run, by seed."""
        found = self._by_place.get((system, cell), [])
        return [one for one in found if one.value is not None]

    def summarize(self, system: str, cell: Coordinates = ()) -> Result:
        """Return what the seeds of a system come to in a cell, without items.

        The 95 % interval of one seed draws clusters of items, that of three or more seeds and
        clusters.
        """
        done = self.select(system, cell)
        if not done:
            return self._by_place.get((system, cell), [Result(system, cell, state="waiting")])[0]
        low, high, limit = None, None, ""
        items = [one.items for one in done if one.items is not None]
        if items[1:]:  # The mean is a difference to always having 0.
            zeros = [replace(one, values=np.zeros_like(one.values)) for one in items]
            found = compare_methods(zeros, items, is_paired=True)
            limit = found.limit
            if found.low is not None and found.high is not None:
                low, high = max(0.0, found.low), min(1.0, found.high)
        elif items:  # A single cluster says nothing about others.
            ones = np.ones(len(items[0].ids))
            low, high = clustered_ratio(items[0].values, ones, items[0].clusters) or (0.0, 1.0)
        answers = [one.answers.values() for one in done if one.answers]
        rates = [fmean(row.predicted is None for row in rows) for rows in answers]
        return replace(
            done[0],
            value=fmean(one.value or 0.0 for one in done),
            low=low,
            high=high,
            n=min((one.n for one in done if one.n), default=None),
            num_clusters=min((one.num_clusters for one in done if one.num_clusters), default=None),
            digest=" ".join(sorted({one.digest for one in done})),
            items=None,
            answers={},
            invalid_rate=fmean(rates) if rates else None,
            seeds=tuple((one.seed, one.value or 0.0) for one in done),
            limit=limit,
        )
