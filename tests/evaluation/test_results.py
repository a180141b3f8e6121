"""What an evaluation leaves."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from run_folders import CONDITIONS, POLICIES

from groupwise.evaluation import (
    Conditions,
    Prediction,
    Prompts,
    Section,
    compare_pairs,
    compute_metrics,
    predict_each,
    read_comparisons,
    read_metrics,
    read_policies,
    read_predictions,
    read_recorded,
    read_sections,
    write_evaluation,
)
from groupwise.evaluation.predictions import read_prompts

Make = Callable[..., Prediction]
NAMES = ("sft", "grpo")


def test_policies_are_asked_once_and_then_read(tmp_path: Path, make_prediction: Make) -> None:
    asked: list[str] = []

    def ask(policy: str) -> list[Prediction]:
        asked.append(policy)
        return [make_prediction(policy=policy), make_prediction(policy=policy, example_id="b")]

    found = [predict_each(NAMES, ask, folder=tmp_path) for _ in range(2)]
    assert found[0] == found[1]
    assert [one.policy for one in found[0]] == ["sft", "sft", "grpo", "grpo"]
    assert asked == [*NAMES]


def test_one_that_breaks_off_is_asked_again_and_the_one_before_is_not(
    tmp_path: Path, make_prediction: Make
) -> None:
    asked: list[str] = []

    def ask(policy: str) -> Iterator[Prediction]:
        asked.append(policy)
        yield make_prediction(policy=policy)
        if asked == [*NAMES]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_each(NAMES, ask, folder=tmp_path)
    assert len(predict_each(NAMES, ask, folder=tmp_path)) == 2
    assert asked == ["sft", "grpo", "grpo"]


def test_an_evaluation_is_where_it_is_looked_for(
    tmp_path: Path, make_table: Callable[..., list[Prediction]]
) -> None:
    rows = [("on-task", "on-task"), ("off-task", "on-task"), ("off-task", None)]
    predictions = [one for name in NAMES for one in make_table(rows, policy=name)]
    conditions = replace(Conditions(**CONDITIONS), measures=())
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
    assert read_comparisons(tmp_path / "evaluate/comparisons.json") == comparisons
    assert read_recorded(tmp_path) == asdict(conditions)
    assert read_policies(tmp_path).listed == POLICIES
    assert read_prompts(tmp_path / "evaluate/prompts.json") == Prompts(turns={"item": "What?"})
    assert read_sections(tmp_path / "evaluate/sections.json") == (Section("Missed defects"),)
