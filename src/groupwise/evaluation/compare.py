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
from groupwise.evaluation.fairness import summarize_same
from groupwise.evaluation.gains import NUM_RESAMPLES
from groupwise.evaluation.items import DiscordantItem, list_discordant
from groupwise.evaluation.methods import MethodDifference, compare_methods
from groupwise.evaluation.page import LEVELS, Statement
from groupwise.evaluation.paired import PairedComparison, compare_items
from groupwise.evaluation.predictions import find_constant
from groupwise.evaluation.result_table import CellValue, Coordinates, Result, ResultTable
from groupwise.evaluation.significance import SIGNIFICANCE, adjust_holm

SAME = 1e-12
MAX_INVALID_RATE, MIN_ITEMS, MIN_CLUSTERS, FEW_CARRYING = 0.05, 100, 20, 20
MAX_COMPARISONS, MANY_COMPARISONS, FEWER_RESAMPLES, RESAMPLES_ALONE = 200, 20, 1_999, 2_000
MAX_DISCORDANT, MIN_DISCORDANT, MAX_FAILED = 20, 5, 5


@dataclass(frozen=True, slots=True)
class Gap:
    """The difference of two systems in one cell, first minus second.

    It is None where ``why_none`` says ``missing``, ``inapplicable`` or ``other_items``. The test,
    whose b is the first system, draws clusters of items, or seeds and clusters where a system has
    several; ``p_holm`` is adjusted for all differences. ``alone`` are seed, difference and p-value
    of runs that alone would have said (p < 0.05) what the methods do not: first the other sign.
    """

    cell: Coordinates
    difference: float | None
    why_none: Literal["", "missing", "inapplicable", "other_items"] = ""
    test: PairedComparison | MethodDifference | None = None
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


@dataclass(frozen=True, slots=True)
class AxisMean:
    """Mean difference over the cells with one value of an axis, and over how many of them.

    ``trend`` is its change from the first to the last epoch, where epochs are another axis and
    all of them have a difference in the same cells.
    """

    value: str
    mean: float | None
    num_compared: int
    num_cells: int
    trend: float | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems: ``counts`` are the cells in which the first is better, worse and equal.

    ``clear`` are those, better and worse, that survive Holm's method; ``best`` and ``worst`` are
    where the first gains and loses most. ``trends`` has, for an axis of epochs, the change from
    the first to the last. ``discordant`` are items of ``discordant_cell``, the tested cell that
    differs most; ``won``: on how many of all of them the first is better, and the second.
    """

    first: str
    second: str
    gaps: tuple[Gap, ...]
    mean: float | None
    counts: tuple[int, int, int]
    num_tested: int
    clear: tuple[int, int]
    best: Gap | None
    worst: Gap | None
    by_axis: tuple[tuple[AxisMean, ...], ...]
    trends: tuple[float | None, ...]
    discordant: tuple[DiscordantItem, ...] = ()
    discordant_cell: Coordinates = ()
    won: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Everything that a comparison says, but for words.

    ``recommended`` is the system to take, with the evidence as ``reasons``; None: what stands
    against taking any.
    """

    table: ResultTable
    cells: tuple[CellValue, ...]
    pairs: tuple[Pair, ...]
    notices: tuple[Statement, ...]
    recommended: str | None
    reasons: tuple[Statement, ...]

    def list_cells(self, system: str) -> list[CellValue]:
        """Return the cells of one system, in the order of the grid."""
        return [one for one in self.cells if one.system == system]


def compare_results(
    table: ResultTable, *, pairs: Sequence[tuple[str, str]] | None = None, seed: int = 0
) -> Comparison:
    """Compare the systems of a table; the same table gives the same comparison.

    Args:
        table: the results.
        pairs: systems to be subtracted; None: of methods each from the first, else all, or each
            from the first where that is more than 200 differences.
        seed: of the draws.

    Raises:
        EvaluationError: if runs answered the same items with other labels.
    """
    if pairs is None:
        pairs = list(combinations(table.systems, 2))
        if table.is_of_methods or len(pairs) * len(table.cells) > MAX_COMPARISONS:
            pairs = [(table.systems[0], other) for other in table.systems[1:]]
    gaps, num = _adjust(_subtract_all(table, pairs, seed)), len(table.cells)
    found = tuple(
        _join_gaps(table, pair, gaps[place * num : (place + 1) * num])
        for place, pair in enumerate(pairs)
    )
    cells = tuple(table.summarize(*at) for at in product(table.systems, table.cells))
    notices = _collect_notices(table, cells, found)
    recommended, reasons = _recommend(table, cells, found)
    return Comparison(table, cells, found, notices, recommended, tuple(reasons))


