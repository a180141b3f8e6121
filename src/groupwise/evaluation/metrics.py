"""Metrics: one number per policy, split and name, each with its interval, n and split digest.

Names are ``POLICY/METRIC``. What cannot be computed is left out and never 0; an invalid answer is
never one of the labels.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from groupwise.core import EvaluationError, derive_seed, describe_unknown, write_json
from groupwise.evaluation.predictions import (
    Items,
    Measure,
    Prediction,
    digest_items,
    exact,
    group_by_policy,
    read_as,
)
from groupwise.evaluation.statistics import (
    NUM_RESAMPLES,
    Floats,
    Interval,
    adjust_holm,
    assess_gains,
    bound_clustered,
    clustered_ratio,
    score_mcnemar,
    subtract_items,
    widen_balanced,
)

MAX_LABELS = MAX_SLICES = 20
NUM_BINS = 10
Row = tuple[str, float, Interval, int]
Means = dict[str, tuple[str, Sequence[Prediction]]]  # measure without its part, and rows, by name


def list_measures(rows: Sequence[Prediction]) -> Means:
    """Return the measures of predictions that are means of values of items, and how each is taken.

    accuracy where there are truths, invalid_rate, pair_accuracy, the names in ``scores``,
    recall:LABEL of 20 labels or less; and for fields with 20 values or less such as
    accuracy[FIELD=VALUE].
    """
    found = _find_means({"": rows})
    labels = sorted({item.label for item in rows if item.label is not None})
    for label in labels if len(labels) <= MAX_LABELS else ():
        found[f"recall:{label}"] = f"recall:{label}", rows
    for field in sorted({name for item in rows for name in item.fields}):
        is_plain = all(isinstance(item.fields.get(field), str | int | None) for item in rows)
        if is_plain and len(parts := _group_by(field, rows)) <= MAX_SLICES:
            found |= _find_means(parts)
    return found


def _group_by(field: str, rows: Iterable[Prediction]) -> dict[str, Sequence[Prediction]]:
    found: dict[str, list[Prediction]] = {}
    for item in rows:
        if item.fields.get(field) is not None:
            found.setdefault(str(item.fields[field]), []).append(item)
    return {f"[{field}={value}]": part for value, part in sorted(found.items())}


def _find_means(parts: Mapping[str, Sequence[Prediction]]) -> Means:
    found: Means = {}
    for part, rows in parts.items():  # "" is all items; of a part only whole pairs count
        halves = Counter((one.policy, one.split, one.pair) for one in rows if one.pair)
        pairs = [one for one in rows if halves[one.policy, one.split, one.pair] > bool(part)]
        names = ["accuracy", "invalid_rate"] if _have_truths(rows) else ["invalid_rate"]
        names += ["pair_accuracy"] if pairs else []
        for name in (*names, *sorted({name for item in rows for name in item.scores})):
            found[name + part] = name, pairs if name == "pair_accuracy" else rows
    return found


def _have_truths(rows: Iterable[Prediction]) -> bool:
    return any(item.label is not None for item in rows)


def check_labels(rows: Iterable[Prediction], labels: Sequence[str]) -> None:
    """Refuse labels outside the set."""
    allowed, expected = set(labels), [*labels]
    if not len(allowed) == len(labels) >= 2:
        raise EvaluationError("wrong labels", got=expected, expected="two or more, each once")
    for one in rows:
        given = {one.label, one.predicted, *(one.probabilities or ())} - {None}
        if wrong := given - allowed:
            what = f"{one.policy} has a label outside the set for item {one.example_id}"
            raise EvaluationError(what, got=sorted(wrong), expected=expected)


def read_items(
    predictions: Sequence[Prediction], *, policy: str, split: str, measure: str
) -> Items:
    """Return the values of a measure, item by item; items without the measure are left out.

    A policy or measure that is not there, or half a pair, is an EvaluationError.
    """
    chosen = [item for item in predictions if (item.policy, item.split) == (policy, split)]
    if not chosen:
        have = sorted({f"{item.policy} on {item.split}" for item in predictions})
        raise EvaluationError(f"there are no predictions of {policy} on {split}", got=have)
    ((_, rows),) = group_by_policy(chosen).items()
    if measure not in (known := list_measures(rows)):
        what = describe_unknown("measure", measure, list(known))
        raise EvaluationError(f"{policy} on {split}: {what}")
    name, part = known[measure]
    return replace(_collect_items(part, name), measure=measure, split_digest=digest_items(rows))


def _collect_items(rows: Sequence[Prediction], measure: str) -> Items:
    units: list[tuple[str, str, str | None, str | None, float]] = []
    pairs: dict[str, list[Prediction]] = {}
    for item in rows:
        known = {"accuracy": item.is_correct, "invalid_rate": item.predicted is None, **item.scores}
        if item.label is not None:
            known[f"recall:{item.label}"] = item.is_correct
        if measure == "pair_accuracy":
            pairs.setdefault(item.pair, []).append(item)
        elif (value := known.get(measure)) is not None:
            units.append((item.example_id, item.cluster, item.label, item.predicted, value))
    for name, halves in sorted(pairs.items()):
        num_clusters = len({item.cluster for item in halves})
        if len(halves) != 2 or num_clusters != 1:
            raise EvaluationError(
                f"pair {name} of {halves[0].split} cannot be scored",
                got=f"{len(halves)} items in {num_clusters} clusters",
                expected="two items of one cluster",
                fix="keep both halves together when splitting and sampling",
            )
        label = json.dumps([item.label for item in halves], ensure_ascii=False)
        answer = json.dumps([item.predicted for item in halves], ensure_ascii=False)
        is_right = all(item.is_correct for item in halves)
        units.append((name, halves[0].cluster, label, answer, is_right))
    ids, clusters, labels, answers, scores = zip(*units, strict=True) if units else ((),) * 5
    about, values = (measure, rows[0].split, rows[0].policy), np.asarray(scores, dtype=np.float64)
    return Items(*about, ids, clusters, values, labels=labels, answers=answers)


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """How policy b differs from policy a on the same items; old runs lack some of the last."""

    policy_a: str
    policy_b: str
    split: str
    n: int  # items (pairs for ``pair_accuracy``)
    num_clusters: int
    difference: float  # mean of b minus mean of a, in [-1, 1]
    low: float  # ends of the 95 % interval of the difference (clusters drawn)
    high: float
    num_a_only: int  # items where a has more; of correctness, those only a has right
    num_b_only: int
    num_same_answer: int  # items both answered alike, label or invalid
    p_value: float  # McNemar's, of independent items, where ``is_binary``; else the clustered one
    p_value_clustered: float  # ``assess_gains``; McNemar's for binary items, each its own cluster
    p_value_holm: float  # the clustered value adjusted for all comparisons made together
    split_digest: str  # of the items' ids and labels
    measure: str = "accuracy"
    value_a: float | None = None  # mean of a, in [0, 1]
    value_b: float | None = None
    is_binary: bool = True  # every item counts 0 or 1
    num_carrying: float | None = None  # clusters that carry the variance; see ``Gain``

    def count_wins(self, measure: Measure) -> tuple[int, int]:
        """Return on how many items b is better, and on how many a is."""
        more, less = self.num_b_only, self.num_a_only
        return (more, less) if measure.is_higher_better else (less, more)


def compare_items(
    a: Items, b: Items, *, seed: int = 0, num_resamples: int = NUM_RESAMPLES
) -> PairedComparison:
    """Compare ``b`` with ``a`` item by item, without Holm's adjustment.

    Another measure or split, other items, labels or clusters are an EvaluationError.
    """
    gains = subtract_items(a, b)
    is_binary = a.is_binary and b.is_binary
    seed = derive_seed(seed, "compare", a.policy, b.policy)
    found = assess_gains(
        a.clusters, gains, is_binary=is_binary, seed=seed, num_resamples=num_resamples
    )
    num_a_only, num_b_only = int((gains < 0).sum()), int((gains > 0).sum())
    same = int((gains == 0).sum())
    if a.answers and b.answers:
        same = sum(one == two for one, two in zip(a.answers, b.answers, strict=True))
    return PairedComparison(
        policy_a=a.policy,
        policy_b=b.policy,
        split=a.split,
        n=len(gains),
        num_clusters=len(set(a.clusters)),
        difference=float(gains.mean()),
        low=found.low,
        high=found.high,
        num_a_only=num_a_only,
        num_b_only=num_b_only,
        num_same_answer=same,
        p_value=score_mcnemar(num_a_only, num_b_only) if is_binary else found.p_value,
        p_value_clustered=found.p_value,
        p_value_holm=found.p_value,
        split_digest=a.split_digest,
        measure=a.measure,
        value_a=a.value,
        value_b=b.value,
        is_binary=is_binary,
        num_carrying=found.num_carrying,
    )


def compare_policies(
    predictions: Sequence[Prediction],
    a: str,
    b: str,
    *,
    split: str = "test",
    seed: int = 0,
    measure: str = "accuracy",
) -> PairedComparison:
    """Compare policy ``b`` with policy ``a`` item by item; errors as ``compare_items``.

    An item that both were asked and one has no value of is left out, which ``n`` tells.
    """
    one, two = (read_items(predictions, policy=x, split=split, measure=measure) for x in (a, b))
    if one.split_digest == two.split_digest:
        common = {*one.ids} & {*two.ids}
        one, two = one.keep(common), two.keep(common)
    return compare_items(one, two, seed=seed)


def compare_pairs(
    predictions: Sequence[Prediction], pairs: Sequence[tuple[str, str]], **options: Any
) -> list[PairedComparison]:
    """Compare pairs (a, b) by ``compare_policies`` with its options; p-values adjusted for all."""
    found = [compare_policies(predictions, a, b, **options) for a, b in pairs]
    adjusted = adjust_holm([one.p_value_clustered for one in found])
    return [replace(one, p_value_holm=p) for one, p in zip(found, adjusted, strict=True)]


@exact
@dataclass(frozen=True, slots=True)
class Metric:
    """One measured number."""

    name: str  # ``POLICY/METRIC``, such as ``grpo/accuracy`` or ``grpo/accuracy[language=zh]``
    split: str
    value: float  # shares are in [0, 1]
    low: float  # ends of the 95 % interval
    high: float
    n: int  # items it is computed on
    split_digest: str  # of the whole split's item ids and labels

    @property
    def policy(self) -> str:
        return self.name.partition("/")[0]

    @property
    def measure(self) -> str:
        return self.name.partition("/")[2]


def compute_metrics(
    predictions: Sequence[Prediction],
    *,
    labels: Sequence[str],
    seed: int = 0,
    slices: Sequence[str] = (),
) -> list[Metric]:
    """Compute every metric of every policy on every split.

    Per policy what ``list_measures`` names, in parts by the fields in ``slices`` only; what
    ``measure_labels`` says of 2 to 20 labels (free text: ``labels=()``). An invalid answer is
    wrong. Means have the interval of ``clustered_ratio``; a single cluster says nothing about
    others: [0, 1]. No predictions, a label outside the set, items of which only some have a truth,
    an item answered twice, or half a pair is an EvaluationError.
    """
    if not predictions:
        raise EvaluationError("there are no predictions to evaluate")
    found: list[Metric] = []
    for (split, policy), items in group_by_policy(predictions).items():
        has_truths = _have_truths(items)
        if has_truths and (missing := [one.example_id for one in items if one.label is None]):
            raise EvaluationError(
                f"{len(missing)} of {len(items)} items of {split} have no truth",
                got=missing[0],
                fix="label them, or leave them out: they are neither right nor wrong",
            )
        if own := labels if has_truths else ():
            check_labels(items, own)
        digest, seed_here = digest_items(items), derive_seed(seed, "metrics", split)
        rows = [*_average(_find_means({"": items}))]
        if 0 < len(own) <= MAX_LABELS:
            rows += measure_labels(items, own, seed=seed_here)
        for field in slices:
            rows += _average(_find_means(_group_by(field, items)))
        found += [
            Metric(f"{policy}/{name}", split, value, min(low, value), max(high, value), n, digest)
            for name, value, (low, high), n in rows  # rounding or draws may leave a value out
        ]
    return found


def _average(means: Means) -> Iterator[Row]:
    for name, (measure, rows) in means.items():
        items = _collect_items(rows, measure)
        ends = clustered_ratio(items.values, np.ones(len(items.values)), items.clusters)
        yield name, items.value, ends or (0.0, 1.0), len(items.values)


def write_metrics(path: Path, rows: Sequence[Metric | PairedComparison]) -> None:
    """Replace ``path`` by a JSON list of metrics, or of comparisons."""
    write_json(path, [asdict(row) for row in rows])


def read_metrics(path: Path) -> list[Metric]:
    """Return the metrics of a file; errors as those of ``read_as``."""
    return read_as(path, list[Metric])


def fill_cells(items: Sequence[Prediction], labels: Sequence[str]) -> Floats:
    """Return what each item adds to the sums that metrics of labels are made of, as (items, cells).

    Cells in order: L·(L+1) counts of truths by answers (the last of invalid ones), the item's Brier
    term, 1 if it has one, 1 if it has probabilities, and for each of B bins the variance that its
    correctness has where its confidence is right, and its confidence minus its correctness. These
    are of the likeliest label, whatever the text says; confidence is in [1/L, 1].
    """
    check_labels(items, labels)
    num, place = len(labels), len(labels) * (len(labels) + 1)
    cells = np.zeros((len(items), place + 3 + 2 * NUM_BINS))
    for row, item in zip(cells, items, strict=True):
        answer = num if item.predicted is None else labels.index(item.predicted)
        row[labels.index(str(item.label)) * (num + 1) + answer] = 1
        if item.predicted is None and item.probabilities is None:
            row[place : place + 2] = 1  # the worst Brier term
    known = [at for at, item in enumerate(items) if item.probabilities is not None]
    rows = [[(items[at].probabilities or {}).get(name, 0.0) for name in labels] for at in known]
    shares = np.asarray(rows, dtype=np.float64).reshape(len(known), num)
    shares = shares / shares.sum(axis=1, keepdims=True)
    truth = np.eye(num)[[labels.index(str(items[at].label)) for at in known]]
    brier = ((shares - truth) ** 2).sum(axis=1) / 2
    confidence = np.clip(shares.max(axis=1), 1 / num, 1.0)
    correct = truth[np.arange(len(known)), shares.argmax(axis=1)]
    bins = np.digitize(confidence, np.linspace(1 / num, 1, NUM_BINS + 1)[1:-1])
    cells[known, place : place + 3] = np.column_stack([brier, np.ones((len(known), 2))])
    cells[known, place + 3 + bins] = confidence * (1 - confidence)
    cells[known, place + 3 + NUM_BINS + bins] = confidence - correct
    return cells


def measure_labels(
    items: Sequence[Prediction], labels: Sequence[str], *, seed: int
) -> Iterator[Row]:
    """Yield name, value, interval and n of metrics by label; what has no base is left out.

    precision:LABEL, recall:LABEL and f1:LABEL; brier (Brier 1950, eq. 2, halved so that it is at
    most 1, as of an invalid answer without probabilities; a valid one is left out);
    balanced_accuracy (mean recall of the labels that occur) and ece, both with draws of clusters.
    """
    clusters, cells = [item.cluster for item in items], fill_cells(items, labels)
    num_known = sum(item.probabilities is not None for item in items)
    table, rest = _split_cells(cells, labels)
    ratios: dict[str, tuple[Floats, Floats]] = {}
    for index, label in enumerate(labels):
        hit = table[:, index, index]
        true, answered = table[:, index].sum(axis=-1), table[:, :, index].sum(axis=-1)
        ratios[f"precision:{label}"] = hit, answered
        ratios[f"recall:{label}"] = hit, true
        ratios[f"f1:{label}"] = 2 * hit, true + answered
    if num_known:
        ratios["brier"] = rest[:, 0], rest[:, 1]
    recalls: list[tuple[float, Interval]] = []
    for name, (tops, bases) in ratios.items():
        top, base = np.column_stack([tops, bases]).sum(axis=0)
        if base > 0:
            value, ends = float(top / base), clustered_ratio(tops, bases, clusters) or (0.0, 1.0)
            recalls += [(value, ends)] if name.startswith("recall:") else []
            yield name, value, ends, len(items) if name.startswith("f1:") else int(base)

    balanced, error = map(float, score_cells(cells.sum(axis=0), labels))
    score = partial(score_cells, labels=labels, noise=2.0)
    ends, error_ends = bound_clustered(clusters, cells, score, seed=seed)
    ends = widen_balanced(ends or (0.0, 1.0), balanced, clusters, recalls)
    yield "balanced_accuracy", balanced, ends, len(items)
    if num_known:
        yield "ece", error, error_ends or (0.0, 1.0), num_known


def score_cells(sums: Floats, labels: Sequence[str], *, noise: float = 1.0) -> Floats:
    """Return balanced accuracy and calibration error (2, ...) of sums (..., cells), NaN: undefined.

    The mean over items of |accuracy - confidence| of their bin (Guo et al. 2017, eq. 3) is above 0
    also where confidence is right: of 100 items in ten bins about 0.10. So the gaps of all bins are
    shrunk by one factor in [0, 1] (our choice), such that what is left would show, with the noise
    of so many items, the absolute gaps that were seen: the mean of a folded normal (Leone, Nelson &
    Nottingham 1961, eq. 3), solved for its location. ``noise`` is the variance of a bin's gap over
    that of its items: 1, and 2 in bootstrap draws, which draw anew what is drawn already.
    """
    table, rest = _split_cells(sums, labels)
    hits, num_true = np.diagonal(table, axis1=-2, axis2=-1), table.sum(axis=-1)
    gaps = np.abs(rest[..., -NUM_BINS:])
    sigma = np.sqrt(noise * rest[..., -2 * NUM_BINS : -NUM_BINS])
    seen, safe = gaps.sum(axis=-1), np.where(sigma > 0, sigma, 1.0)
    low, high = np.zeros_like(seen), np.ones_like(seen)
    for _ in range(20):
        middle = (low + high) / 2
        means = middle[..., None] * gaps
        ratio = means / safe
        folded = safe * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2)
        folded += means * (1 - 2 * ndtr(-ratio))
        is_less = np.asarray(np.where(sigma > 0, folded, means).sum(axis=-1) < seen)
        low += is_less * (middle - low)
        high -= ~is_less * (high - middle)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall = np.where(num_true > 0, hits / num_true, 0)
        balanced = recall.sum(axis=-1) / (num_true > 0).sum(axis=-1)
        return np.stack([balanced, np.where(high < 1e-4, 0.0, high * seen) / rest[..., 2]])


def _split_cells(cells: Floats, labels: Sequence[str]) -> tuple[Floats, Floats]:
    """Return truths by answers (..., L, L + 1) and the other cells."""
    shape = (len(labels), len(labels) + 1)
    num_counts = shape[0] * shape[1]
    return cells[..., :num_counts].reshape(*cells.shape[:-1], *shape), cells[..., num_counts:]
