"""Metrics of whole splits, and what they are estimated by."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import hypergeom
from sklearn.metrics import balanced_accuracy_score, f1_score, precision_score, recall_score
from statsmodels.stats.proportion import proportion_confint

from groupwise.core import EvaluationError, GroupwiseError
from groupwise.evaluation.metrics import (
    METRIC_VERSIONS,
    Metric,
    ReliabilityBin,
    bin_reliability,
    compute_metrics,
    estimate_pass,
    fill_cells,
    list_sampled_measures,
    rate_cells,
    read_items,
    read_metrics,
    score_cells,
    write_metrics,
)
from groupwise.evaluation.predictions import Measure, Prediction, digest_items, find_measure
from groupwise.evaluation.statistics import bound_clustered

LABELS = ("on-task", "off-task")
ROW = st.tuples(
    st.sampled_from(LABELS),
    st.sampled_from([*LABELS, None]),
    st.integers(0, 4),
    st.none() | st.floats(0, 1),
)


def find(metrics: list[Metric], name: str) -> Metric:
    return next(metric for metric in metrics if metric.name == name)


def predict(rows: list[tuple[str, str | None, int, float | None]]) -> list[Prediction]:
    return [
        Prediction(
            f"i{n:03}",
            f"g{cluster}",
            "test",
            "grpo",
            truth,
            answer,
            "" if answer else "invalid",
            probabilities=None if p is None else {"on-task": p, "off-task": 1 - p},
            latency_s=p,
        )
        for n, (truth, answer, cluster, p) in enumerate(rows)
    ]


def test_values_of_a_hand_made_table(make_table):
    rows = [("on-task", "on-task")] * 6 + [("on-task", "off-task")] * 2
    rows += [("off-task", "off-task")] * 3 + [("off-task", "on-task")] + [("off-task", None)] * 4
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
    low, high = proportion_confint(9, 16, method="wilson")
    assert (metrics["grpo/accuracy"].low, metrics["grpo/accuracy"].high) == pytest.approx(
        (low, high)
    )


@given(st.lists(ROW, min_size=1, max_size=40))
@settings(max_examples=30, deadline=None)
def test_invariants_and_references(rows):
    items = predict(rows)
    metrics = compute_metrics(items, labels=LABELS)
    by_name = {metric.measure: metric for metric in metrics}
    assert all(metric.low <= metric.value <= metric.high for metric in metrics)
    assert all(metric.low >= 0 and metric.high <= 1 for metric in metrics)
    error = np.mean([truth != answer for truth, answer, _, _ in rows])
    assert by_name["accuracy"].value + error == pytest.approx(1)
    assert by_name["accuracy"].value + by_name["invalid_rate"].value <= 1

    truths = [truth for truth, *_ in rows]
    answers = [answer or "invalid" for _, answer, *_ in rows]
    for label in LABELS:
        kwargs = {"labels": [label], "average": "macro", "zero_division": np.nan}
        for kind, score in (
            ("precision", precision_score),
            ("recall", recall_score),
            ("f1", f1_score),
        ):
            expected = score(truths, answers, **kwargs)
            found = by_name.get(f"{kind}:{label}")
            assert (found is None) == np.isnan(expected)
            assert found is None or found.value == pytest.approx(expected)


def score_brier(items: list[Prediction]) -> float | None:
    known = [item for item in items if item.probabilities]
    p_true = [(item.probabilities or {}).get(item.label, 0.0) for item in known]
    silent = sum(item.predicted is None and not item.probabilities for item in items)
    return (sum((1 - p) ** 2 for p in p_true) + silent) / (len(known) + silent) if known else None


def score_error(bins: tuple[ReliabilityBin, ...]) -> float | None:
    num_items = sum(one.num_items for one in bins)
    gaps = [one.num_items * abs(one.accuracy - one.confidence) for one in bins if one.num_items]
    return sum(gaps) / num_items if num_items else None


@given(st.lists(ROW, min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_the_resampled_formulas_are_the_reported_metrics(rows):
    items = predict(rows)
    cells = fill_cells(items, LABELS)
    balanced, error = score_cells(cells.sum(axis=0), LABELS)
    ratios = {name: tops.sum() / bases.sum() for name, tops, bases, _ in rate_cells(cells, LABELS)}
    truths = [item.label for item in items]
    answers = [item.predicted or "invalid" for item in items]
    present = sorted(set(truths))
    recall = recall_score(truths, answers, labels=present, average="macro", zero_division=0)
    assert balanced == pytest.approx(recall)
    wanted = score_error(bin_reliability(items, LABELS))
    assert error == pytest.approx(np.nan if wanted is None else wanted, nan_ok=True, abs=1e-9)
    assert ratios.get("brier") == pytest.approx(score_brier(items), abs=1e-9)


def test_balanced_accuracy_is_scikit_learns(make_table):
    rows = [("on-task", "on-task")] * 9 + [("on-task", "off-task")] + [("off-task", "on-task")] * 2
    rows += [("off-task", "off-task")]
    found = find(compute_metrics(make_table(rows), labels=LABELS), "grpo/balanced_accuracy")
    assert found.value == pytest.approx(balanced_accuracy_score(*zip(*rows, strict=True)))


def test_clustered_interval_is_wider_when_clusters_agree(make_table):
    # Ten clusters of ten equal items are ten observations, not a hundred.
    rows = [("on-task", "on-task" if n // 10 < 7 else "off-task") for n in range(100)]
    alone = make_table(rows)
    clustered = [
        Prediction(**{**as_dict(p), "cluster": f"g{n // 10}"}) for n, p in enumerate(alone)
    ]
    one = find(compute_metrics(alone, labels=LABELS), "grpo/accuracy")
    ten = find(compute_metrics(clustered, labels=LABELS), "grpo/accuracy")
    assert one.value == ten.value == 0.7
    assert ten.high - ten.low > 2.5 * (one.high - one.low)
    assert (one.low, one.high) == pytest.approx(proportion_confint(70, 100, method="wilson"))


def test_that_nobody_erred_is_no_certainty(make_table):
    # Ten clusters of ten: as far as one knows, ten observations.
    rows = [(label, label) for label in ("on-task", "off-task")] * 50
    items = [
        Prediction(**{**as_dict(p), "cluster": f"g{n // 10}", "scores": {"missed": 0.0}})
        for n, p in enumerate(make_table(rows))
    ]
    found = {m.measure: (m.low, m.high) for m in compute_metrics(items, labels=LABELS)}
    square = stats.t.ppf(0.975, 9) ** 2
    end = square / (10 + square)
    both = [f"{kind}:{label}" for kind in ("precision", "recall", "f1") for label in LABELS]
    for name in ("accuracy", "balanced_accuracy", *both):
        assert found[name] == pytest.approx((1 - end, 1.0)), name
    for name in ("missed", "invalid_rate"):
        assert found[name] == pytest.approx((0.0, end)), name


def as_dict(item: Prediction) -> dict:
    return {name: getattr(item, name) for name in Prediction.__dataclass_fields__}


def test_one_cluster_says_nothing_about_others(make_table):
    rows = [("on-task", "on-task"), ("off-task", "off-task"), ("off-task", None)]
    metrics = compute_metrics(make_table(rows, cluster="only"), labels=LABELS)
    assert {(metric.low, metric.high) for metric in metrics} == {(0, 1)}


def test_interval_of_a_biased_statistic_contains_its_value():
    # Five bins with exactly the right share each: any other draw has a greater error.
    rows = [
        ("on-task" if n < right else "off-task", "on-task", len(LABELS), right / 20)
        for right in (11, 13, 15, 17, 19)
        for n in range(20)
    ]
    items = [Prediction(**{**as_dict(p), "cluster": p.example_id}) for p in predict(rows)]
    error = find(compute_metrics(items, labels=LABELS), "grpo/ece")
    assert error.value == pytest.approx(0, abs=1e-9)
    assert error.low <= error.value < 0.02 < error.high


def test_undefined_draws_are_left_out():
    cells = np.asarray([[1.0, 1.0], [0.0, 0.0]])
    (ends,) = bound_clustered(
        ["a", "b"], cells, lambda sums: (sums[..., 0] / sums[..., 1])[None], seed=0
    )
    assert ends == (1.0, 1.0)


def test_every_rate_of_grouped_items_is_wider_than_that_of_single_ones(make_prediction):
    # Half of the clusters answer wrongly, a quarter not at all: items of a cluster are alike.
    answers = (None, "off-task", "on-task", "on-task")
    alone = [
        make_prediction(
            example_id=f"i{n:03}",
            cluster=f"i{n:03}",
            label="on-task" if n % 2 else "off-task",
            predicted=answers[n // 10 % 4],
            fields={"part": "one"},
        )
        for n in range(200)
    ]
    grouped = [replace(item, cluster=f"g{n // 10:02}") for n, item in enumerate(alone)]
    single, several = (
        {
            one.measure: one.high - one.low
            for one in compute_metrics(rows, labels=LABELS, slices=["part"])
        }
        for rows in (alone, grouped)
    )
    names = ("accuracy[part=one]", "invalid_rate", "recall:on-task", "f1:off-task")
    assert all(several[name] > 1.4 * single[name] for name in names), (single, several)


def test_slices_have_their_own_n_and_skip_items_without_the_field(make_prediction):
    values = ["easy"] * 3 + ["hard"] * 2 + [None]
    items = [
        make_prediction(
            example_id=f"i{n}",
            cluster=f"g{n}",
            predicted="on-task" if n != 4 else "off-task",
            fields={"difficulty": value} if value else {},
        )
        for n, value in enumerate(values)
    ]
    metrics = compute_metrics(items, labels=LABELS, slices=("difficulty", "absent"))
    sliced = {m.name: (m.value, m.n) for m in metrics if "[" in m.name}
    assert sliced == {
        "grpo/accuracy[difficulty=easy]": (1.0, 3),
        "grpo/invalid_rate[difficulty=easy]": (0.0, 3),
        "grpo/accuracy[difficulty=hard]": (0.5, 2),
        "grpo/invalid_rate[difficulty=hard]": (0.0, 2),
    }


def test_too_many_slices_are_refused(make_prediction):
    items = [make_prediction(example_id=f"i{n}", fields={"task": n}) for n in range(21)]
    with pytest.raises(EvaluationError, match="cannot slice by task; got 21 values"):
        compute_metrics(items, labels=LABELS, slices=("task",))


def test_latency_quantiles_are_in_seconds(make_prediction):
    items = [
        make_prediction(example_id=f"i{n:03}", cluster=f"g{n % 20}", latency_s=n / 1000)
        for n in range(101)
    ]
    metrics = compute_metrics(items, labels=LABELS)
    assert find(metrics, "grpo/latency_p50_s").value == pytest.approx(0.050)
    assert find(metrics, "grpo/latency_p95_s").value == pytest.approx(0.095)
    assert 0.04 < find(metrics, "grpo/latency_p50_s").low < 0.05


def test_order_of_rows_and_other_policies_change_nothing(full_run):
    from groupwise.evaluation.predictions import read_predictions

    rows = read_predictions(full_run / "evaluate/predictions.jsonl")
    grpo = [row for row in rows if row.policy == "grpo"]
    together = compute_metrics([*rows][::-1], labels=LABELS, seed=3)
    alone = compute_metrics(grpo, labels=LABELS, seed=3)
    assert [m for m in together if m.policy == "grpo"] == alone
    assert compute_metrics(grpo, labels=LABELS, seed=4) != alone


@pytest.mark.parametrize("num_labels", [0, 21])
def test_free_text_has_no_metrics_by_label(make_table, num_labels):
    answers = [f"答案 {n}" for n in range(21)]
    rows = [(text, text if n % 3 else None) for n, text in enumerate(answers)]
    items = make_table(rows)
    metrics = {m.measure: m for m in compute_metrics(items, labels=answers[:num_labels])}
    assert set(metrics) == {"accuracy", "invalid_rate"}
    assert metrics["accuracy"].value == 14 / 21
    assert metrics["invalid_rate"].value == 7 / 21
    assert metrics["accuracy"].low < 14 / 21 < metrics["accuracy"].high


def test_twenty_labels_are_labels_still(make_table):
    labels = [f"class {n}" for n in range(20)]
    metrics = compute_metrics(make_table([(name, name) for name in labels]), labels=labels)
    assert find(metrics, "grpo/recall:class 7").value == 1
    assert find(metrics, "grpo/balanced_accuracy").value == 1


def test_label_outside_a_large_set_is_refused(make_table):
    labels = [f"class {n}" for n in range(21)]
    with pytest.raises(EvaluationError, match="label outside the set"):
        compute_metrics(make_table([("class 1", "class x")]), labels=labels)


@pytest.mark.parametrize("labels", [LABELS, ()])
def test_samples_pairs_and_scores_have_means_with_intervals(make_prediction, labels):
    items = [
        make_prediction(
            predicted="on-task" if n % 4 else "off-task",
            example_id=f"i{n:03}",
            cluster=f"g{n // 8:02}",
            samples=(n % 3 == 0, n % 2 == 0),
            pair=f"p{n // 2:03}",
            scores={"similarity": (n % 10) / 10} if n < 80 else {},
        )
        for n in range(160)
    ]
    metrics = {m.measure: m for m in compute_metrics(items, labels=labels)}
    right = np.asarray([[n % 3 == 0, n % 2 == 0] for n in range(160)])
    expected = {
        "pass@1": (right.mean(), 160),
        "mean@2": (right.mean(), 160),
        "pass@2": (right.any(axis=1).mean(), 160),
        "pair_accuracy": (0.5, 80),
        "similarity": (0.45, 80),
    }
    assert {name: (metrics[name].value, metrics[name].n) for name in expected} == {
        name: (pytest.approx(value), n) for name, (value, n) in expected.items()
    }
    assert metrics["pass@1"].low < metrics["pass@1"].value < metrics["pass@1"].high
    assert metrics["similarity"].high - metrics["similarity"].low < 0.2


def test_sampled_interval_is_by_clusters_and_not_by_samples(make_prediction):
    # Ten clusters that are wholly right or wrong: ten observations, whatever is sampled.
    items = [
        make_prediction(example_id=f"i{n:03}", cluster=f"g{n // 10}", samples=(n // 10 < 7,) * 16)
        for n in range(100)
    ]
    found = find(compute_metrics(items, labels=LABELS), "grpo/mean@16")
    assert found.high - found.low > 2 * 1.96 * np.sqrt(0.7 * 0.3 / 10)


def test_one_cluster_bounds_means_by_nothing(make_prediction):
    items = [make_prediction(example_id=f"i{n}", scores={"iou": 0.5}) for n in range(9)]
    iou = find(compute_metrics(items, labels=LABELS), "grpo/iou")
    assert (iou.low, iou.value, iou.high) == (0, 0.5, 1)


def test_every_family_of_metrics_has_a_version(make_prediction):
    items = [
        make_prediction(
            example_id=f"i{n}",
            cluster=f"g{n}",
            probabilities={"on-task": 1.0},
            latency_s=1.0,
            samples=(True,),
            scores={"iou": 0.5},
            fields={"language": "zh"},
            pair="p" if n < 2 else "",
        )
        for n in range(4)
    ]
    items = [Prediction(**{**as_dict(p), "cluster": "g0" if p.pair else p.cluster}) for p in items]
    found = compute_metrics(items, labels=LABELS, slices=("language",))
    families = {name.partition(":")[0] for name in (metric.measure for metric in found)}
    renamed = {
        "accuracy[language=zh]": "slices",
        "invalid_rate[language=zh]": "slices",
        "pair_accuracy[language=zh]": "slices",
        "iou[language=zh]": "slices",
        "iou": "scores",
        "latency_p50_s": "latency",
        "latency_p95_s": "latency",
        "mean@1": "mean@k",
        "pass@1": "pass@k",
    }
    assert {renamed.get(name, name) for name in families} == {*METRIC_VERSIONS} - {"comparison"}


def test_a_policy_without_a_valid_answer_is_perfect_in_nothing(make_table):
    rows = make_table([("on-task", None), ("off-task", None)] * 2)
    rows = [
        replace(p, cluster="g", samples=(False,), pair=f"p{n // 2}") for n, p in enumerate(rows)
    ]
    found = {m.measure: m.value for m in compute_metrics(rows, labels=LABELS)}
    assert {"pair_accuracy", "pass@1", "mean@1", "f1:on-task", "recall:on-task"} <= set(found)
    assert not {name for name in found if name.startswith(("precision:", "brier", "ece"))}
    for name, value in found.items():
        measure = find_measure(name)
        assert measure is not None
        assert value == (0.0 if measure.is_higher_better else 1.0), name


def test_an_invalid_answer_is_the_worst_of_the_brier_score(make_table):
    rows = make_table([("on-task", "on-task"), ("on-task", None), ("on-task", None)] * 20)
    sure = [replace(p, probabilities={"on-task": 1.0}) if p.predicted else p for p in rows]
    found = find(compute_metrics(sure, labels=LABELS), "grpo/brier")
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
    metrics = compute_metrics(make_table([("on-task", "on-task")]), labels=LABELS)
    write_metrics(tmp_path / "metrics.json", metrics)
    assert read_metrics(tmp_path / "metrics.json") == metrics


@pytest.mark.parametrize("text", ["{", '{"a": 1}', '[{"name": "x"}]'])
def test_broken_file_is_named(tmp_path, text):
    (tmp_path / "metrics.json").write_text(text)
    with pytest.raises(
        GroupwiseError, match=r"metrics\.json is (damaged|not JSON|not a JSON list)"
    ):
        read_metrics(tmp_path / "metrics.json")


CASES = [(n, c, k) for n in (1, 2, 5, 8) for c in range(n + 1) for k in range(1, n + 1)]


@pytest.mark.parametrize(("num_samples", "num_right", "k"), CASES)
def test_pass_is_the_share_of_all_choices_of_k(num_samples, num_right, k):
    samples = [n < num_right for n in range(num_samples)]
    shares = [any(chosen) for chosen in itertools.combinations(samples, k)]
    assert estimate_pass(num_samples, num_right, k) == pytest.approx(np.mean(shares))


def test_pass_is_the_product_of_the_paper_and_the_hypergeometric_chance():
    for n, c, k in ((100, 3, 10), (200, 40, 100), (1000, 1, 1)):
        product = 1 - np.prod(1 - k / np.arange(n - c + 1, n + 1))
        assert estimate_pass(n, c, k) == pytest.approx(product)
        assert estimate_pass(n, c, k) == pytest.approx(hypergeom.sf(0, n, c, k))


def test_none_right_is_exactly_0_and_too_few_wrong_exactly_1():
    assert estimate_pass(200, 0, 100) == 0.0
    assert estimate_pass(200, 101, 100) == 1.0


def test_estimate_has_no_bias():
    # k answers drawn afresh are right with 1 - (1 - p)^k; 8 samples estimate it for k = 4.
    num_right = np.random.default_rng(0).binomial(8, 0.2, size=20_000)
    mean = np.mean([estimate_pass(8, int(c), 4) for c in num_right])
    assert mean == pytest.approx(1 - 0.8**4, abs=0.006)
    plugged_in = np.mean(1 - (1 - num_right / 8) ** 4)
    assert plugged_in < mean - 0.02


def test_measures_are_powers_of_two_and_the_fewest_samples(make_prediction):
    def names(*counts: int) -> tuple[str, ...]:
        return list_sampled_measures([make_prediction(samples=(True,) * n) for n in counts])

    assert names(8, 6, 0) == ("pass@1", "pass@2", "pass@4", "pass@6", "mean@6")
    assert names(4) == ("pass@1", "pass@2", "pass@4", "mean@4")
    assert names(1) == ("pass@1", "mean@1")
    assert names(0) == names() == ()


def test_item_without_samples_has_no_score(make_prediction):
    rows = [make_prediction(), make_prediction(example_id="b", samples=(True, False, False, False))]
    for measure, value in {"mean@4": 0.25, "pass@1": 0.25, "pass@4": 1.0}.items():
        items = read_items(rows, policy=rows[0].policy, split=rows[0].split, measure=measure)
        assert (items.ids, items.values.tolist()) == (("b",), [value])
