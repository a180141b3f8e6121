"""Measurements of demo_selection: cells, use of demonstrations, and results."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from demonstrations import QUERIES, SIZE, TRAIN, RepeatLast, make_asked, make_selector
from hypothesis import given
from hypothesis import strategies as st
from recording_job import SETTINGS, record
from tables import read_tables

from groupwise.core import (
    Completion,
    ConfigError,
    DataError,
    ModelError,
    RunError,
    derive_seed,
    write_json,
)
from groupwise.inference.local import LocalModel
from groupwise.judges import ReplyCache
from groupwise.models.policy import load_policy
from groupwise_drawn.dialects import read_dialects, write_dialects
from groupwise_recipes.demo_selection.answerer import (
    ANSWERER_FORM,
    Teaching,
    teach_answerer,
)
from groupwise_recipes.demo_selection.asking import Answerer
from groupwise_recipes.demo_selection.candidate_files import read_candidates
from groupwise_recipes.demo_selection.cells import (
    Base,
    Cell,
    CellRow,
    EvaluationFacts,
    draw_subsets,
    list_cells,
    parse_cell,
    read_cell,
    read_facts,
    read_subsets,
    take_subset,
    write_cell,
    write_facts,
    write_subsets,
)
from groupwise_recipes.demo_selection.choosing import choose_by_baseline, choose_by_selector
from groupwise_recipes.demo_selection.conditions import find_differences
from groupwise_recipes.demo_selection.demonstration_use import measure_demonstration_use
from groupwise_recipes.demo_selection.evaluation import (
    Evaluator,
    begin_evaluation,
    describe_evaluation,
    plan_cells,
)
from groupwise_recipes.demo_selection.pointwise import choose_by_pointwise
from groupwise_recipes.demo_selection.results import list_policies, make_predictions

TABLES = read_tables(__file__)
ASKED = make_asked()
IDS = [query.id for query in QUERIES]
LABELS = {one.id: one.label for one in TRAIN}


def make_answerer(backend=None, **more):
    return Answerer(backend or RepeatLast(), train=TRAIN, **{"identity": "weights", **more})


WEIGHTS = torch.linspace(-1, 1, SIZE)


def reverse(lists):
    return [one[::-1] for one in lists]


@pytest.fixture
def evaluator(tmp_path):
    for epoch in (1, 2):
        make_selector(epoch).save(tmp_path / f"rce/epoch-{epoch}.safetensors")
    named = {"recorder": make_selector(), "recording": SETTINGS, "pointwise": WEIGHTS, "seed": 3}
    trainings = {"rce": tmp_path / "rce"}
    return Evaluator(tmp_path, make_answerer(), ASKED, trainings, **named)


@pytest.mark.parametrize(
    ("cell", "choose"),
    [
        (Cell("none", 0), lambda: choose_by_baseline("none", ASKED, num_shots=0)),
        (Cell("random", 2), lambda: choose_by_baseline("random", ASKED, num_shots=2, seed=3)),
        (Cell("rce", 3, 2), lambda: choose_by_selector(make_selector(2), ASKED, num_shots=3)),
        (
            Cell("rce_reversed", 3, 2),
            lambda: reverse(choose_by_selector(make_selector(2), ASKED, num_shots=3)),
        ),
        (Cell("pointwise", 2), lambda: choose_by_pointwise(WEIGHTS, ASKED, num_shots=2)),
        (
            Cell("pointwise_reversed", 2),
            lambda: reverse(choose_by_pointwise(WEIGHTS, ASKED, num_shots=2)),
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
        replace(evaluator, pointwise=None).evaluate(Cell("pointwise", 1))
    assert "mean 'pointwise'" not in str(caught.value)
    with pytest.raises(ConfigError, match="rce needs the epoch"):
        evaluator.evaluate(Cell("rce", 1))
    with pytest.raises(ModelError, match=r"epoch-7\.safetensors is not a selector"):
        evaluator.evaluate(Cell("rce", 1, 7))
    assert list_cells(evaluator.folder) == []


def test_all_cells_are_planned():
    cells = [*plan_cells((1, 3), epochs={"rce": [5], "grpo": [1, 2]}, systems=("none", "mmices"))]
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
    found, again = (
        describe_evaluation(recording, answerer=make_answerer(), asked=ASKED) for _ in range(2)
    )
    assert found["data"] == recording.digest
    assert not find_differences(found, again)
    names = (query.query_id.removeprefix("anchor ") for query in recording.queries)
    queries = (replace(q, query_id=n) for q, n in zip(recording.queries, names, strict=True))
    theirs = replace(recording, queries=tuple(queries)).describe()
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


ROW = CellRow("a", "cluster", ("x", "y"), "net", 0.9)
FAILED = CellRow("b", "cluster", ("x", "z"), None, None)


@given(
    st.from_regex(r"[a-z][a-z_]*", fullmatch=True), st.integers(0, 9), st.none() | st.integers(1, 9)
)
def test_a_cell_is_found_again_by_its_name(system, shots, epoch):
    cell = Cell(system, shots, epoch)
    assert parse_cell(cell.name) == cell


def test_cells_are_in_files_of_their_names_and_one_that_has_not_run_has_no_rows(tmp_path):
    first, second = Cell("nearest_both", 1), Cell("rce", 3, 2)
    assert read_cell(tmp_path, second) == ()
    path = write_cell(tmp_path, second, [ROW, FAILED])
    write_cell(tmp_path, first, [ROW])
    names = [path.name for path in sorted((tmp_path / "cells").iterdir())]
    assert names == ["nearest_both-shots-1.jsonl", "rce-epoch-2-shots-3.jsonl"]
    assert list_cells(tmp_path) == [first, second]
    row = json.loads(path.read_text().splitlines()[0])
    assert row == TABLES["rows_come_back_and_a_cell_that_has_not_run_has_none"]
    assert read_cell(tmp_path, second) == (ROW, FAILED)
    with pytest.raises(DataError, match="no cell's name"):
        parse_cell("rce-epoch-two-shots-3")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ROW, ROW], "an item twice"),
        ([replace(ROW, accuracy=1.2)], "row 1 is not as expected; got accuracy"),
        ([FAILED, replace(ROW, demos=None)], "row 2 is not as expected; got demos"),
    ],
)
def test_rows_that_are_not_as_they_should_be_are_refused(tmp_path, rows, words):
    write_cell(tmp_path, Cell("random", 1), rows)
    with pytest.raises(DataError, match=words):
        read_cell(tmp_path, Cell("random", 1))


def test_a_subset_is_there_if_all_of_it_is():
    assert take_subset([ROW, FAILED], ["b", "a"]) == (FAILED, ROW)
    assert take_subset([ROW, FAILED], ["a"]) == (ROW,)
    assert take_subset([ROW], ["a", "b"]) is None
    assert take_subset([], []) is None


@given(st.integers(1, 30), st.data())
def test_subsets_are_nested_and_in_the_order_of_the_split(number, data):
    ids = [f"test-{place}" for place in range(number)]
    sizes = data.draw(st.sets(st.integers(1, number), min_size=1))
    drawn = draw_subsets(ids, sizes, seed=data.draw(st.integers(0, 5)))
    found = [drawn.subsets[str(size)] for size in sorted(sizes)]
    assert [len(one) for one in found] == sorted(sizes)
    assert all(set(small) <= set(large) for small, large in pairwise(found))
    assert all(list(one) == [id_ for id_ in ids if id_ in one] for one in found)
    assert drawn.largest == found[-1]


def test_subsets_are_drawn_by_their_seed():
    ids = [str(place) for place in range(50)]
    assert draw_subsets(ids, [10], seed=0) == draw_subsets(ids, [10, 10], seed=0)
    assert draw_subsets(ids, [10], seed=0).largest != draw_subsets(ids, [10], seed=1).largest
    for sizes in ([], [0], [51]):
        with pytest.raises(ConfigError, match="sizes from 1 to 50"):
            draw_subsets(ids, sizes, seed=0)


def test_what_cells_share_comes_back(tmp_path):
    whole = EvaluationFacts(
        {"data": "d", "pools": None}, Base("RCE epoch 5", "b"), 2, {"rce": 5, "grpo": 3}
    )
    for facts in (whole, replace(whole, base=None)):
        write_facts(tmp_path, facts)
        assert read_facts(tmp_path) == facts
    subsets = draw_subsets(["a", "b", "c"], [1, 3], seed=4)
    write_subsets(tmp_path, subsets)
    assert read_subsets(tmp_path) == subsets
    write_json(tmp_path / "subsets.json", {"nested": True})
    with pytest.raises(DataError, match=r"subsets\.json is not as expected"):
        read_subsets(tmp_path)


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    sizes = {"train": 300, "anchors": 20}
    return read_dialects(write_dialects(folder, seed=2, sizes=sizes))


class LookingUp:
    """Says the last word (or, if ``first``, the first) that was shown for dialect and colour."""

    def __init__(self, items, *, first=False):
        self.colors = {item.picture: item.scene.color for item in items}
        self.first = first
        self.asked = []

    def generate(self, examples, *, sampling, num_completions=1, report_progress=None):
        return [[Completion(self.answer(example), ())] for example in examples]

    def label_probabilities(self, examples, *, labels, leads=None, report_progress=None):
        raise NotImplementedError

    def answer(self, example):
        (turn,) = example.prompt
        self.asked.append(turn.pictures)
        words = [part for part in turn.parts if isinstance(part, str)]
        asked = [one.rpartition(" ")[2] for one in words[: len(turn.pictures)]]
        cells = [(name, self.colors[one]) for name, one in zip(asked, turn.pictures, strict=True)]
        told = [word.partition("\n")[0] for word in words[1:]]
        known = [word for cell, word in zip(cells, told, strict=False) if cell == cells[-1]]
        return (known[0] if self.first else known[-1]) if known else "?"


def collect(engine, items):
    figures = measure_demonstration_use(engine, items, form=ANSWERER_FORM, seed=0)
    return {(figure.situation, figure.num_shots): figure for figure in figures}


def test_the_counts_are_those_of_an_answerer_that_looks_up(items):
    engine = LookingUp(items)
    figures = collect(engine, items)
    assert len(figures) == 1 + 3 * 4 + 3
    for (situation, num_shots), one in figures.items():
        if situation in ("no demonstrations", "none right"):
            assert (one.num_asked, one.num_right, one.num_changed) == (20, 0, 0)
        if situation == "one right":
            assert one.num_asked == one.num_right == one.num_right_reversed > 10
        if situation == "contradicting":
            assert one.num_right == one.num_changed == one.num_asked > 5
            assert one.num_right_reversed == 0
            assert num_shots >= 2
    assert sum(one.num_right for one in figures.values() if one.situation == "random") < 20
    cells = {item.picture: (item.dialect, item.scene.color) for item in items}
    places = {
        [cells[one] for one in shown].index(cells[query])
        for *shown, query in engine.asked
        if len(shown) == 3 and [cells[one] for one in shown].count(cells[query]) == 1
    }
    assert places == {0, 1, 2}, "the right one stands at every place"
    one = collect(LookingUp(items, first=True), items)["contradicting", 3]
    assert (one.num_right, one.num_right_reversed) == (0, one.num_asked)


def test_anchors_are_asked_about_behind_train_items_and_too_few_are_refused(items):
    engine = LookingUp(items)
    figures = measure_demonstration_use(engine, items, form=ANSWERER_FORM, seed=0, num_queries=7)
    splits = {item.picture: item.split for item in items}
    for *shown, query in engine.asked:
        assert splits[query] == "anchors"
        assert {splits[one] for one in shown} <= {"train"}
    assert max(one.num_asked for one in figures) == 7
    assert len({query for *_, query in engine.asked}) == 7
    few = [item for item in items if item.split == "train"]
    with pytest.raises(DataError, match="too few items to ask with demonstrations; got 0 anchors"):
        collect(engine, few)


@pytest.mark.slow
def test_a_taught_answerer_uses_demonstrations(tmp_path):
    sizes = {"train": 800, "anchors": 150}
    items = read_dialects(write_dialects(tmp_path / "world", seed=2, sizes=sizes))
    folder = teach_answerer(tmp_path / "answerer", Teaching(), seed=derive_seed(0, "teach"))
    figures = collect(LocalModel(load_policy(folder, device=torch.device("cpu"))), items)
    for situation, shots, share in (("one right", (1, 2), 0.85), ("contradicting", (2, 3), 0.75)):
        for one in (figures[situation, num_shots] for num_shots in shots):
            assert one.num_right >= share * one.num_asked
    wrong = [one for (situation, _), one in figures.items() if situation == "none right"]
    assert sum(one.num_right for one in wrong) <= 0.15 * sum(one.num_asked for one in wrong)


ITEM = QUERIES[0]


def row(answer, accuracy, *demos):
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


def test_what_failed_has_no_score_and_what_was_not_asked_at_all_shots_has_no_mean():
    cells = {Cell("rce", 1, 1): row("lum", 1.0, "a"), Cell("rce", 2, 1): row(None, None, "a", "b")}
    [found] = make_predictions([ITEM], cells, shots=(1, 2))
    assert found.scores == {"vqa_1": 1.0}
    assert (found.predicted, found.reason) == (None, "the evaluation failed")
    [found] = make_predictions([ITEM], {Cell("oracle", 2): row("lum", 1.0)}, shots=(1, 2))
    assert found.scores == {"vqa_2": 1.0}


def test_grpo_is_last_and_trained_from_rce():
    found = list_policies(["grpo", "random", "rce", "oracle"])
    assert [one.name for one in found] == ["random", "oracle", "rce", "grpo"]
    assert [one.kind for one in found] == ["baseline", "bound", "trained", "trained"]
    assert (found[-1].trained_from, found[-1].weights) == ("rce", "grpo/policy")
