"""Differences of systems, cell by cell: first minus second, with Holm over all of them.

Nothing is computed from a cell that has not run, nor from two cells of different items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean

from groupwise.evaluation.comparison.content import (
    AxisMean,
    AxisMeans,
    DiscordantList,
    Gap,
    Versus,
)
from groupwise.evaluation.comparison.material import Answers, Coordinates, GridAxis, Material
from groupwise.evaluation.paired import (
    DiscordantItem,
    PairedComparison,
    adjust,
    compare_items,
    list_discordant,
)
from groupwise.evaluation.sameness import has_epochs
from groupwise.evaluation.statistics import NUM_RESAMPLES

CLEAR_P = 0.05
MAX_COMPARISONS = 200
MAX_DISCORDANT = 20
MIN_DISCORDANT = 5
FEWER_RESAMPLES = 1_999
_MANY = 20
SAME = 1e-12
Place = tuple[str, str, Coordinates]


def choose_pairs(names: Sequence[str], num_cells: int) -> list[tuple[str, str]]:
    """Return the pairs to compare: all of them, or each with the first where that is too many."""
    pairs = list(combinations(names, 2))
    if len(pairs) * num_cells <= MAX_COMPARISONS:
        return pairs
    return [(names[0], name) for name in names[1:]]


def compare_systems(material: Material, *, seed: int = 0) -> tuple[Versus, ...]:
    """Compare systems in every cell where both ran on the same items."""
    places = material.list_coordinates()
    pairs = choose_pairs([one.name for one in material.systems], len(places))
    tests = _test_all(material, pairs, seed)
    return tuple(
        _arrange(
            first,
            second,
            tuple(_measure_gap(material, tests, (first, second, place)) for place in places),
            material,
        )
        for first, second in pairs
    )


def _test_all(
    material: Material, pairs: Sequence[tuple[str, str]], seed: int
) -> dict[Place, PairedComparison]:
    """Return the adjusted paired comparison of every pair and cell that has items."""
    places = [
        (first, second, place)
        for first, second in pairs
        for place in material.list_coordinates()
        if _may_compare(material, first, second, place)
        and {(first, place), (second, place)} <= material.answers.keys()
    ]
    num_resamples = NUM_RESAMPLES if len(places) <= _MANY else FEWER_RESAMPLES
    found = [
        compare_items(
            material.answers[second, place].items,
            material.answers[first, place].items,
            seed=seed,
            num_resamples=num_resamples,
        )
        for first, second, place in places
    ]
    return dict(zip(places, adjust(found), strict=True))


def _may_compare(material: Material, first: str, second: str, place: Coordinates) -> bool:
    """Whether both have run and are not known to be of other items, labels or clusters."""
    a, b = material.find(first, place), material.find(second, place)
    known = [(a.digest, b.digest), (a.n, b.n)]
    if a.value is None or b.value is None or any(x and y and x != y for x, y in known):
        return False
    one, two = material.answers.get((first, place)), material.answers.get((second, place))
    if one is None or two is None:
        return True
    return (one.items.ids, one.items.clusters) == (two.items.ids, two.items.clusters)


def _measure_gap(material: Material, tests: Mapping[Place, PairedComparison], at: Place) -> Gap:
    first, second, place = at
    a, b = material.find(first, place), material.find(second, place)
    if a.value is None or b.value is None:
        return Gap(place, None, "missing" if a.is_missing or b.is_missing else "inapplicable")
    if not _may_compare(material, first, second, place):
        return Gap(place, None, "other_items")
    test = tests.get(at)
    is_clear = test is not None and test.p_value_holm < CLEAR_P
    difference = a.value - b.value
    return Gap(place, 0.0 if abs(difference) < SAME else difference, "", test, is_clear)


def _arrange(first: str, second: str, gaps: tuple[Gap, ...], material: Material) -> Versus:
    known = [gap for gap in gaps if gap.difference is not None]
    values = [gap.difference for gap in known if gap.difference is not None]

    def measure_gain(gap: Gap) -> float:
        return material.measure.sign * (gap.difference or 0.0)

    gains = [measure_gain(gap) for gap in known]
    clear = [measure_gain(gap) for gap in known if gap.is_clear]
    return Versus(
        first=first,
        second=second,
        gaps=gaps,
        mean=sum(values) / len(values) if values else None,
        num_better=sum(gain > 0 for gain in gains),
        num_worse=sum(gain < 0 for gain in gains),
        num_equal=gains.count(0),
        num_tested=sum(gap.test is not None for gap in gaps),
        num_clear_better=sum(gain > 0 for gain in clear),
        num_clear_worse=sum(gain < 0 for gain in clear),
        best=max(known, key=measure_gain).coordinates if known else None,
        worst=min(known, key=measure_gain).coordinates if known else None,
        by_axis=tuple(_average_axis(gaps, material.axes, i) for i in range(len(material.axes))),
        discordant=_find_discordant(first, second, known, material),
    )


def _average_axis(gaps: Sequence[Gap], axes: Sequence[GridAxis], index: int) -> AxisMeans:
    epochs = next((place for place, axis in enumerate(axes) if has_epochs(axis.key)), None)
    rows: list[AxisMean] = []
    for value in axes[index].values:
        here = [gap for gap in gaps if gap.coordinates[index] == value]
        known = [gap.difference for gap in here if gap.difference is not None]
        mean = sum(known) / len(known) if known else None
        trend = None if epochs == index else _find_trend(here, epochs)
        rows.append(AxisMean(value, mean, len(known), len(here), trend))
    whole = _find_trend(gaps, epochs) if epochs == index else None
    return AxisMeans(axes[index].key, tuple(rows), whole)


def _find_trend(gaps: Sequence[Gap], epochs: int | None) -> float | None:
    """Return the mean difference in the last epoch minus that in the first.

    Args:
        gaps: of the cells.
        epochs: place of the epoch in coordinates; None: there are no epochs, and no trend.
    """
    if epochs is None:
        return None
    found: dict[str, dict[Coordinates, float]] = {}
    for gap in gaps:
        own = found.setdefault(gap.coordinates[epochs], {})
        if gap.difference is not None:
            own[gap.coordinates[:epochs] + gap.coordinates[epochs + 1 :]] = gap.difference
    first, *others = found.values()
    if not first or not others or any(one.keys() != first.keys() for one in others):
        return None
    return fmean(others[-1].values()) - fmean(first.values())


def _find_discordant(
    first: str, second: str, known: Sequence[Gap], material: Material
) -> DiscordantList | None:
    """Return the items of the tested cell that differ most; None if no cell has items."""
    tested = [gap for gap in known if gap.test is not None]
    if not tested:
        return None
    place = max(tested, key=lambda gap: abs(gap.difference or 0.0)).coordinates
    a, b = material.answers[first, place], material.answers[second, place]
    found = list_discordant(a.items, b.items)
    sign = material.measure.sign
    num_rivals = len(material.systems) - 1
    num_shown = max(MIN_DISCORDANT, MAX_DISCORDANT // num_rivals)
    return DiscordantList(
        coordinates=place,
        num_items=len(a.items.ids),
        num_first_better=sum(sign * (one.value_a - one.value_b) > 0 for one in found),
        num_second_better=sum(sign * (one.value_a - one.value_b) < 0 for one in found),
        shown=tuple(_describe(one, a, b) for one in found[:num_shown]),
    )


def _describe(one: DiscordantItem, first: Answers, second: Answers) -> DiscordantItem:
    """Return a discordant item with its task and the texts of both answers."""
    known, other = first.predictions.get(one.id), second.predictions.get(one.id)
    return replace(
        one,
        task=str(known.fields.get("task") or "") if known else "",
        answer_a=(known and known.text) or one.answer_a,
        answer_b=(other and other.text) or one.answer_b,
    )
