"""What is said of methods, as data: numbers and named statements, without words or layout."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from groupwise.evaluation.comparison.material import Gate
from groupwise.evaluation.looks import state_most_looks
from groupwise.evaluation.methods import MethodDifference, compare_methods
from groupwise.evaluation.page import LEVELS, Statement
from groupwise.evaluation.paired import compare_items
from groupwise.evaluation.policies import Policies
from groupwise.evaluation.predictions import Items, Measure
from groupwise.evaluation.statistics import adjust_holm

CLEAR_P = 0.05
FEW_CARRYING = 20
_NUM_RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Repetition:
    """One run of a method: its seed, its folder and the items it is measured by."""

    seed: int
    folder: Path
    items: Items


@dataclass(frozen=True, slots=True)
class Method:
    """A policy over several runs, in the order of their seeds."""

    name: str
    policy: str
    runs: tuple[Repetition, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each run."""
        return tuple(run.seed for run in self.runs)

    @property
    def items(self) -> list[Items]:
        """The items of each run."""
        return [run.items for run in self.runs]


@dataclass(frozen=True, slots=True)
class MethodMaterial:
    """What a report of methods is built from.

    ``pairs`` name those that are compared; ``choice`` says on which split a sweep's settings are
    chosen; ``inapplicable`` names the policies that the measure is none of.
    """

    title: str
    measure: Measure
    split: str
    methods: tuple[Method, ...]
    pairs: tuple[tuple[str, str], ...]
    gate: Gate = field(default_factory=Gate)
    policies: Policies = field(default_factory=Policies)
    choice: tuple[Statement, ...] = ()
    inapplicable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method's values: by seed, their mean and their range, all in [0, 1]."""

    name: str
    policy: str
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    folders: tuple[str, ...]
    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Alone:
    """What one run of each side would have said of a pair, first minus second, with p < 0.05."""

    seed: int
    difference: float
    p_value: float


@dataclass(frozen=True, slots=True)
class MethodPair:
    """Two methods: first minus second.

    Attributes:
        first: the method whose values count positive.
        second: the other.
        found: the difference over seeds.
        p_value_holm: adjusted for all pairs of the report; None without an interval.
        alone: the seeds whose runs alone would have shown a difference that the method does not
            have: first of the other sign, then of the same where an interval holds 0.
    """

    first: str
    second: str
    found: MethodDifference
    p_value_holm: float | None = None
    alone: tuple[Alone, ...] = ()

    @property
    def is_clear(self) -> bool:
        """Whether it survives Holm's method."""
        return self.p_value_holm is not None and self.p_value_holm < CLEAR_P


@dataclass(frozen=True, slots=True)
class MethodReport:
    """Everything a report of methods says.

    Attributes:
        title: what is compared.
        measure: by what.
        split: on which items.
        is_fair: whether the sides differ in nothing but what is compared.
        methods: every method with its seeds.
        pairs: every difference.
        notices: what must be known first.
        findings: what the numbers say.
        policies: of the runs; none where sides are compared.
        inapplicable: the policies that the measure is none of.
    """

    title: str
    measure: Measure
    split: str
    is_fair: bool
    methods: tuple[MethodRow, ...]
    pairs: tuple[MethodPair, ...]
    notices: tuple[Statement, ...]
    findings: tuple[Statement, ...]
    policies: Policies = field(default_factory=Policies)
    inapplicable: tuple[str, ...] = ()


def build_methods(material: MethodMaterial) -> MethodReport:
    """Build a report; the same material gives the same report.

    Raises:
        EvaluationError: if runs of one seed answered the same items with other labels.
    """
    by_name = {one.name: one for one in material.methods}
    pairs = _adjust([_compare(by_name[one], by_name[two]) for one, two in material.pairs])
    return MethodReport(
        title=material.title,
        measure=material.measure,
        split=material.split,
        is_fair=material.gate.is_fair,
        methods=tuple(map(_describe, material.methods)),
        pairs=pairs,
        notices=_collect_notices(material, pairs),
        findings=tuple(_state_findings(material, pairs)),
        policies=material.policies,
        inapplicable=material.inapplicable,
    )


def _describe(method: Method) -> MethodRow:
    values = tuple(one.value for one in method.items)
    folders = tuple(str(run.folder) for run in method.runs)
    ends = fmean(values), min(values), max(values)
    return MethodRow(method.name, method.policy, method.seeds, values, folders, *ends)


def _compare(first: Method, second: Method) -> MethodPair:
    """Return the difference, paired where both have the same seeds, each on the same items."""
    both = zip(first.items, second.items, strict=False)
    is_paired = first.seeds == second.seeds and all(one.ids == two.ids for one, two in both)
    found = compare_methods(second.items, first.items, is_paired=is_paired)
    alone = tuple(_test_alone(first, second)) if is_paired and len(first.runs) > 1 else ()
    return MethodPair(first.name, second.name, found, alone=alone)


