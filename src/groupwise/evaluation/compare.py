"""Comparisons of the systems of a table of results: differences, notices, a recommendation.

Two systems are subtracted cell by cell, first minus second: items are paired where each side is one
run; seeds and clusters are drawn where a side is several; Holm's method is over all differences.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from statistics import fmean
from typing import Any, Literal

from groupwise.core import digest_json
from groupwise.evaluation.fairness import find_same_axes
from groupwise.evaluation.metrics import PairedComparison, compare_items
from groupwise.evaluation.predictions import find_constant
from groupwise.evaluation.report.phrases import LEVELS, Statement
from groupwise.evaluation.result_table import Coordinates, Result, ResultTable
from groupwise.evaluation.statistics import (
    FEW_CARRYING,
    MAX_INVALID_RATE,
    MIN_CLUSTERS,
    MIN_ITEMS,
    NUM_RESAMPLES,
    SIGNIFICANCE,
    MethodDifference,
    adjust_holm,
    compare_methods,
)

SAME = 1e-12
MAX_COMPARISONS, MANY_COMPARISONS, FEWER_RESAMPLES, RESAMPLES_ALONE = 200, 20, 1_999, 2_000
MAX_FAILED = 5


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference of two systems in one cell, first minus second.

    It is None where ``why_none`` says why. The test, whose b is the first system, draws clusters of
    items, or seeds and clusters where a system has several; ``p_holm`` is its ``p``, adjusted for
    all differences. ``alone`` are seed, difference and p-value of runs that alone would have said
    one (p < 0.05): first those of the other sign, then the smallest p.
    """

    cell: Coordinates
    difference: float | None
    why_none: Literal["", "missing", "inapplicable", "other_items"] = ""
    test: PairedComparison | MethodDifference | None = None
    p: float | None = None
    p_holm: float | None = None
    alone: tuple[tuple[int, float, float], ...] = ()

    @property
    def is_clear(self) -> bool:
        """Whether it survives Holm's method."""
        return self.p_holm is not None and self.p_holm < SIGNIFICANCE

    @property
    def ends(self) -> tuple[float, float] | None:
        """The 95 % interval; None where there is none."""
        if self.test is None or self.test.low is None or self.test.high is None:
            return None
        return self.test.low, self.test.high

    def state_interval(self) -> Statement | str:
        """Return its interval and p as a statement; empty without one."""
        if self.ends is None:
            return ""
        values: dict[str, Any] = {"ends": self.ends, "p": self.p_holm}
        if not isinstance(self.test, MethodDifference):
            return Statement("interval.items", values)
        num = min(self.test.num_seeds_a, self.test.num_seeds_b)
        return Statement("interval.methods", values | {"num": num})


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems, and in which cells which of them is better."""

    first: str
    second: str
    gaps: tuple[Gap, ...]
    mean: float | None
    counts: tuple[int, int, int]  # cells in which the first is better, worse and equal
    num_tested: int
    clear: tuple[int, int]  # cells, better and worse, that survive Holm's method


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """What a comparison says, but for words; ``cells`` are the means over seeds.

    ``recommended`` is the system to take, with the evidence as ``reasons``; None: they are what
    stands against taking any.
    """

    table: ResultTable
    cells: tuple[Result, ...]
    pairs: tuple[Pair, ...]
    notices: tuple[Statement, ...]
    recommended: str | None
    reasons: tuple[Statement, ...]


def compare_results(
    table: ResultTable, *, pairs: Sequence[tuple[str, str]] | None = None
) -> Comparison:
    """Compare the systems of a table; the same table says the same.

    Without ``pairs`` policies of the same runs are compared with the last, methods with the first;
    of runs all pairs are, or each with the first where that is more than 200 differences. Other
    labels of the same items are an EvaluationError.
    """
    names, every = table.systems, list(combinations(table.systems, 2))
    if pairs is None and table.policies.listed:
        known = {one.system for one in table.results if one.state != "inapplicable"}
        last, *others = [name for name in reversed(names) if name in known]
        pairs = [(last, other) for other in others]
    elif pairs is None:
        is_much = table.is_of_methods or len(every) * len(table.cells) > MAX_COMPARISONS
        pairs = [(names[0], other) for other in names[1:]] if is_much else every
    num, sign, found = len(pairs) * len(table.cells), table.measure.sign, list[Pair]()
    num_resamples = NUM_RESAMPLES if num <= MANY_COMPARISONS else FEWER_RESAMPLES
    gaps = [[_subtract(table, pair, at, num_resamples) for at in table.cells] for pair in pairs]
    adjusted = iter(adjust_holm([gap.p for own in gaps for gap in own if gap.p is not None]))
    for pair, row in zip(pairs, gaps, strict=True):
        own = [gap if gap.p is None else replace(gap, p_holm=next(adjusted)) for gap in row]
        known = [gap.difference for gap in own if gap.difference is not None]
        signs = [sign * ((value > 0) - (value < 0)) for value in known]
        are_gains = [sign * (gap.difference or 0.0) > 0 for gap in own if gap.is_clear]
        mean = fmean(known) if known else None
        counts = signs.count(1), signs.count(-1), signs.count(0)
        num_tested = sum(gap.ends is not None for gap in own)
        clear = are_gains.count(True), are_gains.count(False)
        found.append(Pair(*pair, tuple(own), mean, counts, num_tested, clear))
    cells = tuple(table.summarize(*at) for at in product(names, table.cells))
    notices = [*table.notices, *_list_notices(table, cells, found)]
    notices.sort(key=lambda one: LEVELS.index(one.level))
    recommended, reasons = _recommend(table, cells, found)
    return Comparison(table, cells, tuple(found), tuple(notices), recommended, tuple(reasons))


def _subtract(
    table: ResultTable, pair: tuple[str, str], cell: Coordinates, num_resamples: int
) -> Gap:
    """Return the difference of two systems in a cell, without Holm's method."""
    ours, theirs = (table.select(name, cell) for name in pair)
    if not ours or not theirs:
        states = {table.summarize(name, cell).state for name in pair} - {"done"}
        return Gap(cell, None, "inapplicable" if states == {"inapplicable"} else "missing")
    seeds, others = ([one.seed for one in side] for side in (ours, theirs))
    is_paired = not table.is_of_methods or seeds == others
    for one, two in zip(ours, theirs, strict=False) if is_paired else ():
        a, b = one.items, two.items
        is_paired = is_paired and one.digest == two.digest
        is_paired = is_paired and (not a or not b or (a.ids, a.clusters) == (b.ids, b.clusters))
    items = [[one.items for one in side if one.items] for side in (ours, theirs)]
    if not is_paired and not (table.is_of_methods and all(items)):
        return Gap(cell, None, "other_items")
    one, two = (fmean(result.value or 0.0 for result in side) for side in (ours, theirs))
    gap = Gap(cell, 0.0 if abs(one - two) < SAME else one - two)
    if not all(items):
        return gap
    if not table.is_of_methods:
        single = compare_items(items[1][0], items[0][0], num_resamples=num_resamples)
        return replace(gap, test=single, p=single.p_value_clustered)
    alone: list[tuple[int, float, float]] = []
    for number, a, b in zip(seeds, *items, strict=True) if is_paired and ours[1:] else ():
        test = compare_items(b, a, num_resamples=RESAMPLES_ALONE)
        if test.p_value_clustered < SIGNIFICANCE:
            alone.append((number, test.difference, test.p_value_clustered))
    alone.sort(key=lambda one: (one[1] * (gap.difference or 0.0) > 0, one[2]))
    test = compare_methods(*reversed(items), is_paired=is_paired)
    return replace(gap, test=test, p=test.p_value, alone=tuple(alone))


