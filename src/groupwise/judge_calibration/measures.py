"""What verdict rows say about a judge: agreement, kappa, biases, consistency, calibration.

Every number is a mean over items, so that an item asked four times counts once. Calls without
a verdict are left out of all but their own rate. What cannot be computed is left out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.core import derive_seed, digest_json
from groupwise.evaluation.metrics import Metric, Row, measure_labels
from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.statistics import assess_gains, bound_clustered, bound_share
from groupwise.judge_calibration.verdicts import VerdictRow

Floats = NDArray[np.float64]
Labels = Sequence[str | None]
_SIDES = ("a", "b")


@dataclass(frozen=True, slots=True)
class JudgeMeasures:
    """Everything measured about one judge; ``all`` is the name of the whole data."""

    judge: str  # its name
    labels: tuple[str, ...]  # what it could answer
    metrics: tuple[Metric, ...]  # by name (``JUDGE/agreement``) and subset (the metric's ``split``)


def measure_judge(
    rows: Sequence[VerdictRow],
    *,
    judge: str,
    annotators: Mapping[str, Labels] | None = None,
    is_deterministic: bool = False,
    seed: int = 0,
) -> JudgeMeasures:
    """Measure a judge on all items, on every subset and on every level above it.

    Per subset: no_verdict_rate, agreement, kappa, right_in_both_orders, right_on_balance,
    flip_rate, first_position, agreement_unflipped, option_flip_rate, longer_judge,
    longer_people, agreement_if_longer and agreement_if_shorter (where people prefer that
    answer), length_bias (longer_judge minus longer_people), self_consistency, brier and ece.
    With several annotators also people_alpha and agreement_each: how far they agree among
    themselves, and the judge with each of them.
    """
    labels = tuple(sorted({row.label for row in rows} | {r.verdict for r in rows if r.verdict}))
    subsets: dict[str, list[VerdictRow]] = {}
    for row in rows:
        parts = row.subset.split("/") if row.subset else []
        for depth in range(1, len(parts) + 1):
            subsets.setdefault("/".join(parts[:depth]), []).append(row)
    metrics: list[Metric] = []
    for subset, part in [("all", list(rows)), *sorted(subsets.items())]:
        digest = digest_json(sorted({(row.item_id, row.label) for row in part}))
        seed_here = derive_seed(seed, "judge", subset)
        found = [*_measure_verdicts(part, labels), *_measure_length_bias(part, seed_here)]
        found += _measure_people(part, annotators or {}, seed_here, is_all=subset == "all")
        found += _measure_consistency(part, is_deterministic)
        found += _measure_confidence(part, labels, seed_here)
        metrics += [
            Metric(f"{judge}/{name}", subset, value, min(low, value), max(high, value), n, digest)
            for name, value, (low, high), n in found  # rounding or draws may leave a value out
        ]
    return JudgeMeasures(judge, labels, tuple(metrics))


def _group_by_item(rows: Iterable[VerdictRow]) -> dict[str, list[VerdictRow]]:
    """Return the rows of each item, items sorted by id."""
    found: dict[str, list[VerdictRow]] = {}
    for row in rows:
        found.setdefault(row.item_id, []).append(row)
    return {name: found[name] for name in sorted(found)}


def list_both_orders(rows: Iterable[VerdictRow]) -> list[tuple[VerdictRow, VerdictRow]]:
    """Return the verdicts on each pair that was put in both orders, whether there is one or not."""
    asked = {(row.item_id, row.repeat, row.order): row for row in rows}
    swapped = [(row, asked.get((row.item_id, row.repeat, "ba"))) for row in asked.values()]
    return [(one, two) for one, two in swapped if one.order == "ab" and two is not None]


def _share(
    name: str, rows: Sequence[VerdictRow], score: Callable[[VerdictRow], float]
) -> Iterator[Row]:
    """Yield the mean over items of an item's mean score, in [0, 1], with Wilson's interval.

    Such a score has at most the variance of a hit or miss: counting items instead of calls
    makes the interval rather too wide than too narrow.
    """
    items = _group_by_item(rows)
    if items:
        means = [np.mean([score(row) for row in part]) for part in items.values()]
        value, size = float(np.mean(means)), _count_independent(items)
        yield name, value, bound_share(value * size, size), len(items)


def _count_independent(items: Mapping[str, Sequence[VerdictRow]]) -> float:
    """Return how many independent items these are worth if items of a cluster are all alike.

    Source: Kish 1965, "Survey Sampling": effective sample size (sum m)^2 / sum m^2 of clusters
    of m items, the design effect at an intraclass correlation of 1.
    """
    sizes = Counter(rows[0].cluster for rows in items.values()).values()
    return sum(sizes) ** 2 / sum(size**2 for size in sizes)


def _measure_verdicts(rows: Sequence[VerdictRow], labels: Sequence[str]) -> Iterator[Row]:
    """Yield shares of verdicts, and kappa.

    No verdict is not right over both orders of a pair. ``right_on_balance`` counts a pair that is
    right in more orders than wrong, so one right verdict and a tie are enough. What the order does
    is of pairs with a verdict in both.

    Source: ``right_on_balance`` is the accuracy of ScalerLab/JudgeBench, ``utils/metrics.py``.
    """
    given = [row for row in rows if row.verdict is not None]
    yield from _share("no_verdict_rate", rows, lambda row: row.verdict is None)
    yield from _share("agreement", given, lambda row: row.agrees)
    yield from _measure_kappa(given, labels)

    pairs = {id(one): (one, two) for one, two in list_both_orders(rows)}
    firsts = [one for one, _ in pairs.values()]

    def is_right_on_balance(row: VerdictRow) -> bool:
        return sum(one.agrees - one.contradicts for one in pairs[id(row)]) > 0

    yield from _share(
        "right_in_both_orders", firsts, lambda row: all(one.agrees for one in pairs[id(row)])
    )
    yield from _share("right_on_balance", firsts, is_right_on_balance)

    both = list_both_orders(given)
    seen = {id(row) for pair in both for row in pair}
    flipped = {id(row) for pair in both if pair[0].verdict != pair[1].verdict for row in pair}
    twice = [row for row in given if id(row) in seen]
    chosen = [row for row in twice if row.verdict in _SIDES]
    steady = [row for row in twice if id(row) not in flipped]
    yield from _share("flip_rate", twice, lambda row: id(row) in flipped)
    yield from _share("first_position", chosen, lambda row: row.verdict == row.order[0])
    yield from _share("agreement_unflipped", steady, lambda row: row.agrees)
    optional = [row for row in given if row.is_option_flipped is not None]
    yield from _share("option_flip_rate", optional, lambda row: bool(row.is_option_flipped))

    unlike = _keep_unlike(given)
    yield from _share("longer_judge", unlike, lambda row: row.verdict == row.longer)
    yield from _share("longer_people", unlike, lambda row: row.label == row.longer)
    for name, is_longer in (("longer", True), ("shorter", False)):
        part = [row for row in unlike if (row.label == row.longer) == is_longer]
        yield from _share(f"agreement_if_{name}", part, lambda row: row.agrees)


def _measure_kappa(given: Sequence[VerdictRow], labels: Sequence[str]) -> Iterator[Row]:
    """Yield Cohen's kappa of people and judge, left out where both always say the same word.

    Source: Cohen 1960 and Fleiss, Cohen & Everitt 1969, through statsmodels ``cohens_kappa``.
    The table counts every item once; for the interval it is scaled to independent items.
    """
    items = _group_by_item(given)
    table = np.zeros((len(labels), len(labels)))
    for rows in items.values():
        for row in rows:
            table[labels.index(row.label), labels.index(str(row.verdict))] += 1 / len(rows)
    by_chance = table.sum(axis=1) @ table.sum(axis=0) / max(len(items), 1) ** 2
    if not items or np.isclose(by_chance, 1):
        return
    measure: Any = import_module("statsmodels.stats.inter_rater").cohens_kappa
    with np.errstate(invalid="ignore"):
        value = float(measure(table).kappa)
        found = measure(table * (_count_independent(items) / len(items)))
    ends = [float(end) for end in np.nan_to_num([found.kappa_low, found.kappa_upp], nan=value)]
    yield "kappa", value, (max(-1.0, ends[0]), min(1.0, ends[1])), len(items)


def _keep_unlike(rows: Iterable[VerdictRow]) -> list[VerdictRow]:
    """Return the verdicts for one answer of a pair that has a longer one."""
    return [row for row in rows if row.verdict in _SIDES and row.longer is not None]


def _measure_length_bias(rows: Sequence[VerdictRow], seed: int) -> Iterator[Row]:
    """Yield the judge's share of longer answers minus people's, paired by item."""
    items = _group_by_item(_keep_unlike(rows))
    if not items:
        return
    gaps = [
        np.mean([(row.verdict == row.longer) - (row.label == row.longer) for row in part])
        for part in items.values()
    ]
    clusters = [part[0].cluster for part in items.values()]
    array = np.asarray(gaps, dtype=np.float64)
    found = assess_gains(clusters, array, is_binary=False, seed=seed, num_resamples=1999)
    yield "length_bias", float(array.mean()), (found.low, found.high), len(items)


def _measure_people(
    rows: Sequence[VerdictRow], annotators: Mapping[str, Labels], seed: int, *, is_all: bool
) -> Iterator[Row]:
    """Yield how far the judge agrees with each of several annotators, and they among themselves.

    The latter is also of pairs that they are divided about.
    """

    def rate(row: VerdictRow) -> float:
        known = [label for label in annotators[row.item_id] if label is not None]
        return known.count(str(row.verdict)) / len(known)

    known = [row for row in rows if row.item_id in annotators and row.verdict is not None]
    yield from _share("agreement_each", known, rate)
    if is_all:
        clusters = {pair: pair for pair in annotators} | {row.item_id: row.cluster for row in rows}
        alpha = measure_alpha(annotators, clusters, seed=seed)
        if alpha is not None:
            yield "people_alpha", *alpha


def measure_alpha(
    annotators: Mapping[str, Labels], clusters: Mapping[str, str], *, seed: int = 0
) -> tuple[float, tuple[float, float], int] | None:
    """Return Krippendorff's alpha for names, its interval, and how many pairs it is of.

    1 is agreement everywhere, 0 what chance gives; below it people contradict each other. Ties are
    an answer like any other. None where no pair has two annotators or all always say the same word.

    Source: Krippendorff 2011, "Computing Krippendorff's alpha-reliability", section C: nominal
    data, any number of observers, missing data.
    """
    known = {pair: [x for x in labels if x is not None] for pair, labels in annotators.items()}
    units = {pair: labels for pair, labels in sorted(known.items()) if len(labels) > 1}
    names = sorted({label for labels in units.values() for label in labels})
    if len(names) < 2:
        return None
    counts = [Counter(labels) for labels in units.values()]
    table = np.asarray([[one[name] for name in names] for one in counts], dtype=np.float64)
    sizes = table.sum(axis=1)
    unlike = (sizes**2 - (table**2).sum(axis=1)) / (sizes - 1)
    cells = np.column_stack([unlike, table])

    def divide(sums: Floats) -> Floats:
        """Return alpha (1, ...) of sums (..., 1 + names): 1 - observed / expected disagreement."""
        counts = sums[..., 1:]
        total = counts.sum(axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            expected = (total**2 - (counts**2).sum(axis=-1)) / (total - 1)
            return (1 - sums[..., 0] / np.where(expected > 0, expected, np.nan))[None]

    value = float(divide(cells.sum(axis=0))[0])
    (ends,) = bound_clustered([clusters[pair] for pair in units], cells, divide, seed=seed)
    return value, ends or (-1.0, 1.0), len(units)


def _measure_consistency(rows: Sequence[VerdictRow], is_deterministic: bool) -> Iterator[Row]:
    """Yield how likely two askings of the same question get the same verdict."""
    given = [row for row in rows if row.verdict is not None]
    if is_deterministic and given:
        yield "self_consistency", 1.0, (1.0, 1.0), len(_group_by_item(given))
        return
    asked: dict[tuple[str, str], list[str | None]] = {}
    for row in given:
        asked.setdefault((row.item_id, row.order), []).append(row.verdict)
    again = [row for row in given if len(asked[row.item_id, row.order]) > 1]

    def rate_others(row: VerdictRow) -> float:
        verdicts = asked[row.item_id, row.order]
        return (verdicts.count(row.verdict) - 1) / (len(verdicts) - 1)

    yield from _share("self_consistency", again, rate_others)


def _measure_confidence(
    rows: Sequence[VerdictRow], labels: Sequence[str], seed: int
) -> Iterator[Row]:
    """Yield Brier score and calibration error with intervals by whole clusters.

    A judge that only names labels gives each of its verdicts the confidence 1, which says nothing
    about being right. What the confidence leaves goes to the other labels in equal parts.
    """
    known = [row for row in rows if row.verdict is not None and row.confidence is not None]
    if len(labels) < 2 or all(row.confidence == 1 for row in known):
        return
    predictions: list[Prediction] = []
    for row in known:
        sure = row.confidence or 0.0
        rest = (1 - sure) / (len(labels) - 1)
        shares = {label: sure if label == row.verdict else rest for label in labels}
        predictions.append(make_prediction(row, probabilities=shares))
    num_items = len({row.item_id for row in known})
    for name, value, ends, _ in measure_labels(predictions, labels, seed=seed):
        if name in ("brier", "ece"):
            yield name, value, ends, num_items


def make_prediction(
    row: VerdictRow, *, probabilities: Mapping[str, float] | None = None
) -> Prediction:
    """Return a verdict as a prediction of what people say."""
    return Prediction(
        example_id=row.item_id,
        cluster=row.cluster,
        split="rated",
        policy="judge",
        label=row.label,
        predicted=row.verdict,
        reason=row.cause,
        probabilities=probabilities,
    )