def _test_alone(first: Method, second: Method) -> Iterator[Alone]:
    for one, two in zip(first.runs, second.runs, strict=True):
        found = compare_items(two.items, one.items, num_resamples=_NUM_RESAMPLES)
        if found.p_value_clustered < CLEAR_P:
            yield Alone(one.seed, found.difference, found.p_value_clustered)


def _adjust(pairs: Sequence[MethodPair]) -> tuple[MethodPair, ...]:
    """Return the pairs with Holm's p-values, and alone only what contradicts the method."""
    tested = [one.found.p_value for one in pairs if one.found.p_value is not None]
    adjusted = iter(adjust_holm(tested))
    found = [
        replace(one, p_value_holm=None if one.found.p_value is None else next(adjusted))
        for one in pairs
    ]
    return tuple(replace(one, alone=tuple(_list_contradicting(one))) for one in found)


def _list_contradicting(pair: MethodPair) -> list[Alone]:
    """Return what a clear method does not say: first the other sign, then what is surest."""
    alike = [one.difference * pair.found.estimate > 0 for one in pair.alone]
    found = sorted(zip(alike, pair.alone, strict=True), key=lambda one: (one[0], one[1].p_value))
    can_be_alike = pair.p_value_holm is not None and not pair.is_clear
    return [one for is_alike, one in found if can_be_alike or not is_alike]


def _collect_notices(
    material: MethodMaterial, pairs: Sequence[MethodPair]
) -> tuple[Statement, ...]:
    """Return what one run alone would have said, the gate's notices, limits and looks."""
    alone = [_tell_alone(pair, pair.alone[0]) for pair in pairs if pair.alone]
    limits = {one.kind: one for pair in pairs for one in _note_limits(pair)}
    runs = [run for method in material.methods for run in method.runs]
    looks = state_most_looks((run.folder, run.items.split_digest) for run in runs)
    found = (*material.gate.notices, *limits.values(), *material.choice, *looks)
    rest = sorted(found, key=lambda one: LEVELS.index(one.level))
    return (*alone, *rest)


def _tell_alone(pair: MethodPair, one: Alone) -> Statement:
    values = _describe_pair(pair) | {"seed": one.seed, "alone": one.difference, "p": one.p_value}
    if pair.found.low is None:
        return Statement("notice.seed_alone_points", values, "warning")
    return Statement("notice.seed_alone", values, "warning")


def _describe_pair(pair: MethodPair) -> dict[str, Any]:
    found = pair.found
    return {
        "first": pair.first,
        "second": pair.second,
        "difference": found.estimate,
        "ends": (found.low, found.high),
        "p_method": pair.p_value_holm,
        "num": min(found.num_seeds_a, found.num_seeds_b),
    }


def _note_limits(pair: MethodPair) -> Iterator[Statement]:
    found = pair.found
    values: Mapping[str, Any] = _describe_pair(pair) | {"num_clusters": found.num_clusters}
    if found.limit == "few_seeds":
        is_single = values["num"] == 1
        kind = "notice.methods_one_seed" if is_single else "notice.methods_few_seeds"
        yield Statement(kind, values, "warning")
    elif found.limit == "overlapping":
        yield Statement("notice.methods_overlapping", values, "warning")
    elif found.limit == "one_cluster":
        yield Statement("notice.methods_one_cluster", values, "warning")
    if found.design == "nested" and not found.limit:
        yield Statement("notice.methods_nested", values)
    if found.num_carrying is not None and found.num_carrying < FEW_CARRYING:
        carrying = {"num_carrying": round(found.num_carrying)}
        yield Statement("notice.methods_carrying", {**values, **carrying}, "warning")


def _state_findings(material: MethodMaterial, pairs: Sequence[MethodPair]) -> Iterator[Statement]:
    if not material.gate.is_fair:
        yield Statement("finding.confounded")
    for pair in pairs:
        values = _describe_pair(pair) | {"measure": material.measure}
        if pair.found.low is None:
            yield Statement("finding.methods_points", values)
            continue
        is_first = material.measure.sign * pair.found.estimate > 0
        better = {"better": pair.first if is_first else pair.second}
        kind = "finding.methods_clear" if pair.is_clear else "finding.methods_unclear"
        yield Statement(kind, values | better)
        if not pair.is_clear:
            yield _tell_power(pair)


def _tell_power(pair: MethodPair) -> Statement:
    seeds, items = pair.found.seeds_needed, pair.found.items_needed
    values = {"first": pair.first, "second": pair.second, "seeds": seeds, "items": items}
    if seeds is None:
        return Statement("finding.methods_no_power", values)
    if items is None:
        return Statement("finding.methods_seeds_needed", values)
    return Statement("finding.methods_needed", values)
