"""Metrics of whole splits and of labels, and what they are estimated by."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    precision_score,
    recall_score,
)
from statsmodels.stats.proportion import proportion_confint

from groupwise.core import EvaluationError, GroupwiseError
from groupwise.evaluation.metrics import (
    Metric,
    compute_metrics,
    fill_cells,
    measure_labels,
    read_metrics,
    score_cells,
    write_metrics,
)
from groupwise.evaluation.predictions import (
    METRIC_VERSIONS,
    Measure,
    Prediction,
    digest_items,
    find_measure,
    read_predictions,
)
from groupwise.evaluation.statistics import bound_clustered

LABELS = ("on-task", "off-task")
ON, OFF = LABELS
ROW = st.tuples(
    st.sampled_from(LABELS),
    st.sampled_from([*LABELS, None]),
    st.integers(0, 4),
    st.none() | st.floats(0, 1),
)


def predict(rows: Sequence[tuple[str, str | None, int, float | None]]) -> list[Prediction]:
    """Predictions from (truth, answer, cluster, probability of on-task)."""
    return [
        Prediction(
            f"i{n:04}",
            f"g{cluster}",
            "test",
            "grpo",
            truth,
            answer,
            "" if answer else "invalid",
            probabilities=None if p is None else {ON: p, OFF: 1 - p},
        )
        for n, (truth, answer, cluster, p) in enumerate(rows)
    ]


def lean(rows: Sequence[tuple[str, float]]) -> list[Prediction]:
    """Likeliest answers of items that are clusters, from (truth, probability of on-task)."""
    each = enumerate(rows)
    return predict([(truth, ON if p >= 0.5 else OFF, n, p) for n, (truth, p) in each])


def measure(items: Sequence[Prediction], name: str, labels: Sequence[str] = LABELS) -> Metric:
    (found,) = [one for one in compute_metrics(items, labels=labels) if one.measure == name]
    return found


def score(items: Sequence[Prediction], labels: Sequence[str] = LABELS) -> list[float]:
    """Brier score, balanced accuracy, and calibration error with what chance adds."""
    found = {name: value for name, value, *_ in measure_labels(items, labels, seed=0)}
    sums = fill_cells(items, labels).sum(axis=0)
    return [found.get("brier", np.nan), *score_cells(sums, labels, noise=0.0).tolist()]


def test_values_of_a_hand_made_table(make_table):
    rows = [(ON, ON)] * 6 + [(ON, OFF)] * 2 + [(OFF, OFF)] * 3 + [(OFF, ON)] + [(OFF, None)] * 4
    items = make_table(rows)
    metrics = {m.name: m for m in compute_metrics(items, labels=LABELS)}
    assert {name: (m.value, m.n) for name, m in metrics.items()} == {
        "grpo/accuracy": (9 / 16, 16),
        "grpo/invalid_rate": (4 / 16, 16),
        "grpo/precision:on-task": (6 / 7, 7),
        "grpo/recall:on-task": (6 / 8, 8),
        "grpo/precision:off-task": (3 / 5, 5),
        "grpo/recall:off-task": (3 / 8, 8),
        "grpo/balanced_accuracy": (pytest.approx((6 / 8 + 3 / 8) / 2), 16),
        "grpo/f1:on-task": (pytest.approx(12 / 15), 16),
        "grpo/f1:off-task": (pytest.approx(6 / 13), 16),
    }
    assert {m.split_digest for m in metrics.values()} == {digest_items(items)}
    found = metrics["grpo/accuracy"]
    assert (found.low, found.high) == pytest.approx(proportion_confint(9, 16, method="wilson"))


@given(st.lists(ROW, min_size=1, max_size=40))
@settings(max_examples=30, deadline=None)
def test_invariants_and_references(rows):
    metrics = compute_metrics(predict(rows), labels=LABELS)
    by_name = {metric.measure: metric for metric in metrics}
    assert all(metric.low <= metric.value <= metric.high for metric in metrics)
    assert all(metric.low >= 0 and metric.high <= 1 for metric in metrics)
    error = np.mean([truth != answer for truth, answer, _, _ in rows])
    assert by_name["accuracy"].value + error == pytest.approx(1)
    assert by_name["accuracy"].value + by_name["invalid_rate"].value <= 1

    truths = [truth for truth, *_ in rows]
    answers = [answer or "invalid" for _, answer, *_ in rows]
    kinds = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    for label, (kind, reference) in itertools.product(LABELS, kinds.items()):
        expected = reference(truths, answers, labels=[label], average="macro", zero_division=np.nan)
        found = by_name.get(f"{kind}:{label}")
        assert (found is None) == np.isnan(expected)
        assert found is None or found.value == pytest.approx(expected)


def score_brier(items: list[Prediction]) -> float:
    known = [item for item in items if item.probabilities]
    p_true = [(item.probabilities or {}).get(item.label, 0.0) for item in known]
    silent = sum(item.predicted is None and not item.probabilities for item in items)
    return (sum((1 - p) ** 2 for p in p_true) + silent) / (len(known) + silent) if known else np.nan


def score_error(items: list[Prediction]) -> float:
    """The mean gap between confidence and correctness in ten bins, counted item by item."""
    gaps: dict[int, list[float]] = {}
    for item in items:
        if item.probabilities:
            likeliest = max(LABELS, key=item.probabilities.__getitem__)
            sure = item.probabilities[likeliest]
            place = int(np.searchsorted(np.linspace(0.5, 1, 11)[1:-1], sure, side="right"))
            gaps.setdefault(place, []).append((likeliest == item.label) - sure)
    num_items = sum(map(len, gaps.values()))
    return sum(abs(sum(own)) for own in gaps.values()) / num_items if gaps else np.nan


@given(st.lists(ROW, min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_the_resampled_formulas_are_the_reported_metrics(rows):
    items = predict(rows)
    truths, answers = [row[0] for row in rows], [row[1] or "invalid" for row in rows]
    present = sorted(set(truths))
    recall = recall_score(truths, answers, labels=present, average="macro", zero_division=0)
    wanted = [score_brier(items), recall, score_error(items)]
    assert score(items) == pytest.approx(wanted, nan_ok=True, abs=1e-9)


def test_balanced_accuracy_is_scikit_learns(make_table):
    rows = [(ON, ON)] * 9 + [(ON, OFF)] + [(OFF, ON)] * 2 + [(OFF, OFF)]
    found = measure(make_table(rows), "balanced_accuracy")
    assert found.value == pytest.approx(balanced_accuracy_score(*zip(*rows, strict=True)))


def test_clustered_interval_is_wider_when_clusters_agree(make_table):
    # Ten clusters of ten equal items are ten observations, not a hundred.
    alone = make_table([(ON, ON if n // 10 < 7 else OFF) for n in range(100)])
    clustered = [replace(p, cluster=f"g{n // 10}") for n, p in enumerate(alone)]
    one, ten = (measure(items, "accuracy") for items in (alone, clustered))
    assert one.value == ten.value == 0.7
    assert ten.high - ten.low > 2.5 * (one.high - one.low)
    assert (one.low, one.high) == pytest.approx(proportion_confint(70, 100, method="wilson"))


def test_that_nobody_erred_is_no_certainty(make_table):
    # Ten clusters of ten: as far as one knows, ten observations.
    items = [
        replace(p, cluster=f"g{n // 10}", scores={"missed": 0.0})
        for n, p in enumerate(make_table([(label, label) for label in LABELS] * 50))
    ]
    found = {m.measure: (m.low, m.high) for m in compute_metrics(items, labels=LABELS)}
    square = stats.t.ppf(0.975, 9) ** 2
    end = square / (10 + square)
    both = [f"{kind}:{label}" for kind in ("precision", "recall", "f1") for label in LABELS]
    for name in ("accuracy", "balanced_accuracy", *both):
        assert found[name] == pytest.approx((1 - end, 1.0)), name
    for name in ("missed", "invalid_rate"):
        assert found[name] == pytest.approx((0.0, end)), name


def test_one_cluster_says_nothing_about_others(make_table):
    rows = [(ON, ON), (OFF, OFF), (OFF, None)]
    items = [replace(p, scores={"iou": 0.5}) for p in make_table(rows, cluster="only")]
    metrics = compute_metrics(items, labels=LABELS)
    assert {(metric.low, metric.high) for metric in metrics} == {(0, 1)}
    assert measure(items, "iou").value == 0.5


def test_interval_of_a_biased_statistic_contains_its_value():
    # Five bins with exactly the right share each: any other draw has a greater error.
    rows = [
        (ON if n < right else OFF, right / 20) for right in (11, 13, 15, 17, 19) for n in range(20)
    ]
    error = measure(lean(rows), "ece")
    assert error.value == pytest.approx(0, abs=1e-9)
    assert error.low <= error.value < 0.02 < error.high


def test_undefined_draws_are_left_out():
    cells = np.asarray([[1.0, 1.0], [0.0, 0.0]])
    (ends,) = bound_clustered(
        ["a", "b"], cells, lambda sums: (sums[..., 0] / sums[..., 1])[None], seed=0
    )
    assert ends == (1.0, 1.0)


def test_every_rate_of_grouped_items_is_wider_than_that_of_single_ones(make_table):
    # Half of the clusters answer wrongly, a quarter not at all: items of a cluster are alike.
    answers = (None, OFF, ON, ON)
    rows = [(ON if n % 2 else OFF, answers[n // 10 % 4]) for n in range(200)]
    alone = make_table(rows, fields={"part": "one"})
    grouped = [replace(item, cluster=f"g{n // 10:02}") for n, item in enumerate(alone)]
    single, several = (
        {
            one.measure: one.high - one.low
            for one in compute_metrics(items, labels=LABELS, slices=["part"])
        }
        for items in (alone, grouped)
    )
    names = ("accuracy[part=one]", "invalid_rate", "recall:on-task", "f1:off-task")
    assert all(several[name] > 1.4 * single[name] for name in names), (single, several)


def test_slices_have_their_own_n_and_skip_items_without_the_field(make_table):
    values = ["easy"] * 3 + ["hard"] * 2 + [None]
    items = [
        replace(item, fields={"difficulty": value} if value else {})
        for item, value in zip(
            make_table([(ON, OFF if n == 4 else ON) for n in range(6)]), values, strict=True
        )
    ]
    metrics = compute_metrics(items, labels=LABELS, slices=("difficulty", "absent"))
    sliced = {m.name: (m.value, m.n) for m in metrics if "[" in m.name}
    assert sliced == {
        "grpo/accuracy[difficulty=easy]": (1.0, 3),
        "grpo/invalid_rate[difficulty=easy]": (0.0, 3),
        "grpo/accuracy[difficulty=hard]": (0.5, 2),
        "grpo/invalid_rate[difficulty=hard]": (0.0, 2),
    }


def test_order_of_rows_and_other_policies_change_nothing(full_run):
    rows = read_predictions(full_run / "evaluate/predictions.jsonl")
    grpo = [row for row in rows if row.policy == "grpo"]
    together = compute_metrics([*rows][::-1], labels=LABELS, seed=3)
    alone = compute_metrics(grpo, labels=LABELS, seed=3)
    assert [m for m in together if m.policy == "grpo"] == alone
    assert compute_metrics(grpo, labels=LABELS, seed=4) != alone


@pytest.mark.parametrize("num_labels", [0, 21])
def test_free_text_has_no_metrics_by_label(make_table, num_labels):
    answers = [f"答案 {n}" for n in range(21)]
    items = make_table([(text, text if n % 3 else None) for n, text in enumerate(answers)])
    metrics = {m.measure: m for m in compute_metrics(items, labels=answers[:num_labels])}
    assert set(metrics) == {"accuracy", "invalid_rate"}
    assert metrics["accuracy"].value == 14 / 21
    assert metrics["invalid_rate"].value == 7 / 21
    assert metrics["accuracy"].low < 14 / 21 < metrics["accuracy"].high


@pytest.mark.parametrize("labels", [LABELS, ()])
def test_items_of_which_only_some_have_a_truth_are_neither_right_nor_wrong(make_table, labels):
    items = make_table([(LABELS[0], LABELS[0]), (None, LABELS[0])])
    with pytest.raises(EvaluationError, match="1 of 2 items of test have no truth"):
        compute_metrics(items, labels=labels)


def test_twenty_labels_are_labels_still(make_table):
    labels = [f"class {n}" for n in range(20)]
    items = make_table([(name, name) for name in labels])
    assert measure(items, "recall:class 7", labels).value == 1
    assert measure(items, "balanced_accuracy", labels).value == 1


def test_label_outside_a_large_set_is_refused(make_table):
    labels = [f"class {n}" for n in range(21)]
    with pytest.raises(EvaluationError, match="label outside the set"):
        compute_metrics(make_table([("class 1", "class x")]), labels=labels)


@pytest.mark.parametrize("labels", [LABELS, ()])
def test_pairs_and_scores_have_means_with_intervals(make_table, labels):
    items = [
        replace(
            item,
            cluster=f"g{n // 8:02}",
            pair=f"p{n // 2:03}",
            scores={"similarity": (n % 10) / 10} if n < 80 else {},
        )
        for n, item in enumerate(make_table([(ON, ON if n % 4 else OFF) for n in range(160)]))
    ]
    metrics = {m.measure: m for m in compute_metrics(items, labels=labels)}
    expected = {"pair_accuracy": (0.5, 80), "similarity": (0.45, 80)}
    assert {name: (metrics[name].value, metrics[name].n) for name in expected} == {
        name: (pytest.approx(value), n) for name, (value, n) in expected.items()
    }
    assert metrics["similarity"].high - metrics["similarity"].low < 0.2


def test_every_family_of_metrics_has_a_version(make_table):
    more = {"scores": {"iou": 0.5}, "probabilities": {ON: 1}}
    items = [
        replace(p, cluster="g0" if n < 2 else p.cluster, pair="p" if n < 2 else "")
        for n, p in enumerate(make_table([(ON, ON)] * 4, fields={"language": "zh"}, **more))
    ]
    found = compute_metrics(items, labels=LABELS, slices=("language",))
    families = {name.partition(":")[0] for name in (metric.measure for metric in found)}
    renamed = {
        "accuracy[language=zh]": "slices",
        "invalid_rate[language=zh]": "slices",
        "pair_accuracy[language=zh]": "slices",
        "iou[language=zh]": "slices",
        "iou": "scores",
    }
    assert {renamed.get(name, name) for name in families} == {*METRIC_VERSIONS} - {"comparison"}


def test_a_policy_without_a_valid_answer_is_perfect_in_nothing(make_table):
    rows = make_table([(ON, None), (OFF, None)] * 2, cluster="g")
    rows = [replace(p, pair=f"p{n // 2}") for n, p in enumerate(rows)]
    found = {m.measure: m.value for m in compute_metrics(rows, labels=LABELS)}
    assert {"pair_accuracy", "f1:on-task", "recall:on-task"} <= set(found)
    assert not {name for name in found if name.startswith(("precision:", "brier", "ece"))}
    for name, value in found.items():
        known = find_measure(name)
        assert known is not None
        assert value == (0.0 if known.is_higher_better else 1.0), name


def test_an_invalid_answer_is_the_worst_of_the_brier_score(make_table):
    rows = make_table([(ON, ON), (ON, None), (ON, None)] * 20)
    sure = [replace(p, probabilities={ON: 1.0}) if p.predicted else p for p in rows]
    found = measure(sure, "brier")
    assert (found.value, found.n) == (pytest.approx(2 / 3), 60)
    assert 0.4 < found.low < 0.6 < 0.7 < found.high < 0.9


def test_a_part_of_a_score_has_its_direction():
    own = [Measure("missed", "Missed", "漏检", is_higher_better=False)]
    part = find_measure("missed[language=zh]", own)
    assert part == Measure(
        "missed[language=zh]", "Missed where language=zh", "language=zh 的漏检", False
    )
    assert find_measure("missed", own) == own[0]
    assert find_measure("other[language=zh]", own) is None


def test_no_predictions_are_an_error():
    with pytest.raises(EvaluationError, match="no predictions"):
        compute_metrics([], labels=LABELS)


def test_file_round_trip(tmp_path, make_table):
    metrics = compute_metrics(make_table([(ON, ON)]), labels=LABELS)
    write_metrics(tmp_path / "metrics.json", metrics)
    assert read_metrics(tmp_path / "metrics.json") == metrics


@pytest.mark.parametrize("text", ["{", '{"a": 1}', '[{"name": "x"}]'])
def test_broken_file_is_named(tmp_path, text):
    (tmp_path / "metrics.json").write_text(text)
    words = r"metrics\.json is (damaged|not JSON|not a JSON list)"
    with pytest.raises(GroupwiseError, match=words):
        read_metrics(tmp_path / "metrics.json")


def test_calibration_error_of_a_hand_made_table():
    # Two items in the first bin, sure by 0.53 on average; two in the last, sure by 0.99.
    items = lean([(ON, 0.52), (OFF, 0.54), (OFF, 0.02), (ON, 1.0)])
    assert score(items)[2] == pytest.approx(0.5 * 0.03 + 0.5 * 0.01)
    # One more item in the last bin: gap (0.98 + 1 + 0.99) / 3 - 1 of three items in five.
    more = [*items, *lean([(ON, 0.99)])]
    assert score(more)[2] == pytest.approx(2 / 5 * 0.03 + 3 / 5 * 0.01)


def test_brier_score_of_a_hand_made_table():
    assert score(lean([(ON, 0.8), (OFF, 0.4)]))[0] == pytest.approx((0.2**2 + 0.4**2) / 2)


def test_items_without_probabilities_take_no_part(make_prediction):
    silent = make_prediction(example_id="silent")
    items = lean([(ON, 0.8)])
    assert score([*items, silent])[::2] == score(items)[::2]
    assert np.isnan(score([silent])[::2]).all()


def test_three_labels_give_a_brier_score_in_the_unit_interval():
    item = Prediction("i", "g", "test", "p", "a", "b", probabilities={"a": 0.0, "b": 1.0, "c": 0.0})
    assert score([item], ("a", "b", "c"))[0] == pytest.approx(1.0)


@given(st.lists(st.tuples(st.sampled_from(LABELS), st.floats(0, 1)), min_size=1, max_size=60))
@settings(deadline=None)
def test_scores_equal_their_references(rows):
    items = lean(rows)
    brier = brier_score_loss([int(truth == ON) for truth, _ in rows], [p for _, p in rows])
    assert score(items)[0] == pytest.approx(brier, abs=1e-12)


def test_the_calibration_error_is_that_of_scikit_learns_bins():
    dice = np.random.default_rng(0)
    p_true = dice.uniform(0.5, 1, 400)
    rows = [(ON if dice.random() < p else OFF, float(p)) for p in p_true]
    right, mean = calibration_curve([t == ON for t, _ in rows], p_true, n_bins=20)
    counts = np.histogram(p_true, np.linspace(0.5, 1, 11))[0]
    assert score(lean(rows))[2] == pytest.approx(np.average(abs(right - mean), weights=counts))


def answer(num_items: int, *, shift: float, seed: int) -> list[Prediction]:
    """Answers that are right as often as their confidence says, less ``shift``."""
    random = np.random.default_rng(seed)
    confidence = random.uniform(0.5, 1, num_items)
    is_right = random.random(num_items) < confidence - shift
    rows = enumerate(zip(confidence, is_right, strict=True))
    return predict([(ON if right else OFF, ON, n, float(p)) for n, (p, right) in rows])


@pytest.mark.parametrize(("num_items", "most"), [(10, 0.15), (100, 0.05)])
def test_calibrated_answers_have_hardly_any_calibration_error(num_items, most):
    found = [measure(answer(num_items, shift=0, seed=n), "ece") for n in range(12)]
    assert np.mean([one.value for one in found]) < most
    assert all(one.low < 0.02 for one in found)


def test_what_is_uncalibrated_stays_so():
    found = [measure(answer(100, shift=0.3, seed=n), "ece") for n in range(12)]
    assert np.mean([one.value for one in found]) == pytest.approx(0.3, abs=0.03)
    assert sum(one.low < 0.3 < one.high for one in found) >= 10


def test_a_constant_answer_is_not_certain_to_be_at_chance(make_table):
    found = measure(make_table([(ON, ON), (OFF, ON)] * 10), "balanced_accuracy")
    assert found.value == 0.5
    # Ten of each label: Wilson's ends of 10 of 10 and 0 of 10 are 0.28 from 1 and 0.
    assert found.low == pytest.approx(0.5 - 0.2775 / 2, abs=1e-3)
    assert found.high == pytest.approx(0.5 + 0.2775 / 2, abs=1e-3)
