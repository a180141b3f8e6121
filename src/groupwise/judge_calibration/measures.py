"""What verdict rows say about a judge: agreement, kappa, biases, consistency, calibration.

Every number is a mean over items, so that an item asked four times counts once. Calls without
a verdict are left out of all but their own rate. What cannot be computed is left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.core import derive_seed
from groupwise.evaluation.metrics import Metric, Row, measure_labels
from groupwise.evaluation.predictions import Prediction
from groupwise.evaluation.statistics import assess_gains, bound_share
from groupwise.judge_calibration.annotators import Labels, measure_alpha, rate_agreement
from groupwise.judge_calibration.rows import (
    VerdictRow,
    digest_rated,
    group_by_item,
    split_subsets,
)

Floats = NDArray[np.float64]
_SIDES = ("a", "b")
Items = Mapping[str, Sequence[VerdictRow]]


@dataclass(frozen=True, slots=True)
class JudgeMeasures:
    """Everything measured about one judge; ``all`` is the name of the whole data.

    Attributes:
        judge: its name.
        labels: what it could answer.
        metrics: numbers by name (``JUDGE/agreement``) and subset (the metric's ``split``).
    """

    judge: str
    labels: tuple[str, ...]
    metrics: tuple[Metric, ...]


def measure_judge(
    rows: Sequence[VerdictRow],
    *,
    judge: str,
    annotators: Mapping[str, Labels] | None = None,
    is_deterministic: bool = False,
    seed: int = 0,
) -> JudgeMeasures:
    """Measure a judge on all items and on every subset.

    Per subset: no_verdict_rate, agreement, kappa, right_in_both_orders, right_on_balance,
    flip_rate, first_position, agreement_unflipped, option_flip_rate, longer_judge,
    longer_people, agreement_if_longer and agreement_if_shorter (where people prefer that
    answer), length_bias (longer_judge minus longer_people), self_consistency, brier and ece.
    With several annotators also people_alpha and agreement_each: how far they agree among
    themselves, and the judge with each of them.
    """
    labels = tuple(sorted({row.label for row in rows} | {r.verdict for r in rows if r.verdict}))
    metrics: list[Metric] = []
    for subset, part in split_subsets(rows).items():
        digest = digest_rated(part)
        seed_here = derive_seed(seed, "judge", subset)
        found = [*_measure(part, labels), *_measure_length_bias(part, seed_here)]
        found += _rate_annotators(part, annotators or {})
        if subset == "all":
            found += _measure_people(part, annotators or {}, seed_here)
        found += _measure_consistency(part, is_deterministic)
        found += _measure_confidence(part, labels, seed_here)
        metrics += [
            Metric(f"{judge}/{name}", subset, value, min(low, value), max(high, value), n, digest)
            for name, value, (low, high), n in found  # rounding or draws may leave a value out
        ]
    return JudgeMeasures(judge, labels, tuple(metrics))


def _measure(rows: Sequence[VerdictRow], labels: Sequence[str]) -> Iterator[Row]:
    given = [row for row in rows if row.verdict is not None]
    yield from _share("no_verdict_rate", rows, lambda row: row.verdict is None)
    yield from _share("agreement", given, lambda row: row.agrees)
    yield from _measure_kappa(given, labels)
    yield from _measure_both_orders(rows)
    yield from _measure_position(given)
    optional = [row for row in given if row.is_option_flipped is not None]
    yield from _share("option_flip_rate", optional, lambda row: bool(row.is_option_flipped))
    yield from _measure_length(given)


def _share(
    name: str, rows: Sequence[VerdictRow], score: Callable[[VerdictRow], float]
) -> Iterator[Row]:
    """Yield the mean over items of an item's mean score, in [0, 1], with Wilson's interval.

    Such a score has at most the variance of a hit or miss: counting items instead of calls
    makes the interval rather too wide than too narrow.
    """
    items = group_by_item(rows)
    if not items:
        return
    value = float(np.mean([np.mean([score(row) for row in part]) for part in items.values()]))
    size = _count_independent(items)
    yield name, value, bound_share(value * size, size), len(items)


def _count_independent(items: Items) -> float:
    """Return how many independent items these are worth if items of a cluster are all alike.

    Source: Kish 1965, "Survey Sampling": effective sample size (sum m)^2 / sum m^2 of clusters
    of m items, the design effect at an intraclass correlation of 1.
    """
    sizes: dict[str, int] = {}
    for rows in items.values():
        sizes[rows[0].cluster] = sizes.get(rows[0].cluster, 0) + 1
    return sum(sizes.values()) ** 2 / sum(size**2 for size in sizes.values())


def _measure_kappa(given: Sequence[VerdictRow], labels: Sequence[str]) -> Iterator[Row]:
    """Yield Cohen's kappa of people and judge, left out where both always say the same word.

    Source: Cohen 1960 and Fleiss, Cohen & Everitt 1969, through statsmodels ``cohens_kappa``.
    The table counts every item once; for the interval it is scaled to independent items.
    """
    items = group_by_item(given)
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


def list_both_orders(rows: Sequence[VerdictRow]) -> list[tuple[VerdictRow, VerdictRow]]:
    """Return the verdicts on each pair that was put in both orders, whether there is one or not."""
    asked = {(row.item_id, row.repeat, row.order): row for row in rows}
    swapped = [(row, asked.get((row.item_id, row.repeat, "ba"))) for row in asked.values()]
    return [(one, two) for one, two in swapped if one.order == "ab" and two is not None]


def _measure_both_orders(rows: Sequence[VerdictRow]) -> Iterator[Row]:
    """Yield how often a pair is judged right over both orders, in two definitions.

    No verdict is not right. ``right_on_balance`` counts a pair that is right in more orders than
    wrong, so one right verdict and a tie are enough.

    Source: ``right_on_balance`` is the accuracy of ScalerLab/JudgeBench, ``utils/metrics.py``.
    """
    pairs = {id(one): (one, two) for one, two in list_both_orders(rows)}
    firsts = [one for one, _ in pairs.values()]

    def is_right_twice(row: VerdictRow) -> bool:
        return all(one.agrees for one in pairs[id(row)])

    def is_right_on_balance(row: VerdictRow) -> bool:
        return sum(one.agrees - one.contradicts for one in pairs[id(row)]) > 0

    yield from _share("right_in_both_orders", firsts, is_right_twice)
    yield from _share("right_on_balance", firsts, is_right_on_balance)


def _measure_position(given: Sequence[VerdictRow]) -> Iterator[Row]:
    """Yield what the order does, of pairs with a verdict in both orders."""
    known = {(row.item_id, row.repeat, row.order): row.verdict for row in given if row.order}
    other = {
        key: known[swapped] for key in known if (swapped := (key[0], key[1], key[2][::-1])) in known
    }
    both = [row for row in given if (row.item_id, row.repeat, row.order) in other]

    def is_flipped(row: VerdictRow) -> bool:
        return row.verdict != other[row.item_id, row.repeat, row.order]

    yield from _share("flip_rate", both, is_flipped)
    chosen = [row for row in both if row.verdict in _SIDES]
    yield from _share("first_position", chosen, lambda row: row.is_first)
    steady = [row for row in both if not is_flipped(row)]
    yield from _share("agreement_unflipped", steady, lambda row: row.agrees)


def _measure_people(
    rows: Sequence[VerdictRow], annotators: Mapping[str, Labels], seed: int
) -> Iterator[Row]:
    """Yield how far annotators agree, on pairs that they are divided about, too."""
    clusters = {pair: pair for pair in annotators} | {row.item_id: row.cluster for row in rows}
    alpha = measure_alpha(annotators, clusters, seed=seed)
    if alpha is not None:
        yield "people_alpha", *alpha


def _rate_annotators(rows: Sequence[VerdictRow], annotators: Mapping[str, Labels]) -> Iterator[Row]:
    """Yield how far the judge agrees with each of several annotators."""
    known = [row for row in rows if row.item_id in annotators and row.verdict is not None]
    yield from _share(
        "agreement_each", known, lambda row: rate_agreement(row, annotators[row.item_id])
    )


def _measure_length(given: Sequence[VerdictRow]) -> Iterator[Row]:
    """Yield how often judge and people prefer the longer answer."""
    unlike = _keep_unlike(given)
    yield from _share("longer_judge", unlike, lambda row: row.verdict == row.longer)
    yield from _share("longer_people", unlike, lambda row: row.label == row.longer)
    for name, is_longer in (("longer", True), ("shorter", False)):
        part = [row for row in unlike if (row.label == row.longer) == is_longer]
        yield from _share(f"agreement_if_{name}", part, lambda row: row.agrees)


def _keep_unlike(rows: Sequence[VerdictRow]) -> list[VerdictRow]:
    """Return the verdicts for one answer of a pair that has a longer one."""
    return [row for row in rows if row.verdict in _SIDES and row.longer is not None]


def _measure_length_bias(rows: Sequence[VerdictRow], seed: int) -> Iterator[Row]:
    """Yield the judge's share of longer answers minus people's, paired by item."""
    items = group_by_item(_keep_unlike(rows))
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


def _measure_consistency(rows: Sequence[VerdictRow], is_deterministic: bool) -> Iterator[Row]:
    """Yield how likely two askings of the same question get the same verdict."""
    given = [row for row in rows if row.verdict is not None]
    if is_deterministic and given:
        yield "self_consistency", 1.0, (1.0, 1.0), len(group_by_item(given))
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
    """Yield Brier score and calibration error with intervals by whole clusters."""
    known = _to_predictions(rows, labels)
    if not known:
        return
    num_items = len({item.example_id for item in known})
    for name, value, ends, _ in measure_labels(known, labels, seed=seed):
        if name in ("brier", "ece"):
            yield name, value, ends, num_items


def _to_predictions(rows: Sequence[VerdictRow], labels: Sequence[str]) -> list[Prediction]:
    """Return the verdicts whose confidence is known and says something about being right.

    A judge that only names labels gives each of its verdicts the confidence 1.
    """
    known = [row for row in rows if row.verdict is not None and row.confidence is not None]
    if len(labels) < 2 or all(row.confidence == 1 for row in known):
        return []
    return [
        Prediction(
            example_id=row.item_id,
            cluster=row.cluster,
            split="rated",
            policy="judge",
            label=row.label,
            predicted=row.verdict,
            probabilities=_spread(row, labels),
        )
        for row in known
    ]


def _spread(row: VerdictRow, labels: Sequence[str]) -> dict[str, float]:
    """Return the confidence of the verdict, and an equal part of the rest for other labels."""
    sure = row.confidence or 0.0
    rest = (1 - sure) / (len(labels) - 1)
    return {label: sure if label == row.verdict else rest for label in labels}