def _recommend(
    table: ResultTable, cells: Sequence[Result], pairs: Sequence[Pair]
) -> tuple[str | None, list[Statement]]:
    """Return the system to take with the evidence, or every reason against taking one.

    Its difference to every other system survives Holm's method in one cell at least and in none
    against it, and the near end of its interval is on the better side of a baseline. What has seen
    the answers is never taken.
    """
    silent = [*dict.fromkeys(one.system for one in cells if one.state == "inapplicable")]
    other = {gap.cell for one in pairs for gap in one.gaps if gap.why_none == "other_items"}
    all_missing = {"num_missing": table.num_missing, "num_cells": len(table.results)}
    against: dict[str, tuple[object, dict[str, Any]]] = {
        "unfair": (table.is_fair is False, {}),
        "one_system": (len(table.systems) < 2, {}),
        "missing": (table.num_missing, all_missing),
        "inapplicable": (silent and not table.policies.listed, {"names": silent}),
        "other_items": (other, {"num_cells": len(other)}),
    }
    reasons = [Statement(f"reason.{kind}", one) for kind, (holds, one) in against.items() if holds]
    if reasons:
        return None, reasons
    sign = table.measure.sign
    means = {
        name: sign * fmean(one.value or 0.0 for one in cells if one.system == name)
        for name in table.systems
        if table.policies.find(name).kind != "bound" and name not in silent
    }
    best, *equals = [name for name in means if max(means.values()) - means[name] < SAME]
    if equals:
        return None, [Statement("reason.equal", {"names": [best, *equals]})]
    rivals = [x for x in pairs if best in (x.first, x.second) and {x.first, x.second} <= {*means}]
    if untold := len(means) - 1 - len(rivals):
        reasons.append(Statement("reason.not_compared", {"best": best, "num": untold}))
    for pair in rivals:
        better, worse = pair.clear if pair.first == best else pair.clear[::-1]
        if not better or worse:
            rival = pair.second if pair.first == best else pair.first
            reasons.append(Statement("reason.not_clear", {"best": best, "rival": rival}))
    evidence = [Statement("evidence.fair")] if table.is_fair else []
    ends = [one.low if sign > 0 else one.high for one in cells if one.system == best]
    known = [one.baseline for one in table.results if one.system == best]
    near, base = ([one for one in found if one is not None] for found in (ends, known))
    if len(base) < len(known) or (len(near) < len(ends) and not reasons):
        reasons.append(Statement("reason.no_baseline"))
    elif len(near) == len(ends):
        values = {"best": best, "end": fmean(near), "baseline": fmean(base)}
        evidence.append(Statement("evidence.baseline", values))
        if sign * (values["end"] - values["baseline"]) <= 0:
            reasons.append(Statement("reason.not_above_baseline", values))
    return (None, reasons) if reasons else (best, evidence)