def _are_same_items(one: Result, two: Result) -> bool:
    """Whether two results are not known to be of other items, labels or clusters."""
    if any(a and b and a != b for a, b in ((one.digest, two.digest), (one.n, two.n))):
        return False
    a, b = one.items, two.items
    return a is None or b is None or (a.ids, a.clusters) == (b.ids, b.clusters)


def _subtract_all(table: ResultTable, pairs: Sequence[tuple[str, str]], seed: int) -> list[Gap]:
    """Return the gap of every pair and cell, in their order."""
    places = [(*pair, cell) for pair in pairs for cell in table.cells]
    sides = [(table.select(a, cell), table.select(b, cell)) for a, b, cell in places]
    num_tests = sum(
        bool(a and b) and a[0].items is not None and _are_same_items(a[0], b[0]) for a, b in sides
    )
    num_resamples = NUM_RESAMPLES if num_tests <= MANY_COMPARISONS else FEWER_RESAMPLES
    found: list[Gap] = []
    for (first, second, cell), (a, b) in zip(places, sides, strict=True):
        if not a or not b:
            states = [table.summarize(name, cell).state for name in (first, second)]
            missing = [state for state in states if state not in ("done", "inapplicable")]
            found.append(Gap(cell, None, "missing" if missing else "inapplicable"))
        elif table.is_of_methods:
            found.append(_subtract_methods(cell, a, b))
        elif not _are_same_items(a[0], b[0]):
            found.append(Gap(cell, None, "other_items"))
        else:
            test, (x, y) = None, (a[0].items, b[0].items)
            if x is not None and y is not None:
                test = compare_items(y, x, seed=seed, num_resamples=num_resamples)
            found.append(Gap(cell, _subtract(a, b), "", test))
    return found


def _subtract(first: Sequence[Result], second: Sequence[Result]) -> float:
    one, two = (fmean(result.value or 0.0 for result in side) for side in (first, second))
    return 0.0 if abs(one - two) < SAME else one - two


def _subtract_methods(cell: Coordinates, first: Sequence[Result], second: Sequence[Result]) -> Gap:
    """Return the gap of methods, paired where both have the same seeds, each on the same items."""
    have_same_seeds = [one.seed for one in first] == [one.seed for one in second]
    is_paired = have_same_seeds and all(map(_are_same_items, first, second))
    ours, theirs = ([one.items for one in side if one.items] for side in (first, second))
    if not ours or not theirs:
        if not is_paired:
            return Gap(cell, None, "other_items")
        return Gap(cell, _subtract(first, second))
    alone: list[tuple[int, float, float]] = []
    if is_paired and len(ours) > 1:
        for result, one, two in zip(first, ours, theirs, strict=True):
            found = compare_items(two, one, num_resamples=RESAMPLES_ALONE)
            if found.p_value_clustered < SIGNIFICANCE:
                alone.append((result.seed, found.difference, found.p_value_clustered))
    test = compare_methods(theirs, ours, is_paired=is_paired)
    return Gap(cell, _subtract(first, second), "", test, alone=tuple(alone))


def _adjust(gaps: Sequence[Gap]) -> list[Gap]:
    """Return the gaps with Holm's p-values, and alone only what contradicts the methods."""
    found: list[Gap] = []
    values = [
        one.test.p_value_clustered if isinstance(one.test, PairedComparison) else one.test.p_value
        for one in gaps
        if one.test is not None
    ]
    adjusted = iter(adjust_holm([value for value in values if value is not None]))
    for gap in gaps:
        if gap.ends is not None:
            gap = replace(gap, p_holm=next(adjusted))
        can_be_alike = gap.p_holm is not None and not gap.is_clear
        told = [(one[1] * (gap.difference or 0.0) > 0, one) for one in gap.alone]
        told.sort(key=lambda one: (one[0], one[1][2]))
        kept = tuple(one for is_alike, one in told if can_be_alike or not is_alike)
        found.append(replace(gap, alone=kept))
    return found


