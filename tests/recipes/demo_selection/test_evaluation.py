"""Evaluation: what cells hold, what is asked again, and under what it is refused."""

from dataclasses import replace

import pytest
import torch
from demonstrations import QUERIES, SIZE, TRAIN, RepeatLast, make_asked, make_selector
from recording_job import SETTINGS, record

from groupwise.core import ConfigError, DataError, ModelError, RunError
from groupwise.judges import ReplyCache
from groupwise_recipes.demo_selection.asking import Answerer
from groupwise_recipes.demo_selection.candidate_files import read_candidates
from groupwise_recipes.demo_selection.cells import (
    Cell,
    EvaluationFacts,
    draw_subsets,
    list_cells,
    read_cell,
    read_facts,
    read_subsets,
    write_cell,
)
from groupwise_recipes.demo_selection.choosing import choose_by_baseline, choose_by_selector
from groupwise_recipes.demo_selection.conditions import find_differences
from groupwise_recipes.demo_selection.evaluation import (
    Evaluator,
    begin_evaluation,
    describe_evaluation,
    plan_cells,
)
from groupwise_recipes.demo_selection.pointwise import choose_by_pointwise

ASKED = make_asked()
IDS = [query.id for query in QUERIES]
LABELS = {one.id: one.label for one in TRAIN}


def make_answerer(backend=None, *, identity="weights", cache=None):
    return Answerer(backend or RepeatLast(), identity=identity, train=TRAIN, cache=cache)


@pytest.fixture
def evaluator(tmp_path):
    for epoch in (1, 2):
        make_selector(epoch).save(tmp_path / f"rce/epoch-{epoch}.safetensors")
    trainings = {"rce": tmp_path / "rce"}
    return Evaluator(
        tmp_path,
        make_answerer(),
        ASKED,
        trainings,
        recorder=make_selector(),
        recording=SETTINGS,
        seed=3,
    )


@pytest.mark.parametrize(
    ("cell", "choose"),
    [
        (Cell("none", 0), lambda: choose_by_baseline("none", ASKED, num_shots=0)),
        (Cell("random", 2), lambda: choose_by_baseline("random", ASKED, num_shots=2, seed=3)),
        (Cell("rce", 3, 2), lambda: choose_by_selector(make_selector(2), ASKED, num_shots=3)),
        (
            Cell("rce_reversed", 3, 2),
            lambda: [one[::-1] for one in choose_by_selector(make_selector(2), ASKED, num_shots=3)],
        ),
    ],
)
def test_a_cell_has_the_list_of_its_system_for_each_item(evaluator, cell, choose):
    rows = evaluator.evaluate(cell)
    assert rows == read_cell(evaluator.folder, cell)
    assert [row.demos for row in rows] == choose()
    for row, query in zip(rows, QUERIES, strict=True):
        assert (row.id, row.cluster) == (query.id, query.cluster)
        assert row.answer == (LABELS[row.demos[-1]] if row.demos else "nothing")
        assert row.accuracy == float(row.answer == query.label)


def test_a_rival_that_scores_candidates_alone_has_its_cells(evaluator):
    weights = torch.linspace(-1, 1, SIZE)
    with_rival = replace(evaluator, pointwise=weights)
    chosen = choose_by_pointwise(weights, ASKED, num_shots=2)
    assert [row.demos for row in with_rival.evaluate(Cell("pointwise", 2))] == chosen
    turned = with_rival.evaluate(Cell("pointwise_reversed", 2))
    assert [row.demos for row in turned] == [one[::-1] for one in chosen]


def test_the_oracle_is_the_best_of_the_lists_of_a_recording(evaluator):
    rows = evaluator.evaluate(Cell("oracle", 2))
    tried = evaluator.list_tried(Cell("oracle", 2))
    assert {len(row.demos) for row in rows} == {2}
    for row, query in zip(rows, QUERIES, strict=True):
        assert row.demos in tried[query.id]
        right = [one for one in tried[query.id] if LABELS[one[-1]] == query.label]
        assert row.demos == (right[0] if right else tried[query.id][0])
        assert row.accuracy == float(bool(right))
    assert {len(one) for one in tried.values()} <= set(range(8, 15))
    with pytest.raises(ConfigError, match="the oracle needs the selector"):
        replace(evaluator, recorder=None).evaluate(Cell("oracle", 2))


def test_a_whole_cell_is_not_asked_again_but_failed_rows_and_other_lists_are(evaluator):
    cell = Cell("random", 2)
    rows = evaluator.evaluate(cell)
    backend = RepeatLast()
    again = replace(evaluator, answerer=make_answerer(backend))
    assert again.evaluate(cell) == rows
    assert backend.prompts == []
    failed = replace(rows[0], answer=None, accuracy=None)
    other = replace(rows[1], demos=rows[1].demos[::-1])
    write_cell(evaluator.folder, cell, [failed, other, *rows[2:]])
    assert again.evaluate(cell) == rows
    assert len(backend.prompts) == 2


def test_a_failed_evaluation_has_no_accuracy(evaluator):
    failing = replace(evaluator, answerer=make_answerer(RepeatLast(failing=["test-2"])))
    for system in ("random", "oracle"):
        rows = failing.evaluate(Cell(system, 1))
        assert [row.accuracy is None for row in rows] == [n == 2 for n in range(len(IDS))]
        assert rows[2].answer is None
    assert failing.answerer.failures["timeout"] > 1


