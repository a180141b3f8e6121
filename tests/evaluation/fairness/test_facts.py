"""What a run leaves, and what is known of one of its policies."""

import json

import pytest
from pydantic import TypeAdapter
from run_folders import CONDITIONS, list_confounding, make_predictions, make_run

from groupwise.core import (
    EvaluationError,
    GroupwiseError,
    digest_json,
    write_json,
    write_text,
)
from groupwise.evaluation.fairness import check_fairness, read_facts
from groupwise.evaluation.predictions import Measure, digest_items, read_predictions
from groupwise.evaluation.results import CONDITIONS_FILE, Conditions, read_conditions


def test_conditions_come_back_as_they_were_written(tmp_path):
    own = TypeAdapter(tuple[Measure, ...]).validate_python(CONDITIONS["measures"])
    conditions = Conditions(**{**CONDITIONS, "measures": own})
    write_json(tmp_path / CONDITIONS_FILE, conditions.model_dump())
    assert json.loads((tmp_path / CONDITIONS_FILE).read_text()) == CONDITIONS
    assert read_conditions(tmp_path) == conditions
    assert own[0].title_zh == "漏检"


def test_conditions_of_another_version_are_kept_as_they_are(tmp_path):
    assert read_conditions(tmp_path) is None
    write_json(tmp_path / CONDITIONS_FILE, {"retrieval": {"k": 5}})
    found = read_conditions(tmp_path)
    assert found is not None
    assert found.model_dump(exclude_unset=True) == {"retrieval": {"k": 5}}


def test_the_last_policy_is_compared_and_those_that_the_run_describes_come_first(tmp_path):
    run = make_run(tmp_path / "one")
    facts = read_facts(run)
    assert (facts.policy, facts.name) == ("grpo", f"{run}:grpo")
    assert read_facts(run, policy="sft").policy == "sft"
    for names, last in ((("sft", "mine"), "sft"), (("a", "mine"), "mine")):
        run = make_run(tmp_path / last, predictions=make_predictions(policies=names))
        assert read_facts(run).policy == last


def test_items_have_the_digest_of_their_metrics(tmp_path):
    run = make_run(tmp_path / "one")
    rows = [r for r in read_predictions(run / "evaluate/predictions.jsonl") if r.policy == "grpo"]
    half = [row for row in make_predictions() if row.example_id <= rows[19].example_id]
    other = make_run(tmp_path / "two", predictions=half)
    found = list_confounding(check_fairness([read_facts(run), read_facts(other)]))
    values = {one.aspect: one.values for one in found}["items"]
    assert values[f"{run}:grpo"] == {"n": 40, "split_digest": digest_items(rows)}


def test_predictions_may_be_given_and_an_item_answered_twice_is_refused(tmp_path):
    run = make_run(tmp_path / "one")
    rows = read_predictions(run / "evaluate/predictions.jsonl")
    (run / "evaluate/predictions.jsonl").unlink()
    assert len(read_facts(run, predictions=rows).answers["test"]) == 40
    with pytest.raises(EvaluationError, match="two predictions"):
        read_facts(run, predictions=[*rows, rows[-1]])


def test_what_is_not_evaluated_or_is_being_redone_is_refused(tmp_path):
    with pytest.raises(EvaluationError, match="holds no run"):
        read_facts(tmp_path / "nothing")
    run = make_run(tmp_path / "one", {"manifest.json:plan": ...})
    marker = {"key": "k", "outputs": {}, "finished_at": "2026-05-01T11:00:00+00:00"}
    write_json(run / "grpo/step.json", marker)
    with pytest.raises(EvaluationError, match="older than its step grpo"):
        read_facts(run)
    (run / "grpo/step.json").unlink()
    with pytest.raises(EvaluationError, match="older than its step grpo"):
        read_facts(run)
    (run / "evaluate/step.json").unlink()
    write_json(run / "grpo/started.json", {"key": "k"})
    with pytest.raises(EvaluationError, match=r"not evaluated yet \(it is at the step grpo\)"):
        read_facts(run)


def test_a_step_that_was_redone_with_the_same_outputs_leaves_the_run_comparable(tmp_path):
    run = make_run(tmp_path / "one")
    marker = {"key": "k", "outputs": {"grpo/a": "d"}, "finished_at": "2026-05-01T11:00:00+00:00"}
    write_json(run / "grpo/step.json", marker)
    evaluated = json.loads((run / "evaluate/step.json").read_text())
    used = {"grpo": digest_json(marker["outputs"])}
    write_json(run / "evaluate/step.json", {**evaluated, "uses": used})
    read_facts(run)
    write_json(run / "grpo/step.json", {**marker, "outputs": {"grpo/a": "e"}})
    with pytest.raises(EvaluationError, match="older than its step grpo"):
        read_facts(run)


@pytest.mark.parametrize(
    "path",
    [
        "manifest.json",
        "evaluate/conditions.json",
        "evaluate/policies.json",
        "grpo/resolved.json",
        "grpo/trainable.json",
        "grpo/judge.json",
        "evaluate/step.json",
        "sft/step.json",
    ],
)
@pytest.mark.parametrize("text", ['{"cut', "[1, 2]", "7"])
def test_a_damaged_file_is_one_sentence(tmp_path, path, text):
    run = make_run(tmp_path / "one")
    (run / "history.jsonl").unlink()
    write_text(run / path, text)
    with pytest.raises(GroupwiseError, match=r"is (damaged|not JSON|not a JSON|torn)") as caught:
        read_facts(run)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("data", 3), ("prompts", 3), ("parser", 3), ("packages", 3), ("seed", "seven")],
)
def test_a_file_of_another_shape_is_refused(tmp_path, name, value):
    file = "manifest.json" if name in ("packages", "seed") else CONDITIONS_FILE
    run = make_run(tmp_path / "one", {f"{file}:{name}": value})
    with pytest.raises(EvaluationError, match=f"{file} is damaged; got {name}"):
        read_facts(run)