def _join_gaps(table: ResultTable, pair: tuple[str, str], gaps: Sequence[Gap]) -> Pair:
    measure = table.measure
    known = [gap for gap in gaps if gap.difference is not None]

    def measure_gain(gap: Gap) -> float:
        return measure.sign * (gap.difference or 0.0)

    gains, clear = map(measure_gain, known), [measure_gain(g) for g in known if g.is_clear]
    signs = [(gain > 0) - (gain < 0) for gain in gains]
    epochs = next((place for place, axis in enumerate(table.axes) if axis.has_epochs), None)
    by_axis: list[tuple[AxisMean, ...]] = []
    for place, axis in enumerate(table.axes):
        rows: list[AxisMean] = []
        for value in axis.values:
            here = [gap for gap in gaps if gap.cell[place] == value]
            values = [gap.difference for gap in here if gap.difference is not None]
            trend = None if epochs == place else _find_trend(here, epochs)
            mean = fmean(values) if values else None
            rows.append(AxisMean(value, mean, len(values), len(here), trend))
        by_axis.append(tuple(rows))
    found = Pair(
        *pair,
        gaps=tuple(gaps),
        mean=fmean(gap.difference or 0.0 for gap in known) if known else None,
        counts=(signs.count(1), signs.count(-1), signs.count(0)),
        num_tested=sum(gap.ends is not None for gap in gaps),
        clear=(sum(gain > 0 for gain in clear), sum(gain < 0 for gain in clear)),
        best=max(known, key=measure_gain, default=None),
        worst=min(known, key=measure_gain, default=None),
        by_axis=tuple(by_axis),
        trends=tuple(
            _find_trend(gaps, epochs) if epochs == place else None
            for place in range(len(table.axes))
        ),
    )
    tested = [gap for gap in known if isinstance(gap.test, PairedComparison)]
    if not tested:
        return found
    cell = max(tested, key=lambda gap: abs(gap.difference or 0.0)).cell
    (one,), (two,) = (table.select(name, cell) for name in pair)
    assert one.items is not None
    assert two.items is not None
    unlike = list_discordant(one.items, two.items)
    num_shown = max(MIN_DISCORDANT, MAX_DISCORDANT // (len(table.systems) - 1))
    shown = [
        replace(
            item,
            task=str(one.answers[item.id].fields.get("task") or "")
            if item.id in one.answers
            else "",
            answer_a=(item.id in one.answers and one.answers[item.id].text) or item.answer_a,
            answer_b=(item.id in two.answers and two.answers[item.id].text) or item.answer_b,
        )
        for item in unlike[:num_shown]
    ]
    gains = [measure.sign * (item.value_a - item.value_b) for item in unlike]
    won = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains), len(one.items.ids)
    return replace(found, discordant=tuple(shown), discordant_cell=cell, won=won)


def _find_trend(gaps: Sequence[Gap], epochs: int | None) -> float | None:
    """Return the mean difference in the last epoch minus that in the first.

    None: there are no epochs (``epochs`` is their place in coordinates), or not the same cells.
    """
    if epochs is None:
        return None
    found: dict[str, dict[Coordinates, float]] = {}
    for gap in gaps:
        own = found.setdefault(gap.cell[epochs], {})
        if gap.difference is not None:
            own[gap.cell[:epochs] + gap.cell[epochs + 1 :]] = gap.difference
    first, *others = found.values()
    if not first or not others or any(one.keys() != first.keys() for one in others):
        return None
    return fmean(others[-1].values()) - fmean(first.values())


