"""Predictions and policies that a run's cells become."""

import pytest
from demonstrations import QUERIES

from groupwise_recipes.demo_selection.cells import Cell, CellRow
from groupwise_recipes.demo_selection.results import list_policies, make_predictions

ITEM = QUERIES[0]


def row(answer: str | None, accuracy: float | None, *demos: str) -> tuple[CellRow, ...]:
    return (CellRow(ITEM.id, ITEM.cluster, demos, answer, accuracy),)


def test_an_item_has_a_score_for_each_number_of_shots_and_their_mean():
    cells = {
        Cell("none", 0): row("a word", 0.0),
        Cell("grpo", 1, 3): row("dak", 0.3, "a"),
        Cell("grpo", 2, 3): row("Lum.", 1.0, "a", "b"),
    }
    none, grpo = make_predictions([ITEM], cells, shots=(1, 2))
    assert none.scores == {"vqa_1": 0.0, "vqa_2": 0.0, "vqa_mean": 0.0}
    assert grpo.scores == {"vqa_1": 0.3, "vqa_2": 1.0, "vqa_mean": pytest.approx(0.65)}
    assert (grpo.predicted, grpo.label) == ("lum", "lum")
    assert grpo.fields["demonstrations"] == ["a", "b"]


def test_what_failed_has_no_score_and_no_part_in_a_mean():
    cells = {Cell("rce", 1, 1): row("lum", 1.0, "a"), Cell("rce", 2, 1): row(None, None, "a", "b")}
    [found] = make_predictions([ITEM], cells, shots=(1, 2))
    assert found.scores == {"vqa_1": 1.0}
    assert (found.predicted, found.reason) == (None, "the evaluation failed")


def test_a_system_that_was_asked_at_some_shots_only_has_no_mean():
    [found] = make_predictions([ITEM], {Cell("oracle", 2): row("lum", 1.0)}, shots=(1, 2))
    assert found.scores == {"vqa_2": 1.0}


def test_grpo_is_last_and_trained_from_rce():
    found = list_policies(["grpo", "random", "rce", "oracle"])
    assert [one.name for one in found] == ["random", "oracle", "rce", "grpo"]
    assert [one.kind for one in found] == ["baseline", "bound", "trained", "trained"]
    assert found[-1].trained_from == "rce"
    assert found[-1].weights == "grpo/policy"
