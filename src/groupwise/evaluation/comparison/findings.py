"""What the numbers say, and which system to take: statements made from numbers only.

The same numbers give the same statements. A recommendation needs all of: a fair comparison, every
cell run on the same items, a test that survives Holm's method against every other system, and
a value above a baseline. Otherwise every reason that stands against it is listed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from groupwise.evaluation.comparison.content import Comparison, Gap, Recommendation, Versus
from groupwise.evaluation.comparison.differences import SAME, compare_systems
from groupwise.evaluation.comparison.material import Material, Setup
from groupwise.evaluation.comparison.notices import collect_notices
from groupwise.evaluation.page import Statement
from groupwise.evaluation.paired import PairedComparison
from groupwise.evaluation.predictions import Measure
from groupwise.evaluation.report.findings import remark_carrying

MAX_PAIRS_IN_FULL = 2
MAX_PAIRS_TOLD = 6


def build_comparison(material: Material, *, seed: int = 0) -> Comparison:
    """Build a comparison; the same material and seed give the same comparison."""
    versus = compare_systems(material, seed=seed)
    return Comparison(
        **{one.name: getattr(material, one.name) for one in fields(Setup)},
        is_fair=material.gate.is_fair,
        notices=collect_notices(material, versus),
        findings=tuple(_state_findings(material, versus)),
        recommendation=_recommend(material, versus),
        versus=versus,
    )


def _state_findings(material: Material, versus: Sequence[Versus]) -> Iterator[Statement]:
    if not material.gate.is_fair:
        yield Statement("finding.confounded")
    if not versus:
        yield from _state_values(material)
    is_brief = len(versus) > MAX_PAIRS_IN_FULL
    for pair in versus[:MAX_PAIRS_TOLD]:
        is_grid = len(pair.gaps) > 1
        yield from _state_grid(pair, is_brief) if is_grid else _state_single(pair, material)
    if len(versus) > MAX_PAIRS_TOLD:
        yield Statement("finding.more_pairs", {"num": len(versus) - MAX_PAIRS_TOLD})
    if versus:
        yield _state_scope(material)


def _state_scope(material: Material) -> Statement:
    """Say that tests draw items, not trainings: they speak of checkpoints and not of methods."""
    if material.num_trainings == 1:
        return Statement("finding.one_training")
    return Statement("finding.seeds", {"num": material.num_trainings})


def _state_values(material: Material) -> Iterator[Statement]:
    for cell in material.cells:
        if cell.value is not None and len(material.cells) == 1:
            values = {"name": cell.system, "value": cell.value, "measure": material.measure}
            yield Statement("finding.alone", values)


def _name_pair(pair: Versus) -> dict[str, Any]:
    return {"first": pair.first, "second": pair.second}


def _state_single(pair: Versus, material: Material) -> Iterator[Statement]:
    (gap,) = pair.gaps
    if gap.difference is None:
        yield Statement(f"finding.{gap.why_none}", _name_pair(pair))
        return
    first = material.find(pair.first, gap.coordinates)
    second = material.find(pair.second, gap.coordinates)
    values = _name_pair(pair) | {"value_first": first.value, "value_second": second.value}
    values |= {"measure": material.measure, "n": first.n, "split": material.split}
    yield Statement("finding.values", values)
    yield from _state_test(pair, gap, material.measure)


def _state_test(pair: Versus, gap: Gap, measure: Measure) -> Iterator[Statement]:
    test, values = gap.test, _name_pair(pair) | {"difference": gap.difference}
    if test is None:
        yield Statement("finding.untested", values)
        return
    values |= {"low": test.low, "high": test.high, "p": test.p_value_holm}
    if gap.is_clear:
        is_first = measure.sign * (gap.difference or 0.0) > 0
        better = pair.first if is_first else pair.second
        yield Statement("finding.clear", values | {"better": better})
        yield from remark_carrying([test])
    else:
        yield Statement("finding.unclear", values)
    yield _state_wins(pair, test, measure)
    if not gap.is_clear and test.num_items_needed is not None:
        needed = {"needed": test.num_items_needed, "n": test.n}
        yield Statement("finding.power", _name_pair(pair) | needed)


def _state_wins(pair: Versus, test: PairedComparison, measure: Measure) -> Statement:
    """Say on how many items each is better; of correctness: which only one has right."""
    wins, losses = test.count_wins(measure)
    is_right = measure.is_correctness and test.is_binary
    kind = "finding.discordant" if is_right else "finding.won"
    return Statement(kind, _name_pair(pair) | {"only_first": wins, "only_second": losses})


def _state_grid(pair: Versus, is_brief: bool) -> Iterator[Statement]:
    values = _name_pair(pair)
    cells = {"num_compared": pair.num_compared, "num_cells": len(pair.gaps)}
    if pair.mean is None:
        yield Statement("finding.grid_nothing", values | cells)
        return
    counts = {"better": pair.num_better, "worse": pair.num_worse, "equal": pair.num_equal}
    yield Statement("finding.grid", values | cells | counts | {"mean": pair.mean})
    if not is_brief:
        yield from _state_extremes(pair)
    if pair.num_tested:
        clear = {"better": pair.num_clear_better, "worse": pair.num_clear_worse}
        yield Statement("finding.grid_clear", values | clear | {"num_tested": pair.num_tested})
    else:
        yield Statement("finding.grid_untested", values)


def _state_extremes(pair: Versus) -> Iterator[Statement]:
    best, worst = pair.find(pair.best), pair.find(pair.worst)
    if best is None or worst is None or best is worst:
        return
    ends = {"best": best.difference, "best_at": pair.best, "worst": worst.difference}
    yield Statement("finding.extremes", _name_pair(pair) | ends | {"worst_at": pair.worst})


def _recommend(material: Material, versus: Sequence[Versus]) -> Recommendation:
    """Return the system to take with its evidence, or every reason for none."""
    reasons = [*_object_material(material), *_object_gaps(versus)]
    if reasons:
        return Recommendation(None, tuple(reasons))
    best, *equals = _find_best(material)
    if equals:
        return Recommendation(None, (Statement("reason.equal", {"names": [best, *equals]}),))
    reasons += _object_tests(best, material, versus)
    reasons += _object_baseline(best, material)
    if reasons:
        return Recommendation(None, tuple(reasons))
    return Recommendation(best, tuple(_give_evidence(best, material, versus)))


def _object_material(material: Material) -> Iterator[Statement]:
    if not material.gate.is_fair:
        yield Statement("reason.unfair")
    if len(material.systems) < 2:
        yield Statement("reason.one_system")
    missing = sum(cell.is_missing for cell in material.cells)
    if missing:
        values = {"num_missing": missing, "num_cells": len(material.cells)}
        yield Statement("reason.missing", values)
    without = dict.fromkeys(c.system for c in material.cells if c.state == "inapplicable")
    if without:
        yield Statement("reason.inapplicable", {"names": [*without]})
    if not material.answers:
        yield Statement("reason.no_items")


def _object_gaps(versus: Sequence[Versus]) -> Iterator[Statement]:
    places = {g.coordinates for pair in versus for g in pair.gaps if g.why_none == "other_items"}
    if places:
        yield Statement("reason.other_items", {"num_cells": len(places)})


def _find_best(material: Material) -> list[str]:
    """Return the systems with the best mean over all cells; they are all there."""
    sums = {
        one.name: sum(cell.value or 0.0 for cell in material.cells if cell.system == one.name)
        for one in material.systems
    }
    best = max(material.measure.sign * value for value in sums.values())
    return [name for name in sums if abs(material.measure.sign * sums[name] - best) < SAME]


def _list_rivals(best: str, versus: Sequence[Versus]) -> Iterator[tuple[str, Versus, int]]:
    """Yield every rival with its pair and 1 if the best is the first of the pair, else -1."""
    for pair in versus:
        if best in (pair.first, pair.second):
            is_first = best == pair.first
            yield pair.second if is_first else pair.first, pair, 1 if is_first else -1


def _count_clear(pair: Versus, side: int) -> tuple[int, int]:
    """Return in how many cells the side is clearly better and clearly worse."""
    better, worse = pair.num_clear_better, pair.num_clear_worse
    return (better, worse) if side > 0 else (worse, better)


def _object_tests(best: str, material: Material, versus: Sequence[Versus]) -> Iterator[Statement]:
    rivals = list(_list_rivals(best, versus))
    untold = len(material.systems) - 1 - len(rivals)
    if untold:
        yield Statement("reason.not_compared", {"best": best, "num": untold})
    for rival, pair, side in rivals:
        better, worse = _count_clear(pair, side)
        values = {"best": best, "rival": rival, "num_cells": len(pair.gaps)}
        if not better:
            yield Statement("reason.not_clear", values)
        elif worse:
            yield Statement("reason.mixed", values | {"better": better, "worse": worse})


def _object_baseline(best: str, material: Material) -> Iterator[Statement]:
    known = _average_baseline(best, material)
    if known is None:
        yield Statement("reason.no_baseline")
        return
    end, baseline = known
    if material.measure.sign * (end - baseline) <= 0:
        values = {"best": best, "end": end, "baseline": baseline}
        yield Statement("reason.not_above_baseline", values)


def _average_baseline(best: str, material: Material) -> tuple[float, float] | None:
    """Return the mean of the nearer interval ends and of the baselines, None if one has none."""
    cells = [cell for cell in material.cells if cell.system == best]
    ends = [cell.low if material.measure.is_higher_better else cell.high for cell in cells]
    baselines = [material.answers[best, cell.coordinates].baseline for cell in cells]
    known = [
        (a, b) for a, b in zip(ends, baselines, strict=True) if a is not None and b is not None
    ]
    if not known or len(known) < len(cells):
        return None
    return sum(a for a, _ in known) / len(known), sum(b for _, b in known) / len(known)


def _give_evidence(best: str, material: Material, versus: Sequence[Versus]) -> Iterator[Statement]:
    for rival, pair, side in _list_rivals(best, versus):
        yield _tell_rival(best, rival, pair, side)
    yield Statement("evidence.fair")
    known = _average_baseline(best, material)
    if known is not None:
        yield Statement("evidence.baseline", {"end": known[0], "baseline": known[1]})


def _tell_rival(best: str, rival: str, pair: Versus, side: int) -> Statement:
    values: dict[str, Any] = {"best": best, "rival": rival, "mean": side * (pair.mean or 0.0)}
    if len(pair.gaps) > 1:
        better, _ = _count_clear(pair, side)
        counts = {"num_clear": better, "num_cells": len(pair.gaps)}
        return Statement("evidence.grid", values | counts)
    test = next(iter(pair.gaps)).test
    if test is not None:
        ends = sorted((side * test.low, side * test.high))
        values |= {"low": ends[0], "high": ends[1], "p": test.p_value_holm, "n": test.n}
    return Statement("evidence.single", values)