def _recommend(
    table: ResultTable, cells: Sequence[CellValue], pairs: Sequence[Pair]
) -> tuple[str | None, list[Statement]]:
    """Return the system to take with the evidence, or every reason against taking one.

    It takes a fair comparison, every cell run on the same items, a difference to every other system
    that survives Holm's method in one cell at least and in none against it, and the near end of
    its interval on the better side of a baseline. What has seen the answers is never taken.
    """
    sign, num_cells = table.measure.sign, len(table.results)
    missing = sum(one.value is None and one.state != "inapplicable" for one in table.results)
    silent = [*dict.fromkeys(one.system for one in cells if one.state == "inapplicable")]
    other = {gap.cell for one in pairs for gap in one.gaps if gap.why_none == "other_items"}
    facts: dict[str, tuple[object, dict[str, Any]]] = {
        "unfair": (table.is_fair is False, {}),
        "one_system": (len(table.systems) < 2, {}),
        "missing": (missing, {"num_missing": missing, "num_cells": num_cells}),
        "inapplicable": (silent, {"names": silent}),
        "no_items": (all(one.items is None for one in table.results), {}),
        "other_items": (other, {"num_cells": len(other)}),
    }
    reasons = [
        Statement(f"reason.{kind}", values) for kind, (holds, values) in facts.items() if holds
    ]
    if reasons:
        return None, reasons
    bounds = {name for name in table.systems if table.policies.find(name).kind == "bound"}
    means = {
        name: sign * fmean(one.value or 0.0 for one in cells if one.system == name)
        for name in table.systems
        if name not in bounds
    }
    best, *equals = [name for name in means if max(means.values()) - means[name] < SAME]
    if equals:
        return None, [Statement("reason.equal", {"names": [best, *equals]})]
    # Each rival with its pair, and 1 if the best is its first, else -1.
    rivals = [
        (one.second if one.first == best else one.first, one, 1 if one.first == best else -1)
        for one in pairs
        if best in (one.first, one.second) and not bounds & {one.first, one.second}
    ]
    evidence: list[Statement] = []
    untold = len(means) - 1 - len(rivals)
    if untold:
        reasons.append(Statement("reason.not_compared", {"best": best, "num": untold}))
    for rival, pair, side in rivals:
        better, worse = pair.clear[::side]
        values = {"best": best, "rival": rival, "num_cells": len(pair.gaps)}
        if not better:
            reasons.append(Statement("reason.not_clear", values))
        elif worse:
            reasons.append(Statement("reason.mixed", values | {"better": better, "worse": worse}))
        values |= {"mean": side * (pair.mean or 0.0), "num_clear": better}
        if len(pair.gaps) == 1 and pair.gaps[0].ends and pair.gaps[0].test:
            test, ends = pair.gaps[0].test, sorted(side * end for end in pair.gaps[0].ends)
            n = test.n if isinstance(test, PairedComparison) else test.num_items
            values |= {"low": ends[0], "high": ends[1], "p": pair.gaps[0].p_holm, "n": n}
            evidence.append(Statement("evidence.single", values))
        else:
            evidence.append(Statement("evidence.grid", values))
    if table.is_fair:
        evidence.append(Statement("evidence.fair"))
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


def _collect_notices(
    table: ResultTable, cells: Sequence[CellValue], pairs: Sequence[Pair]
) -> tuple[Statement, ...]:
    """Return what must be known before any number: errors, then warnings, then notes."""
    found = [*_note_pairs(pairs), *table.notices, *_note_results(table), *_note_cells(table, cells)]
    return tuple(sorted(found, key=lambda one: LEVELS.index(one.level)))


def _note_pairs(pairs: Sequence[Pair]) -> Iterator[Statement]:
    """Say what one run alone would have said, what has other items, and what limits methods."""
    limits: dict[str, Statement] = {}
    for pair in pairs:
        named = {"first": pair.first, "second": pair.second}
        num_other = sum(gap.why_none == "other_items" for gap in pair.gaps)
        if num_other and len(pair.gaps) > 1:  # of one cell the fairness gate says it
            yield Statement("notice.other_items", named | {"num_cells": num_other}, "error")
        for gap in pair.gaps:
            test = gap.test
            if not isinstance(test, MethodDifference):
                continue
            num = min(test.num_seeds_a, test.num_seeds_b)
            if gap.alone:
                seed, difference, p = gap.alone[0]
                values = named | {"seed": seed, "alone": difference, "p": p, "num": num}
                values |= {"difference": gap.difference, "ends": gap.ends, "p_method": gap.p_holm}
                points = "_points" if gap.ends is None else ""
                yield Statement(f"notice.seed_alone{points}", values, "warning")
            kind = {"few_seeds": "one_seed" if num == 1 else "few_seeds", "no_spread": ""}
            if told := kind.get(test.limit, test.limit):
                limits[told] = Statement(f"notice.methods_{told}", {"num": num}, "warning")
            elif test.design == "nested":
                limits["nested"] = Statement("notice.methods_nested")
            if test.num_carrying is not None and test.num_carrying < FEW_CARRYING:
                values = {"num_carrying": round(test.num_carrying)}
                limits["carrying"] = Statement("notice.methods_carrying", values, "warning")
    yield from limits.values()


