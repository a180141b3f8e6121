"""Predictions, the values of a measure by item, policies, and the files of an evaluation."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

import numpy as np
import pytest
from run_folders import CONDITIONS, POLICIES

from groupwise.core import (
    EvaluationError,
    GroupwiseError,
    digest_json,
    write_json,
    write_jsonl,
    write_text,
)
from groupwise.evaluation.metrics import (
    PairedComparison,
    check_labels,
    compare_pairs,
    compute_metrics,
    list_measures,
    read_items,
    read_metrics,
)
from groupwise.evaluation.predictions import (
    POLICIES_FILE,
    Items,
    Policies,
    Prediction,
    Prompts,
    digest_items,
    group_by_policy,
    mark_items,
    read_as,
    read_policies,
    read_predictions,
    write_policies,
    write_predictions,
)
from groupwise.evaluation.report.page import Section, read_sections
from groupwise.evaluation.results import Conditions, read_conditions
from groupwise.run.asking import predict_each
from groupwise.run.evaluating import write_evaluation

Make = Callable[..., Prediction]


def test_file_round_trip_keeps_every_field(tmp_path, make_prediction):
    rows = [
        make_prediction(
            probabilities={"on-task": 0.7, "off-task": 0.3},
            latency_s=0.25,
            pictures=("a.png", "b.png"),
            fields={"task": "写周报", "difficulty": None},
            scores={"iou": 0.25, "相似度": 1.0},
            samples=(True, False),
            pair="p1",
        ),
        make_prediction("off-task", None, reason="empty", text=""),
    ]
    write_predictions(tmp_path / "p.jsonl", rows)
    assert read_predictions(tmp_path / "p.jsonl") == rows


@pytest.mark.parametrize("dropped", ["example_id", "cluster", "scores", "latency_s", None])
def test_row_without_a_key_or_with_another_is_refused(tmp_path, make_prediction, dropped):
    row = {key: value for key, value in asdict(make_prediction()).items() if key != dropped}
    write_jsonl(tmp_path / "p.jsonl", [row if dropped else row | {"guess": "on-task"}])
    with pytest.raises(EvaluationError, match=r"row 1 is not a prediction.*expected the keys"):
        read_predictions(tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"predicted": None, "reason": ""}, "a reason for an invalid answer"),
        ({"predicted": "on-task", "reason": "odd"}, "none for a valid one"),
        ({"probabilities": {"on-task": 0.9, "off-task": 0.3}}, "sum to 1"),
        ({"probabilities": {"on-task": 1.2, "off-task": -0.2}}, "sum to 1"),
        ({"probabilities": {"on-task": float("nan"), "off-task": 0.5}}, "sum to 1"),
        ({"policy": "a/b"}, "without '/'"),
        ({"policy": ""}, "without '/'"),
        ({"scores": {"iou": 1.1}}, r"wrong score; got iou = 1.1; expected a value in \[0, 1\]"),
        ({"scores": {"iou": float("nan")}}, "wrong score"),
        ({"scores": {"": 0.5}}, "name that is taken"),
        ({"scores": {"accuracy": 0.5}}, "name that is taken"),
        ({"scores": {"recall:on-task": 0.5}}, "name that is taken"),
        ({"scores": {"f1:on-task": 0.5}}, "name that is taken"),
    ],
)
def test_contradictions_are_refused(make_prediction, wrong, words):
    with pytest.raises(EvaluationError, match=words):
        make_prediction(**wrong)


def test_a_score_may_have_the_name_of_a_family(make_prediction):
    assert make_prediction(scores={"recall": 0.5}).scores == {"recall": 0.5}


def test_an_answer_has_the_probability_of_its_label_and_an_invalid_one_has_none(make_prediction):
    shares = {"on-task": 0.9, "off-task": 0.1}
    invalid = make_prediction("on-task", None, reason="empty", probabilities=shares)
    assert (invalid.is_correct, invalid.confidence) == (False, None)
    assert make_prediction("off-task", "off-task", probabilities=shares).confidence == 0.1


def test_clusters_by_split_and_policy_as_they_come(make_prediction):
    names = ["zebra", "grpo", "alpha"]
    rows = [make_prediction(policy=name, example_id=i) for name in names for i in ("b", "a")]
    clustered = group_by_policy(rows)
    assert [policy for _, policy in clustered] == names
    assert [item.example_id for item in clustered["test", "grpo"]] == ["a", "b"]


def test_item_answered_twice_is_refused(make_prediction):
    with pytest.raises(EvaluationError, match="two predictions for item x of test"):
        group_by_policy([make_prediction(example_id="x"), make_prediction(example_id="x")])


def test_split_digest_is_of_items_and_labels_only(make_prediction):
    a = make_prediction(example_id="a")
    b = make_prediction("off-task", "on-task", example_id="b", policy="sft")
    expected = digest_json([["a", "on-task"], ["b", "off-task"]])
    assert digest_items([b, a]) == digest_items([a, b]) == expected
    assert digest_items([a]) != expected


@pytest.mark.parametrize("part", ["label", "predicted", "probabilities"])
def test_label_outside_the_set_is_refused(make_prediction, part):
    wrong = {part: {"maybe": 1.0} if part == "probabilities" else "maybe"}
    with pytest.raises(EvaluationError, match=r"maybe.*on-task.*off-task"):
        check_labels([make_prediction(**wrong)], ("on-task", "off-task"))


@pytest.mark.parametrize("labels", [(), ("on-task",), ("on-task", "on-task")])
def test_label_set_must_have_two_different_labels(labels):
    with pytest.raises(EvaluationError, match="two or more"):
        check_labels([], labels)


def test_accuracy_is_measured_without_near_duplicates(make_prediction):
    rows = [
        make_prediction("on-task", "on-task" if n < 3 else "off-task", example_id=f"e{n}")
        for n in range(4)
    ]
    marked, slices = mark_items(rows, {"near_duplicate": {"e0", "e1"}})
    metrics = compute_metrics(marked, labels=("on-task", "off-task"), seed=0, slices=slices)
    found = {metric.measure: (metric.value, metric.n) for metric in metrics}
    assert found["accuracy"] == (0.75, 4)
    assert found["accuracy[near_duplicate=no]"] == (0.5, 2)
    assert found["accuracy[near_duplicate=yes]"] == (1.0, 2)
    assert mark_items(rows, {"near_duplicate": set()}) == (rows, ())


LABELS = ("on-task", "off-task")


@pytest.fixture
def rows(make_prediction: Make) -> list[Prediction]:
    """Six items in three pairs and two clusters, answered right, wrong, right, invalid, ..."""
    answers = ["on-task", "off-task", "on-task", None, "on-task", "off-task"]
    return [
        make_prediction(
            LABELS[n % 2],
            answer,
            example_id=f"i{n}",
            cluster=f"g{n // 4}",
            fields={"language": ("zh", "en", None)[n % 3], "size": n // 3},
            scores={"iou": n / 10},
            pair=f"p{n // 2}",
        )
        for n, answer in enumerate(answers)
    ]


def read(rows: list[Prediction], measure: str) -> Items:
    return read_items(rows, policy="grpo", split="test", measure=measure)


@pytest.mark.parametrize(
    ("measure", "ids", "values"),
    [
        ("accuracy", "i0 i1 i2 i3 i4 i5", [1, 1, 1, 0, 1, 1]),
        ("invalid_rate", "i0 i1 i2 i3 i4 i5", [0, 0, 0, 1, 0, 0]),
        ("recall:off-task", "i1 i3 i5", [1, 0, 1]),
        ("accuracy[language=zh]", "i0 i3", [1, 0]),
        ("accuracy[size=1]", "i3 i4 i5", [0, 1, 1]),
        ("invalid_rate[size=1]", "i3 i4 i5", [1, 0, 0]),
        ("pair_accuracy[size=0]", "p0", [1]),
        ("pair_accuracy[size=1]", "p2", [1]),
        ("pair_accuracy", "p0 p1 p2", [1, 0, 1]),
        ("iou", "i0 i1 i2 i3 i4 i5", [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("iou[language=en]", "i1 i4", [0.1, 0.4]),
    ],
)
def test_values_by_item(rows, measure, ids, values):
    found = read(rows[::-1], measure)
    assert found.ids == tuple(ids.split())
    assert found.values == pytest.approx(values)
    assert found.value == pytest.approx(np.mean(values))
    assert found.is_binary == set(values).issubset({0, 1})
    assert found.split_digest == digest_items(rows)


def test_each_listed_measure_has_the_values_of_its_metric(rows):
    names = list_measures(rows)
    assert tuple(names) == (
        *("accuracy", "invalid_rate", "pair_accuracy", "iou"),
        *("recall:off-task", "recall:on-task"),
        *("accuracy[language=en]", "invalid_rate[language=en]", "iou[language=en]"),
        *("accuracy[language=zh]", "invalid_rate[language=zh]", "iou[language=zh]"),
        *("accuracy[size=0]", "invalid_rate[size=0]", "pair_accuracy[size=0]", "iou[size=0]"),
        *("accuracy[size=1]", "invalid_rate[size=1]", "pair_accuracy[size=1]", "iou[size=1]"),
    )
    metrics = compute_metrics(rows, labels=LABELS, slices=("language", "size"))
    known = {metric.measure: metric for metric in metrics}
    for name in names:
        found = read(rows, name)
        assert (known[name].value, known[name].n) == (pytest.approx(found.value), len(found.values))


def test_what_is_not_there_is_not_listed(make_prediction):
    many = [
        make_prediction(f"答案{n}", f"答案{n}", example_id=f"i{n:02}", fields={"task": n, "w": 0.5})
        for n in range(21)
    ]
    assert [*list_measures(many)] == ["accuracy", "invalid_rate"]
    assert "recall:答案1" in list_measures(many[:20])


def test_answers_and_truths_go_along(rows):
    found = read(rows, "recall:off-task")
    assert found.labels == ("off-task",) * 3
    assert found.answers == ("off-task", None, "off-task")
    assert read(rows, "pair_accuracy").answers[1] == '["on-task", null]'
    assert found.clusters == ("g0", "g0", "g1")


@pytest.mark.parametrize(
    ("policy", "measure", "words"),
    [
        ("grpo", "acuracy", r"'acuracy'.* 'accuracy'.*accuracy, invalid_rate"),
        ("sft", "accuracy", r"no predictions of sft on test.*grpo on test"),
        ("grpo", "recall:maybe", "no measure"),
    ],
)
def test_what_was_not_measured_is_refused(rows, policy, measure, words):
    with pytest.raises(EvaluationError, match=words):
        read_items(rows, policy=policy, split="test", measure=measure)


def test_other_policies_and_splits_are_left_out(rows):
    others = [replace(row, policy="sft", predicted=LABELS[0], reason="") for row in rows]
    others += [replace(row, split="dev") for row in rows[:2]]
    assert (read([*others, *rows], "accuracy").values == read(rows, "accuracy").values).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pair": ""}, "p2 of test.*1 items in 1 clusters"),
        ({"pair": "p1"}, "p1 of test.*3 items in 2 clusters"),
        ({"cluster": "g9"}, "p2 of test.*2 items in 2 clusters"),
    ],
)
def test_broken_pairs_are_refused(rows, change, words):
    rows[-1] = replace(rows[-1], **change)
    with pytest.raises(EvaluationError, match=words + ".*keep both halves together"):
        read(rows, "pair_accuracy")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"values": np.asarray([0.5, np.nan])}, "item b has a wrong value.*got nan"),
        ({"values": np.asarray([np.inf, 0.5])}, "item a has a wrong value.*got inf"),
        ({"values": np.asarray([0.5, -0.1])}, "item b has a wrong value.*got -0.1"),
        ({"ids": ("b", "a")}, "ids must ascend"),
        ({"ids": ("a", "a")}, "ids must ascend"),
        ({"ids": ()}, "there are no items for accuracy of grpo on test"),
        ({"clusters": ("g",)}, r"differ in length; got \[1, 2\]"),
        ({"answers": ("x",)}, r"differ in length; got \[1, 2\]"),
    ],
)
def test_items_that_would_mislead_are_refused(change, words):
    items = Items(
        *("accuracy", "test", "grpo", ("a", "b"), ("g", "h"), np.asarray([0.5, 1.0])), "d"
    )
    with pytest.raises(EvaluationError, match=words):
        replace(items, **change)


USUAL = Policies(POLICIES)


def test_policies_have_titles_places_and_ancestors(tmp_path):
    write_policies(tmp_path, POLICIES)
    assert read_policies(tmp_path) == USUAL
    assert USUAL.sort(["z", "grpo", "majority", "a"]) == ["majority", "grpo", "z", "a"]
    assert USUAL.choose_last(["grpo", "z", "majority"]) == "grpo"
    assert [one.name for one in USUAL.list_ancestors("grpo")] == ["prompt", "sft", "grpo"]
    assert [one.kind for one in USUAL.list_ancestors("gone")] == ["unknown"]
    two = Policies((replace(POLICIES[-1], step="rce", trained_from=None),))
    assert [two.title(name) for name in ("grpo", "rce", "dpo")] == ["GRPO", "GRPO", "dpo"]
    assert [two.rank(name) for name in ("grpo", "rce", "dpo")] == [0, 0, 1]


def test_of_a_run_that_wrote_none_nothing_is_known(tmp_path):
    found = read_policies(tmp_path)
    assert found == Policies()
    assert (found.title("rce"), found.find("rce").kind) == ("rce", "unknown")
    assert found.sort(["b", "a", "b"]) == ["b", "a"]
    assert found.choose_last(["b", "a"]) == "a"


def test_the_budget_is_what_the_training_step_left(tmp_path):
    counts = {"num_steps": 3.0, "num_samples": 6.0, "num_tokens": 90.0}
    write_json(tmp_path / "rce" / "budget.json", counts)
    rce = replace(POLICIES[4], name="rce", step="rce", trained_from=None, budget={})
    write_policies(tmp_path, [rce])
    assert read_policies(tmp_path).find("rce").budget == counts


@pytest.mark.parametrize("order", [[POLICIES[4]], [POLICIES[0], POLICIES[0]]])
def test_a_policy_stands_once_and_behind_what_it_was_trained_from(tmp_path, order):
    with pytest.raises(EvaluationError, match="behind the one it was trained from"):
        write_policies(tmp_path, order)


@pytest.mark.parametrize(
    "text",
    [
        *("{", "{}", '[{"name": "x"}]', '[{"name": "x", "sees": "all"}]'),
        '[{"name": "x", "title": "x", "title_zh": "x", "kind": "magic"}]',
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path, text):
    write_text(tmp_path / POLICIES_FILE, text)
    words = r"policies\.json is (damaged|not JSON|not a JSON list)"
    with pytest.raises(GroupwiseError, match=words):
        read_policies(tmp_path)


NAMES = ("sft", "grpo")


def test_policies_are_asked_once_and_one_that_breaks_off_again(tmp_path, make_prediction):
    asked: list[str] = []

    def ask(policy: str) -> Iterator[Prediction]:
        asked.append(policy)
        yield make_prediction(policy=policy)
        if asked == [*NAMES]:
            raise KeyboardInterrupt
        yield make_prediction(policy=policy, example_id="b")

    with pytest.raises(KeyboardInterrupt):
        predict_each(NAMES, ask, folder=tmp_path)
    found = [predict_each(NAMES, ask, folder=tmp_path) for _ in range(2)]
    assert found[0] == found[1]
    assert [one.policy for one in found[0]] == ["sft", "sft", "grpo", "grpo"]
    assert asked == ["sft", "grpo", "grpo"]


def test_an_evaluation_is_where_it_is_looked_for(tmp_path, make_table):
    rows = [("on-task", "on-task"), ("off-task", "on-task"), ("off-task", None)]
    predictions = [one for name in NAMES for one in make_table(rows, policy=name)]
    conditions = Conditions(**{**CONDITIONS, "measures": ()})
    metrics = compute_metrics(predictions, labels=("on-task", "off-task"))
    comparisons = compare_pairs(predictions, [("sft", "grpo")], split="test")
    write_evaluation(
        tmp_path / "evaluate",
        predictions,
        metrics=metrics,
        comparisons=comparisons,
        conditions=conditions,
        policies=POLICIES,
        prompts=Prompts(turns={"item": "What?"}),
        sections=[Section("Missed defects")],
    )
    assert read_predictions(tmp_path / "evaluate/predictions.jsonl") == predictions
    assert read_metrics(tmp_path / "evaluate/metrics.json") == metrics
    assert read_as(tmp_path / "evaluate/comparisons.json", list[PairedComparison]) == comparisons
    assert read_conditions(tmp_path) == conditions
    assert read_policies(tmp_path).listed == POLICIES
    assert read_as(tmp_path / "evaluate/prompts.json", Prompts) == Prompts(turns={"item": "What?"})
    assert read_sections(tmp_path / "evaluate/sections.json") == (Section("Missed defects"),)