def test_some_items_first_then_all(evaluator):
    cell = Cell("nearest_both", 1)
    some = evaluator.evaluate(cell, [IDS[4], IDS[1]])
    assert [row.id for row in some] == [IDS[1], IDS[4]]
    rest = evaluator.evaluate(cell, [IDS[0]])
    assert [row.id for row in rest] == [IDS[0], IDS[1], IDS[4]]
    assert [row.id for row in evaluator.evaluate(cell)] == IDS
    assert evaluator.answerer.num_asked == len(IDS)
    with pytest.raises(DataError, match="no test item; got other"):
        evaluator.evaluate(cell, ["other"])


def test_equal_lists_of_other_epochs_cost_nothing(evaluator, tmp_path):
    cache = ReplyCache(tmp_path / "answers.db")
    cached = replace(evaluator, answerer=make_answerer(cache=cache))
    first = cached.evaluate(Cell("rce", 2, 1))
    make_selector(1).save(tmp_path / "rce/epoch-2.safetensors")
    other = replace(evaluator, folder=tmp_path / "other", answerer=make_answerer(cache=cache))
    assert other.evaluate(Cell("rce", 2, 2)) == first
    assert other.answerer.num_asked == 0


def test_systems_that_are_not_there_are_named(evaluator):
    with pytest.raises(ConfigError, match="no system 'randon'; did you mean 'random'"):
        evaluator.evaluate(Cell("randon", 1))
    with pytest.raises(ConfigError, match="no system 'pointwise'") as caught:
        evaluator.evaluate(Cell("pointwise", 1))
    assert "mean 'pointwise'" not in str(caught.value)
    with pytest.raises(ConfigError, match="rce needs the epoch"):
        evaluator.evaluate(Cell("rce", 1))
    with pytest.raises(ModelError, match=r"epoch-7\.safetensors is not a selector"):
        evaluator.evaluate(Cell("rce", 1, 7))
    assert list_cells(evaluator.folder) == []


def test_all_cells_are_planned():
    cells = list(
        plan_cells((1, 3), epochs={"rce": [5], "grpo": [1, 2]}, systems=("none", "mmices"))
    )
    assert [cell.name for cell in cells] == [
        "none-shots-0",
        "mmices-shots-1",
        "mmices-shots-3",
        *(f"rce-epoch-5-shots-{shots}" for shots in (1, 3)),
        *(f"grpo-epoch-{epoch}-shots-{shots}" for epoch in (1, 2) for shots in (1, 3)),
    ]


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """Of queries that are no test items."""
    path = tmp_path_factory.mktemp("recording") / "candidates.jsonl"
    record(path)
    found = read_candidates(path)
    queries = [replace(query, query_id=f"anchor {query.query_id}") for query in found.queries]
    return replace(found, queries=tuple(queries))


def test_an_evaluation_is_described_as_its_recording_is(recording):
    found = describe_evaluation(recording, answerer=make_answerer(), asked=ASKED)
    assert found["data"] == recording.digest
    again = describe_evaluation(recording, answerer=make_answerer(), asked=ASKED)
    assert not find_differences(found, again)
    same = replace(
        recording,
        queries=tuple(
            replace(query, query_id=query.query_id.removeprefix("anchor "))
            for query in recording.queries
        ),
    )
    theirs = same.describe()
    assert {name for name in found if found[name] != theirs[name]} == {"data"}


@pytest.mark.parametrize(
    ("answerer", "asked", "words"),
    [
        (make_answerer(identity="other"), ASKED, "Different answerer: weights and other."),
        (make_answerer(), make_asked(seed=9), "Different sampler of the pools"),
    ],
)
def test_other_conditions_than_the_recordings_are_refused(recording, answerer, asked, words):
    with pytest.raises(RunError, match="than their recording's") as caught:
        describe_evaluation(recording, answerer=answerer, asked=asked)
    assert words in str(caught.value)


def test_test_items_that_were_trained_on_are_refused(recording):
    seen = replace(recording.queries[0], query_id=IDS[0])
    with pytest.raises(DataError, match=f"1 test items were trained on; got {IDS[0]}"):
        describe_evaluation(
            replace(recording, queries=(seen,)), answerer=make_answerer(), asked=ASKED
        )


def test_an_evaluation_goes_on_only_as_it_was_begun(tmp_path):
    facts = EvaluationFacts({"data": "digest"}, None, 2, {"rce": 5})
    subsets = draw_subsets(IDS, [3, 5], seed=0)
    begin_evaluation(tmp_path, facts, subsets)
    begin_evaluation(tmp_path, facts, subsets)
    assert (read_facts(tmp_path), read_subsets(tmp_path)) == (facts, subsets)
    with pytest.raises(RunError, match=r"cells\.json says that it was begun otherwise"):
        begin_evaluation(tmp_path, replace(facts, trained_shots=3), subsets)
    with pytest.raises(RunError, match=r"subsets\.json says that it was begun otherwise"):
        begin_evaluation(tmp_path, facts, draw_subsets(IDS, [3, 5], seed=1))