def _list_notices(
    table: ResultTable, cells: Sequence[Result], pairs: Sequence[Pair]
) -> Iterator[Statement]:
    """Yield what must be known before any number, beside what is a reason against all systems."""
    limits: dict[str, Statement] = {}
    for pair, gap in [(one, gap) for one in pairs for gap in one.gaps]:
        carrying = None if (test := gap.test) is None else test.num_carrying
        is_of_methods = isinstance(test, MethodDifference)
        if carrying is not None and carrying < FEW_CARRYING and (is_of_methods or gap.is_clear):
            kind = "carrying" if is_of_methods else "rests_on_few"
            limits[kind] = Statement(f"notice.{kind}", {"num_carrying": round(carrying)}, "warning")
        if not isinstance(test, MethodDifference):
            continue
        num = min(test.num_seeds_a, test.num_seeds_b)
        for seed, difference, p in gap.alone[:1]:  # only where the methods do not say the same
            if difference * (gap.difference or 0.0) > 0 and (gap.is_clear or gap.ends is None):
                continue
            values = {"first": pair.first, "second": pair.second, "seed": seed, "num": num, "p": p}
            values |= {"alone": difference, "difference": gap.difference}
            values |= {"interval": gap.state_interval()}
            yield Statement("notice.seed_alone", values, "warning")
        if test.limit not in ("", "no_spread"):
            limits[test.limit] = Statement(f"notice.{test.limit}", {"num": num}, "warning")
        elif test.design == "nested":
            limits["own_items"] = Statement("notice.own_items")
    yield from limits.values()
    if table.num_missing:
        values = {"num_missing": table.num_missing, "num_cells": len(table.results)}
        yield Statement("notice.missing", values, "warning")
    for one in [one for one in table.results if one.state == "failed"][:MAX_FAILED]:
        values = {"name": one.system, "at": one.cell, "error": one.error}
        yield Statement("notice.failed", values, "warning")
    for name in table.systems:
        own = [[*x.answers.values()] for x in table.results if x.system == name and x.answers]
        constant = [answer for answer in map(find_constant, own) if answer is not None]
        if constant and not table.policies.is_baseline(name):  # some baselines are no more
            values = {"name": name, "answers": sorted(set(constant)), "num": len(constant)}
            yield Statement("notice.constant", values | {"num_cells": len(own)}, "warning")
        worst = max((x for x in cells if x.system == name), key=lambda one: one.invalid_rate or 0.0)
        if (worst.invalid_rate or 0.0) > MAX_INVALID_RATE:
            values = {"name": name, "rate": worst.invalid_rate, "at": worst.cell}
            yield Statement("notice.invalid", values, "warning")
    n = min((one.n for one in cells if one.n), default=MIN_ITEMS)
    clusters = min((one.num_clusters for one in cells if one.num_clusters), default=None)
    if n < MIN_ITEMS or (clusters or MIN_CLUSTERS) < MIN_CLUSTERS:
        told = Statement("run.in_clusters", {"num": clusters}) if clusters else ""
        values = {"n": n, "in_clusters": told, "num_cells": len(cells)}
        yield Statement("notice.small", values, "warning")
    for place, key in enumerate(table.axes):
        known = {(x.cell[place], frozenset(x.items.ids)) for x in table.results if x.items}
        sets = sorted({ids for _, ids in known}, key=len)
        if len(known) == len(sets) > 1 and all(a < b for a, b in pairwise(sets)):
            yield Statement("notice.nested", {"axis": key})
    keys = [table.system_axis, *table.axes, "seed"]
    same: list[tuple[dict[str, str], str | float | None]] = []
    for one in table.results if table.axes else ():
        at = one.system, *one.cell, str(one.seed if table.is_of_methods else "")
        rows = [[i, row.predicted, row.text] for i, row in sorted(one.answers.items())]
        same.append((dict(zip(keys, at, strict=True)), digest_json(rows) if rows else one.value))
    yield from find_same_axes(same)