def _note_results(table: ResultTable) -> Iterator[Statement]:
    """Say what is missing, constant, nested, or the same along an axis."""
    failed = [one for one in table.results if one.state == "failed"]
    for one in failed[:MAX_FAILED]:
        values = {"name": one.system, "at": one.cell, "error": one.error}
        yield Statement("notice.failed", values, "warning")
    missing = sum(one.value is None and one.state != "inapplicable" for one in table.results)
    if missing:
        values = {"num_missing": missing, "num_cells": len(table.results)}
        yield Statement("notice.missing", values | {"num_failed": len(failed)}, "warning")
    done = [one for one in table.results if one.value is not None]
    if done and all(one.items is None for one in done):
        yield Statement("notice.no_items", {}, "warning")
    for name in table.systems:
        own = [[*one.answers.values()] for one in done if one.system == name and one.answers]
        if table.policies.is_baseline(name) or not own:
            continue  # one answer is what some baselines are
        constant = [answer for answer in map(find_constant, own) if answer is not None]
        values = {"name": name, "answers": sorted(set(constant)), "num_cells": len(own)}
        if constant and len(own) == 1:
            yield Statement("notice.constant", values | {"n": len(own[0])}, "warning")
        elif constant:
            yield Statement("notice.constant_cells", values | {"num": len(constant)}, "warning")
    for place, axis in enumerate(table.axes):
        sets: dict[object, set[frozenset[str]]] = {}
        for one in done:
            if one.items is not None:
                rest = (one.system, one.seed, one.cell[:place] + one.cell[place + 1 :])
                sets.setdefault(rest, set()).add(frozenset(one.items.ids))
        several = [sorted(found, key=len) for found in sets.values() if len(found) > 1]
        is_nested = several and all(a < b for found in several for a, b in pairwise(found))
        if is_nested or (not sets and axis.is_nested):
            yield Statement("notice.nested", {"axis": axis.key})
    if not table.axes:
        return
    keys = [table.system_axis, *(axis.key for axis in table.axes), "seed"]
    results = [
        (
            dict(
                zip(
                    keys,
                    (one.system, *one.cell, str(table.is_of_methods and one.seed)),
                    strict=True,
                )
            ),
            digest_json([[i, row.predicted, row.text] for i, row in sorted(one.answers.items())])
            if one.answers
            else one.value,
        )
        for one in table.results
    ]
    for remark in summarize_same(results):
        values = {"reason": remark.name, "words": remark.words}
        yield Statement("notice.gate", values, remark.level)


def _note_cells(table: ResultTable, cells: Sequence[CellValue]) -> Iterator[Statement]:
    """Say how many answers are invalid where they are most, and how small the smallest cell is."""
    for name in table.systems:
        rates = [one.invalid_rate or 0.0 for one in cells if one.system == name]
        if max(rates) > MAX_INVALID_RATE:
            values = {"name": name, "rate": max(rates), "num_cells": len(rates)}
            kind = "notice.invalid_most" if len(rates) > 1 else "notice.invalid"
            yield Statement(kind, values, "warning")
    sizes = [one.n for one in cells if one.n is not None]
    if sizes and min(sizes) < MIN_ITEMS:
        values = {"n": min(sizes), "num_cells": len(cells)}
        yield Statement("notice.few_items", values, "warning")
    clusters = [one.num_clusters for one in cells if one.num_clusters is not None]
    if clusters and min(clusters) < MIN_CLUSTERS:
        yield Statement("notice.few_clusters", {"num_clusters": min(clusters)}, "warning")
