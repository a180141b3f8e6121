import pytest
from recorded_lists import ANSWERS, POOL, make_entry, make_list, make_pointer, make_query

from groupwise.core import DataError, read_json, write_json
from groupwise_recipes.demo_selection.candidates import Recording
from groupwise_recipes.demo_selection.conditions import Conditions
from groupwise_recipes.demo_selection.published_files import read_published, write_published


def load(folder, *pointers, pool=POOL, pools=None, meta=None):
    values = {"7": make_entry(7, pointers, pool)} | ({} if meta is None else {"_meta": meta})
    write_json(folder / "rl.json", values)
    return read_published(folder / "rl.json", pools=pools)


def read_lists(found):
    return [one.ids for one in found.recording.queries[0].candidates]


def test_the_form_with_pools(tmp_path):
    found = load(
        tmp_path,
        make_pointer([3, 0], pointer_global=[103, 100], temperature=1.3, gen_method="sample"),
        make_pointer([0, 3], answer="a"),
        meta={"beams": 5},
    )
    (query,) = found.recording.queries
    assert (query.query_id, query.question_id, query.image_id) == ("7", "7", 458752)
    assert (query.question, query.answers, query.pool) == ("What is it?", ANSWERS, POOL)
    first, second = query.candidates
    assert (first.ids, first.method, first.temperature) == ((103, 100), "sample", 1.3)
    assert (first.log_prob, first.answer, first.scored_by) == (-1.5, "net", "vqaEval")
    assert (first.accuracy, first.correct) == (1.0, True)
    assert (second.ids, second.accuracy) == ((100, 103), 0.3)
    assert found.recording.notes == {"beams": 5}
    assert found.recording.conditions == Conditions()


@pytest.mark.parametrize(
    "pointer",
    [
        make_pointer([3, 0], pointer_global=[103, 100]),
        make_pointer([103, 100], pointer_pos=[3, 0]),
        make_pointer([103, 100], pointer_global=[103, 100]),
        make_pointer([3, 0], pointer_global=[103, 100], pointer_pos=[3, 0]),
    ],
)
def test_the_form_without_pools_names_train_ids(tmp_path, pointer):
    found = load(tmp_path, pointer, pool=None)
    assert read_lists(found) == [(103, 100)]
    assert found.recording.queries[0].pool is None


def test_pools_may_be_given_to_train_ids(tmp_path):
    named = make_pointer([103, 100], pointer_global=[103, 100])
    found = load(tmp_path, named, pool=None, pools={"7": POOL})
    assert read_lists(found) == [(103, 100)]
    assert found.recording.queries[0].pool == POOL
    with pytest.raises(DataError, match="not in the pool"):
        load(tmp_path, named, pool=None, pools={"7": POOL[1:]})


def test_pools_may_be_given(tmp_path):
    found = load(tmp_path, make_pointer([3, 0]), pool=None, pools={"7": POOL})
    assert read_lists(found) == [(103, 100)]
    assert found.recording.queries[0].pool == POOL
    assert load(tmp_path, make_pointer([3, 0]), pools={"7": POOL}).recording == found.recording
    with pytest.raises(DataError, match="another pool than the one given"):
        load(tmp_path, make_pointer([3, 0]), pools={"7": POOL[::-1]})


@pytest.mark.parametrize("failure", [{"eval_failed": True}, {"vqa_eval_mode": "error"}])
def test_an_evaluation_that_failed_is_no_zero(tmp_path, failure):
    found = load(tmp_path, make_pointer([0, 1], answer="blue", **failure))
    (candidate,) = found.recording.queries[0].candidates
    assert (candidate.accuracy, candidate.correct, candidate.answer) == (None, None, None)


def test_lists_that_appear_twice_are_dropped_and_counted(tmp_path):
    rows = [make_pointer([0, 1]), make_pointer([1, 0]), make_pointer([0, 1], gen_method="random")]
    found = load(tmp_path, *rows)
    assert read_lists(found) == [(100, 101), (101, 100)]
    assert (found.num_lists, found.drops.counts) == (3, {"repeated list": 1})


@pytest.mark.parametrize(
    ("pointers", "pool", "words"),
    [
        ([make_pointer([0, 8])], POOL, "list 0 points outside of the pool; got 8; expected a pos"),
        ([make_pointer([0, -1])], POOL, "points outside of the pool; got -1"),
        ([make_pointer(["0", 1])], POOL, "points outside of the pool; got '0'"),
        ([make_pointer([0, 1], pointer_global=[100])], POOL, "different lengths; got [0, 1] and"),
        (
            [make_pointer([0, 1], pointer_global=[101, 100])],
            POOL,
            "disagrees with pointer_global; got [101, 100]; expected [100, 101]",
        ),
        ([make_pointer([0, 0])], POOL, "no item, or one twice"),
        ([make_pointer([])], POOL, "no item, or one twice"),
        ([make_pointer([0, 1]), make_pointer([0])], POOL, "lists of a recording have different"),
        ([make_pointer([0, 1])], None, "positions in a pool that is not there"),
        (
            [
                make_pointer([0, 1], pointer_global=[100, 101]),
                make_pointer([1, 0], pointer_global=[102, 100]),
            ],
            None,
            "its lists disagree on position 1 of the pool; got 101 and 102",
        ),
        ([make_pointer([0, 1], vqa_acc_score=3.0)], POOL, "out of range; got 3.0"),
        ([make_pointer([0, 1], vqa_correct=2)], POOL, "pointer_candidates.0.vqa_correct"),
        ([{"pointer": [0, 1]}], POOL, "pointer_candidates.0.gen_method: Field required"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, pointers, pool, words):
    with pytest.raises(DataError) as caught:
        load(tmp_path, *pointers, pool=pool)
    assert words in str(caught.value)


def test_an_entry_has_the_id_it_stands_under(tmp_path):
    write_json(tmp_path / "rl.json", {"8": make_entry(7, [make_pointer([0, 1])])})
    with pytest.raises(DataError, match="query 8 has another query_id; got 7"):
        read_published(tmp_path / "rl.json")


def test_what_is_written(tmp_path):
    failed = make_list((100, 103), answer=None)
    recording = Recording((make_query("7", [make_list((103, 100)), failed]),))
    write_published(recording, tmp_path / "rl.json")
    values = read_json(tmp_path / "rl.json", dict)
    assert values["7"]["candidate_pool_ids"] == list(POOL)
    assert values["7"]["query"]["gt_answers_norm"] == [*["net"] * 6, *["mesh"] * 3, ""]
    first, second = values["7"]["pointer_candidates"]
    assert (first["pointer"], first["pointer_global"]) == ([3, 0], [103, 100])
    assert (first["vqa_correct"], first["vqa_acc_score"], first["eval_failed"]) == (1, 1.0, False)
    assert (second["vqa_acc_score"], second["vqa_eval_mode"]) == (None, "error")
    write_published(recording, tmp_path / "rl.json", with_pools=False)
    (entry, _meta) = read_json(tmp_path / "rl.json", dict).values()
    assert [row["pointer"] for row in entry["pointer_candidates"]] == [[103, 100], [100, 103]]
    bare = Recording((make_query("7", [failed], pool=None),))
    with pytest.raises(DataError, match="was not recorded"):
        write_published(bare, tmp_path / "rl.json")
